// Presets of the reverse proxy: what each knows about its API.

import { Gateway, assert, assertProblem, semel } from './harness.mjs';
import { newOrder } from './shop.mjs';
import { run, test } from './tap.mjs';
import { Upstream } from './upstream.mjs';
import { execFileSync } from 'node:child_process';

const up = await Upstream.start();
const names = ['stripe', 'openai', 'anthropic', 'aws-json', 'github'];
const gw = await Gateway.start({
    config: {
        proxies: {
            ...Object.fromEntries(names.map((name) => [name, { preset: name, url: up.url }])),
            own: { preset: 'openai', url: up.url },
            changed: { preset: 'stripe', url: up.url, client_key: 'honour', timeout: '5s' },
        },
    },
    contract: { version: 1, unlisted: 'hide', tools: { 'proxy.own': { class: 'write' } } },
});

// How often the API is asked if the same request is made twice.
async function times(proxy, path, body, headers = {}, second = {}) {
    const before = up.seen.length;
    for (const more of [{}, second]) {
        const given = { 'semel-scope': 'shop/presets', ...headers, ...more.headers };
        const answer = await gw.agent.post(`/proxy/${proxy}${path}`, more.body ?? body, { headers: given });
        assert.equal(answer.status, 200, `${proxy} ${path}: ${answer.text}`);
    }
    return up.seen.length - before;
}

test('each preset has a contract without mistakes, which can be printed', () => {
    const listed = execFileSync(semel, ['contract', 'preset'], { encoding: 'utf8' }).trim().split('\n');
    assert.deepEqual(listed, names);
    for (const name of names) {
        const text = execFileSync(semel, ['contract', 'preset', name], { encoding: 'utf8' });
        const found = execFileSync(semel, ['contract', 'check', '--strict', '-'], { input: text, encoding: 'utf8' });
        assert.match(found, /no errors, 0 warnings/);
    }
});

