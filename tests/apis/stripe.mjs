// stripe-python and stripe-node before stripe-mock. The mock keeps nothing, so the wire in front of it
// counts, and gives each answer a Request-Id: SDKs show it, and so tell which answer they have got.

import Stripe from 'stripe';
import { Site, assert, bad, goPath, good, here, hundred, newOrder, python, server } from './harness.mjs';
import { run, test } from '../gateway/tap.mjs';

const mock = await server(goPath('stripe-mock'), (port) => ['-http-port', `${port}`]);
const stamp = (entry) => ({ 'request-id': `req_${entry.serial}` });
const asks = { class: 'irreversible', key: 'hash', approval: { expires: '1h' } };
const site = await Site.start({
    stripe: { port: mock.port, stamp, config: { preset: 'stripe' } },
    asking: { port: mock.port, stamp, config: { preset: 'stripe', timeout: '3s' } },
    patient: { port: mock.port, stamp, config: { preset: 'stripe' } },
}, { contract: { version: 1, tools: { 'proxy.asking': asks, 'proxy.patient': asks } } });
const { api, front } = site.stripe;
const sdk = await python('stripe');

// Both SDKs in one way: { object, request, status }.
const kinds = {
    'stripe-python': (name, args, { at = site.stripe, key = 'sk_test_1', retries = 0, account } = {}) => {
        const client = { base: at.base, key, retries, ...(account ? { stripe_account: account } : {}) };
        return sdk.call('stripe', client, `v1.${name}`, args);
    },
    'stripe-node': async (name, args, { at = site.stripe, key = 'sk_test_1', retries = 0, account } = {}) => {
        const client = new Stripe(key, {
            host: '127.0.0.1', port: at.port, protocol: 'http', maxNetworkRetries: retries, ...(account ? { stripeAccount: account } : {}),
        });
        const [resource, method] = name.split('.');
        try {
            const object = await client[resource][method](...args);
            return { value: { object, request: object.lastResponse.requestId, status: object.lastResponse.statusCode } };
        } catch (e) {
            return { raised: { type: e.type ?? e.name, message: e.message, status: e.statusCode, code: e.code } };
        }
    },
};

const charge = (order) => [{ amount: 1000, currency: 'usd', source: 'tok_visa', description: order }];

