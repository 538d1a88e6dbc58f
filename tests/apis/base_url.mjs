// SDKs that need only another base URL: the proxy is below /proxy/NAME. The gateway has the API's key,
// and our token takes its place in the SDK; or the SDK sends our token beside its own in Semel-Token.

import http from 'node:http';
import { Site, assert, bad, goPath, good, newOrder, python, server } from './harness.mjs';
import { eventually, later, run, test } from '../gateway/tap.mjs';

const mock = await server(goPath('stripe-mock'), (port) => ['-http-port', `${port}`]);
const batches = http.createServer((request, response) => {
    const batch = { id: `batch_${Date.now()}`, object: 'batch', status: 'validating', endpoint: '/', input_file_id: 'f', completion_window: '24h', created_at: 1 };
    request.resume();
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify(batch));
});
await new Promise((resolve) => batches.listen(0, '127.0.0.1', resolve));
later(() => {
    batches.closeAllConnections();
    batches.close();
});

const stamp = (entry) => ({ 'request-id': `req_${entry.serial}` });
const site = await Site.start({
    stripe: { port: mock.port, path: true, stamp, config: { headers: { Authorization: 'Bearer ${STRIPE_KEY}' } } },
    openai: { port: batches.address().port, path: true, config: {} },
}, { env: { STRIPE_KEY: 'sk_test_configured' } });
const sdk = await python('stripe', 'openai');
const here = (order) => (entry) => entry.text.includes(order);

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
    const held = site.openai.api.trouble('hold', here(order));
    const all = Array.from({ length: 100 }, () => batch(order, 5));
    await eventually('all have asked', () => site.openai.front.of(order).length >= 100);
    held.release();
    assert.equal(new Set((await Promise.all(all)).map((one) => good(one).id)).size, 1);
    assert.equal(site.openai.api.of(order).length, 1);
});

await run();
