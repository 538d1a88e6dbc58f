// SDKs that need only another base URL: the proxy is below /proxy/NAME. The gateway has the API's key,
// and our token takes its place in the SDK; or the SDK sends our token beside its own in Semel-Token.

import { Site, answerJson, assert, bad, goPath, good, here, hundred, newOrder, ownServer, python, server } from './harness.mjs';
import { run, test } from '../gateway/tap.mjs';

const mock = await server(goPath('stripe-mock'), (port) => ['-http-port', `${port}`]);
let batches = 0;
const port = await ownServer((request, body, response) => answerJson(response, {
    id: `batch_${++batches}`, object: 'batch', status: 'validating', endpoint: '/', input_file_id: 'f', completion_window: '24h', created_at: 1,
}));

const stamp = (entry) => ({ 'request-id': `req_${entry.serial}` });
const site = await Site.start({
    stripe: { port: mock.port, path: true, stamp, config: { headers: { Authorization: 'Bearer ${STRIPE_KEY}' } } },
    openai: { port, path: true, config: {} },
}, { env: { STRIPE_KEY: 'sk_test_configured' } });
const sdk = await python('stripe', 'openai');

const pay = (order, retries = 0) => sdk.call('stripe', { key: site.gw.texts.agent, base: site.stripe.base, retries }, 'v1.charges.create',
    [{ amount: 1000, currency: 'usd', source: 'tok_visa', description: order }]);
const batch = (order, retries = 0) => sdk.call('openai', {
    key: 'sk-theirs', base: `${site.openai.base}/v1`, retries, default_headers: { 'Semel-Token': site.gw.texts.agent },
}, 'batches.create', { input_file_id: order, endpoint: '/v1/chat/completions', completion_window: '24h' });

test('stripe-python with our token as its key: the API gets the configured one', async () => {
    const order = newOrder();
    const { request, object } = good(await pay(order));
    assert.equal(object.object, 'charge');
    const [entry] = site.stripe.api.of(order);
    assert.equal(request, `req_${entry.serial}`);
    assert.equal(entry.path, '/v1/charges');
    assert.equal(entry.headers.authorization, 'Bearer sk_test_configured');
    assert.ok(!JSON.stringify(entry.rawHeaders).includes(site.gw.texts.agent));
});

test('stripe-python: the answer is lost between gateway and client: the retry gets it', async () => {
    const order = newOrder();
    site.stripe.front.trouble('drop', here(order));
    const { request } = good(await pay(order, 2));
    assert.equal(site.stripe.front.of(order).length, 2);
    assert.equal(site.stripe.api.of(order).length, 1);
    assert.equal(request, `req_${site.stripe.api.of(order)[0].serial}`);
});

test('stripe-python: reads reach the API each time', async () => {
    const id = `ch_${newOrder()}`;
    const client = { key: site.gw.texts.agent, base: site.stripe.base };
    for (let n = 0; n < 2; n++) good(await sdk.call('stripe', client, 'v1.charges.retrieve', [id]));
    assert.equal(site.stripe.api.of(id).length, 2);
});

test('openai-python with Semel-Token: its own key reaches the API, our token does not', async () => {
    const order = newOrder();
    const first = good(await batch(order));
    assert.equal(good(await batch(order)).id, first.id);
    const [entry] = site.openai.api.of(order);
    assert.equal(site.openai.api.of(order).length, 1);
    assert.equal(entry.headers.authorization, 'Bearer sk-theirs');
    assert.equal(entry.headers['semel-token'], undefined);
});

test('openai-python: the answer is lost on either side', async () => {
    const order = newOrder();
    site.openai.front.trouble('drop', here(order));
    good(await batch(order, 2));
    assert.equal(site.openai.api.of(order).length, 1);
    const other = newOrder();
    site.openai.api.trouble('drop', here(other));
    const raised = bad(await batch(other, 2));
    assert.equal(raised.type, 'ConflictError');
    assert.equal(raised.code, 'IN_DOUBT');
    assert.equal(site.openai.api.of(other).length, 1);
});

test('openai-python: 100 callers at once: one batch', async () => {
    const order = newOrder();
    const seen = await hundred(site.openai, order, () => batch(order, 5));
    assert.equal(new Set(seen.map((one) => good(one).id)).size, 1);
    assert.equal(site.openai.api.of(order).length, 1);
});

await run();