for (const [kind, call] of Object.entries(kinds)) {
    const check = (name, body) => test(`${kind}: ${name}`, body);
    const pay = (order, options) => call('charges.create', charge(order), options);

    check('a charge reaches the API as it is, and its answer the client', async () => {
        const order = newOrder();
        const { object, request, status } = good(await pay(order));
        assert.equal(object.object, 'charge');
        assert.equal(status, 200);
        const [entry] = api.of(order);
        assert.equal(request, `req_${entry.serial}`);
        assert.equal(entry.headers.authorization, 'Bearer sk_test_1');
        assert.match(entry.headers['content-type'], /^application\/x-www-form-urlencoded/);
        assert.match(entry.headers['idempotency-key'], /^[\w-]{43}$/, 'the same on every try');
    });

    check('the agent repeats a call: the SDK makes another key, and there is one charge', async () => {
        const order = newOrder();
        const first = good(await pay(order));
        const again = good(await pay(order));
        assert.equal(api.of(order).length, 1);
        assert.equal(again.request, first.request);
        const keys = front.of(order).map((entry) => entry.headers['idempotency-key']);
        assert.equal(new Set(keys).size, 2, 'this is about different keys');
    });

    check('the answer is lost between gateway and client: the retry gets it', async () => {
        const order = newOrder();
        front.trouble('drop', here(order));
        const { request } = good(await pay(order, { retries: 2 }));
        assert.equal(front.of(order).length, 2);
        const [entry] = api.of(order);
        assert.equal(request, `req_${entry.serial}`);
        assert.equal(api.of(order).length, 1);
    });

    check('the answer is lost between API and gateway: the retry is sent on with the same key', async () => {
        const order = newOrder();
        api.trouble('drop', here(order));
        const { request } = good(await pay(order, { retries: 2 }));
        assert.equal(api.of(order).length, 2);
        assert.equal(api.actions(order), 1);
        assert.equal(request, `req_${api.of(order)[1].serial}`);
    });

    check('the API fails after its work: the same', async () => {
        const order = newOrder();
        api.trouble('fail', here(order));
        good(await pay(order, { retries: 2 }));
        assert.equal(api.of(order).length, 2);
        assert.equal(api.actions(order), 1);
    });

    check('without a retry the SDK says that it is in doubt, and the agent can ask again', async () => {
        const order = newOrder();
        api.trouble('fail', here(order));
        const raised = bad(await pay(order));
        assert.equal(raised.status, 504);
        assert.match(raised.message, /may or may not have taken effect/);
        good(await pay(order));
        assert.equal(api.actions(order), 1);
    });

    check('two accounts, two users: two charges, two answers', async () => {
        const order = newOrder();
        const answers = [];
        const users = [{}, { account: 'acct_1' }, { account: 'acct_2' }, { key: 'sk_test_2' }];
        for (const user of [...users, ...users]) answers.push(good(await pay(order, user)).request);
        assert.equal(new Set(answers.slice(0, 4)).size, 4);
        assert.deepEqual(answers.slice(4), answers.slice(0, 4), 'and each has its own again');
        assert.deepEqual(api.of(order).map((one) => one.headers['stripe-account']), [undefined, 'acct_1', 'acct_2', undefined]);
        assert.equal(api.of(order)[3].headers.authorization, 'Bearer sk_test_2');
    });

    check('another value of a header that is compared: raised as a conflict that names it', async () => {
        const order = newOrder();
        good(await pay(order));
        const version = kind === 'stripe-python' ? { stripe_version: '2024-06-20' } : { apiVersion: '2024-06-20' };
        const raised = bad(await call('charges.create', [...charge(order), version]));
        assert.equal(raised.status, 422);
        assert.equal(raised.code, 'KEY_CONFLICT');
        assert.match(raised.message, /stripe-version/);
        assert.equal(api.of(order).length, 1);
    });

    check('what the API rejects is raised as the API says', async () => {
        const order = newOrder();
        const raised = bad(await call('charges.create', [{ amount: 'many', currency: 'usd', description: order }]));
        assert.equal(raised.status, 400);
        assert.match(raised.type, /InvalidRequestError/);
        assert.doesNotMatch(raised.message, /semel/i);
    });

    check('reads reach the API each time', async () => {
        const id = `ch_${newOrder()}`;
        for (let n = 0; n < 2; n++) good(await call('charges.retrieve', [id]));
        assert.equal(api.of(id).length, 2);
        const before = api.of('/v1/charges?limit=3').length;
        for (let n = 0; n < 2; n++) good(await call('charges.list', [{ limit: 3 }]));
        assert.equal(api.of('/v1/charges?limit=3').length, before + 2);
    });

    check('100 callers at once: one charge, one answer', async () => {
        const order = newOrder();
        const answers = (await hundred(site.stripe, order, () => pay(order, { retries: 5 }))).map(good);
        assert.equal(api.of(order).length, 1);
        assert.deepEqual([...new Set(answers.map((one) => one.request))], [`req_${api.of(order)[0].serial}`]);
    });

    check('an upload is one action, though each try has a boundary of its own', async () => {
        const order = newOrder();
        const file = kind === 'stripe-python'
            ? { base64: Buffer.from(`evidence ${order}`).toString('base64'), name: 'a.txt' }
            : { data: Buffer.from(`evidence ${order}`), name: 'a.txt', type: 'text/plain' };
        const upload = (purpose) => call('files.create', [{ purpose, file: { ...file } }]);
        const first = good(await upload('dispute_evidence'));
        assert.equal(first.object.object, 'file');
        assert.equal(good(await upload('dispute_evidence')).request, first.request);
        assert.equal(api.of(order).length, 1);
        const boundaries = front.of(order).map((entry) => entry.headers['content-type']);
        assert.equal(new Set(boundaries).size, 2, 'this is about different boundaries');
        good(await upload('identity_document'));
        assert.equal(api.of(order).length, 2, 'another field is another action');
    });

    check('an object that is set to A, B and A is set three times; made as A, B and A, there are two', async () => {
        const id = `cus_${newOrder()}`;
        const name = (text) => call('customers.update', [id, { name: text }]);
        for (const text of ['A', 'B', 'A', 'A']) good(await name(text));
        assert.deepEqual(api.of(id).map((entry) => entry.text.match(/name=(\w)/)[1]), ['A', 'B', 'A'], 'the last one is a retry');
        const remove = kind === 'stripe-python' ? 'customers.delete' : 'customers.del';
        for (let n = 0; n < 2; n++) good(await call(remove, [id]));
        good(await name('A'));
        assert.deepEqual(api.of(id).map((entry) => entry.method), ['POST', 'POST', 'POST', 'DELETE', 'POST']);
        const order = newOrder();
        for (const text of ['A', 'B', 'A']) good(await call('customers.create', [{ name: text, description: order }]));
        assert.equal(api.of(order).length, 2);
    });
}

test('a charge that waits for approval is raised as not done, and runs once it is approved', async () => {
    await Promise.all(Object.entries(kinds).map(async ([kind, call]) => {
        const order = newOrder();
        const pay = () => call('charges.create', charge(order), { at: site.asking, account: 'acct_9' });
        const raised = bad(await pay());
        assert.equal(raised.status, 403, kind);
        assert.equal(raised.code, 'AWAITING_APPROVAL', kind);
        assert.match(raised.type, /PermissionError/);
        assert.equal(site.asking.api.of(order).length, 0);
        const item = await site.approve(order);
        assert.equal(item.args.headers['stripe-account'], 'acct_9');
        assert.equal(item.args.form.amount, '1000');
        const { request } = good(await pay());
        assert.equal(site.asking.api.of(order).length, 1);
        assert.equal(request, `req_${site.asking.api.of(order)[0].serial}`);
    }));
});

test('who waits while it is approved gets the answer', async () => {
    await Promise.all(Object.entries(kinds).map(async ([kind, call]) => {
        const order = newOrder();
        const waiting = call('charges.create', charge(order), { at: site.patient });
        await site.approve(order);
        assert.equal(good(await waiting).request, `req_${site.patient.api.of(order)[0].serial}`, kind);
    }));
});

await run();