test('a preset is printed for one proxy, so that the presets of others stay in use', () => {
    const print = (...args) => execFileSync(semel, ['contract', 'preset', ...args], { encoding: 'utf8' });
    for (const name of names) {
        assert.match(print(name), new RegExp(`^  proxy\\.${name}:$`, 'm'));
        assert.match(print(name, 'pay-2'), /^  proxy\.pay-2:$/m);
        assert.ok(!/proxy\.(\*|stripe)/.test(print(name, 'pay')));
    }
    assert.throws(() => print('stripe', '*'), /a proxy's name has lowercase letters/);
});

const form = { 'content-type': 'application/x-www-form-urlencoded' };
test('stripe: fresh keys of the SDK are one action, a lost answer is asked for again, card numbers are not stored', async () => {
    const key = (n) => ({ headers: { ...form, 'idempotency-key': `fresh-${n}` } });
    assert.equal(await times('stripe', '/v1/charges', 'amount=1', key(1).headers, key(2)), 1);
    const cookie = (n) => ({ headers: { ...form, cookie: `sid=${n}` } });
    assert.equal(await times('stripe', '/v1/charges', 'amount=8', cookie(1).headers, cookie(2)), 1, 'a cookie that the API set');
    assert.equal(await times('changed', '/v1/charges', 'amount=2', key(3).headers, key(4)), 2, 'what the proxy says goes before the preset');
    up.habit('lossy', (upstream, entry, response) => {
        if (upstream.seen.filter((one) => one.path === '/lossy').length === 1) return response.destroy();
        response.writeHead(200, { 'content-type': 'application/json' });
        return response.end('{}');
    });
    const card = '4242424242424242';
    const send = () => gw.agent.post('/proxy/stripe/lossy', `amount=3&card%5Bnumber%5D=${card}`, { headers: { ...form, 'semel-scope': 'shop/presets' } });
    assertProblem(await send(), 504, 'UPSTREAM_TIMEOUT');
    const settled = await send();
    assert.equal(settled.status, 200, settled.text);
    const keys = up.seen.filter((one) => one.path === '/lossy').map((one) => one.key);
    assert.equal(keys.length, 2);
    assert.equal(keys[0], keys[1]);
    const effect = (await gw.admin.get(`/v1/effects/${settled.headers['semel-effect']}`)).json;
    assert.equal(effect.args.form['card[number]'], '[redacted]');
    assert.ok(!JSON.stringify(effect).includes(card));
});

test('stripe: numbers of accounts and persons are not stored, but an outbound payment shows where it goes', async () => {
    const hidden = [
        'card[cvc]', 'source[number]', 'source[cvc]', 'payment_method_data[card][number]', 'us_bank_account[account_number]',
        'payment_method_data[us_bank_account][account_number]', 'payment_method_data[sepa_debit][iban]', 'external_account[account_number]',
        'individual[ssn_last_4]', 'pii[id_number]', 'person[id_number]', 'cvc_update[cvc]', 'client_secret',
    ];
    const shown = ['amount', 'source[object]', 'destination_payment_method_data[us_bank_account][account_number]'];
    const body = new URLSearchParams([...hidden, ...shown].map((name) => [name, '4242'])).toString();
    const answer = await gw.agent.post('/proxy/stripe/v1/all', body, { headers: { ...form, 'semel-scope': 'shop/presets' } });
    const stored = (await gw.admin.get(`/v1/effects/${answer.headers['semel-effect']}`)).json.args.form;
    for (const name of hidden) assert.equal(stored[name], '[redacted]', name);
    for (const name of shown) assert.equal(stored[name], '4242', name);
});

test('stripe: an object that is set to A, B and A is set three times, wherever it is', async () => {
    for (const at of ['/v1/customers/cus_9', '/v1/issuing/cards/ic_1A', '/v1/subscription_schedules/sub_sched_1a', '/v1/terminal/readers/tmr_F1',
        '/v1/accounts/acct_1A/persons/person_1B', '/v1/customers/cus_9/sources/card_1A', '/v1/products/gold', '/v1/coupons/SUMMER25']) {
        const before = up.seen.length;
        for (const to of ['a', 'b', 'a', 'a'])
            await gw.agent.post(`/proxy/stripe${at}`, `status=${to}`, { headers: { ...form, 'semel-scope': 'shop/presets' } });
        assert.equal(up.seen.length - before, 3, at);
    }
    for (const at of ['/v1/payment_intents', '/v1/payment_intents/pi_1A/capture', '/v1/issuing/cards'])
        assert.equal(await times('stripe', at, 'n=1', form), 1, at);
});

test('openai and anthropic: generations pass, everything else happens once', async () => {
    for (const path of ['/v1/chat/completions', '/chat/completions', '/v1/responses', '/v1/embeddings', '/v1/images/generations'])
        assert.equal(await times('openai', path, { model: 'm', input: path }), 2, path);
    for (const path of ['/v1/files', '/v1/batches', '/v1/responses/r1/cancel', '/v1/chat/completions/c1', '/v1/chat/completionsx'])
        assert.equal(await times('openai', path, { model: 'm', input: path }), 1, path);
    for (const path of ['/v1/messages', '/v1/messages/count_tokens']) assert.equal(await times('anthropic', path, { model: 'm' }), 2, path);
    assert.equal(await times('anthropic', '/v1/messages/batches', { requests: [] }), 1);
    assert.equal(await times('anthropic', '/v1/messages', { model: 'm', mcp_servers: [{ url: 'https://tools.example' }] }), 1, 'tools may act');
    assert.equal(await times('openai', '/v1/responses', { model: 'm', background: false }), 2);
    assert.equal(await times('openai', '/v1/responses', { model: 'm', background: true }), 1);
    assert.equal(await times('openai', '/v1/responses', { model: 'm', conversation: 'c1' }), 1);
});

test('aws-json: the operation is in a header; tokens of the SDK are not part of a call', async () => {
    const target = (name) => ({ 'x-amz-target': `DynamoDB_20120810.${name}`, 'content-type': 'application/x-amz-json-1.0' });
    const item = newOrder();
    assert.equal(await times('aws-json', '/', { item }, target('GetItem')), 2);
    assert.equal(await times('aws-json', '/', { item }, target('PutItem')), 1);
    for (const name of ['ListQueues', 'ChangeMessageVisibility', 'SendTaskHeartbeat', 'Query', 'Scan'])
        assert.equal(await times('aws-json', '/', { item, name }, target(name)), 2, name);
    for (const name of ['GetUserAttributeVerificationCode', 'GetId', 'Listen', 'GetActivityTask'])
        assert.equal(await times('aws-json', '/', { item, name }, target(name)), 1, name);
    assert.equal(await times('aws-json', '/', { item }, target('DeleteItem')), 1, 'another operation, another action');
    assert.equal(await times('aws-json', '/bucket', { item }, target('GetItem')), 1, 'not how such an operation is asked for');
    assert.equal(await times('aws-json', '/?Action=DeleteQueue', { item }, target('ListQueues')), 1);
    const token = (n) => ({ item, ClientRequestToken: `t-${n}` });
    assert.equal(await times('aws-json', '/', token(1), target('TransactWriteItems'), { body: token(2) }), 1);
});

test('github: GraphQL queries pass, mutations and what could hide one happen once', async () => {
    const q = newOrder();
    for (const query of [`query { a(id: "${q}") { b } }`, `{ a(id: "${q}") }`, `\n query Named { a(id: "${q}") }`, `query { a(id: "${q}") { ${'b '.repeat(3000)} } }`])
        assert.equal(await times('github', '/graphql', { query }), 2, query);
    for (const body of [{ query: `mutation { a(id: "${q}") }` }, { query: `query A { a } mutation B { b(id: "${q}") }`, operationName: 'B' }, { query: `# query\nmutation { c(id: "${q}") }` }])
        assert.equal(await times('github', '/graphql', body), 1, JSON.stringify(body));
    assert.equal(await times('github', '/repos/o/r/issues', { title: q }), 1);
    for (const path of ['/repos/o/r/issues', '/repos/o/r/codeql', '/graphql?operationName=B'])
        assert.equal(await times('github', path, { query: `query { a(id: "${q}") }` }), 1, path);
    assert.equal(await times('github', '/markdown', { text: q }), 2);
    // A file that is named like the endpoint, and a path that is too long for a pattern.
    for (const path of ['/repos/o/r/contents/a.graphql', `/repos/o/r/contents/${'a'.repeat(5000)}.txt`]) {
        const before = up.seen.length;
        const put = () => gw.agent.request('PUT', `/proxy/github${path}`, { query: `query { a(id: "${q}") }` }, { headers: { 'semel-scope': 'shop/presets' } });
        for (let n = 0; n < 2; n++) assert.equal((await put()).status, 200);
        assert.equal(up.seen.length, before + 1, path.slice(0, 40));
    }
    assert.equal(await times('github', `/repos/o/r/${'a'.repeat(5000)}`, { query: `query { a(id: "${q}") }` }), 1);
});

test('a contract that lists the tool takes the place of the preset\'s', async () => {
    assert.equal(await times('own', '/v1/chat/completions', { model: 'm', input: newOrder() }), 1);
});

await run();
