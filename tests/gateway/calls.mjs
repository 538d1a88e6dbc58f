// POST /v1/call: a tool is executed once, and everybody who asks gets the same bytes.

import { Client } from './client.mjs';
import { Gateway, assert, assertProblem } from './harness.mjs';
import { newOrder, shop } from './shop.mjs';
import { eventually, run, sleep, test } from './tap.mjs';
import { Upstream } from './upstream.mjs';

const up = await Upstream.start();
const gw = await Gateway.start({ contract: shop(up), env: { SHOP_SECRET: 'sk_shop' } });
const charge = (order, more = {}) => ({
    scope: 'shop/1',
    tool: 'charge',
    args: { order_id: order, amount: 10, ...more },
});

test('a call is executed once and answered with the outcome itself', async () => {
    const order = newOrder();
    const first = await gw.agent.call(charge(order));
    assert.equal(first.status, 200, first.text);
    assert.deepEqual(first.json, { serial: up.work.length, order });
    assert.match(first.headers['semel-effect'], /^ef_/);
    assert.equal(first.headers['idempotent-replayed'], undefined);
    assert.match(first.headers['content-type'], /^application\/json/);
    for (let n = 0; n < 3; n++) {
        const again = await gw.agent.call(charge(order));
        assert.equal(again.status, 200);
        assert.equal(again.headers['idempotent-replayed'], 'true');
        assert.equal(again.headers['semel-effect'], first.headers['semel-effect']);
        assert.deepEqual(again.body, first.body);
        assert.equal(again.headers['content-type'], first.headers['content-type']);
    }
    assert.equal(up.times(order), 1);
});

test('the upstream gets method, canonical arguments, secret and a key', async () => {
    const order = newOrder();
    await gw.agent.call(charge(order, { z: 1, a: [1.0, 'ü'] }));
    const seen = up.work.at(-1);
    assert.equal(seen.method, 'POST');
    assert.equal(seen.path, '/ok/charge');
    assert.equal(seen.body, `{"a":[1,"ü"],"amount":10,"order_id":"${order}","z":1}`);
    assert.equal(seen.headers.authorization, 'Bearer sk_shop');
    assert.match(seen.headers['content-type'], /^application\/json/);
    assert.match(seen.key, /^[A-Za-z0-9_-]{43}$/);
});

test('an answer keeps its status and chosen headers, and never cookies', async () => {
    const body = { scope: 'shop/1', tool: 'order', args: { order_id: newOrder() } };
    const first = await gw.agent.call(body);
    const again = await gw.agent.call(body);
    for (const answer of [first, again]) {
        assert.equal(answer.status, 201, answer.text);
        assert.equal(answer.headers.location, '/orders/1');
        assert.equal(answer.headers['set-cookie'], undefined);
        assert.equal(answer.headers.authorization, undefined);
    }
    assert.deepEqual(again.body, first.body);
    assert.equal(again.headers['idempotent-replayed'], 'true');
});

test('200 equal calls at once: one effect, 200 equal bodies', async () => {
    const order = newOrder();
    const body = { scope: 'shop/1', tool: 'slow', args: { order_id: order } };
    const clients = Array.from({ length: 200 }, () => gw.agent.call(body));
    const answers = await Promise.all(clients);
    assert.equal(up.times(order), 1);
    const texts = new Set(answers.map((one) => one.text));
    assert.deepEqual([...texts], [JSON.stringify({ serial: up.asked(order)[0].serial, order })]);
    assert.deepEqual([...new Set(answers.map((one) => one.status))], [200]);
    const ran = answers.filter((one) => one.headers['idempotent-replayed'] === undefined);
    assert.equal(ran.length, 1, 'one of them was not a replay');
});

test('many different calls at once all run', async () => {
    const orders = Array.from({ length: 300 }, newOrder);
    const answers = await Promise.all(orders.map((order) => gw.agent.call(charge(order))));
    assert.ok(answers.every((one) => one.status === 200));
    assert.ok(orders.every((order) => up.times(order) === 1));
});

test('equal calls in another scope, or at another step, are other actions', async () => {
    const order = newOrder();
    await gw.agent.call({ ...charge(order), scope: 'shop/1' });
    await gw.agent.call({ ...charge(order), scope: 'shop/2' });
    await gw.agent.call({ ...charge(order), scope: 'shop/1', step: 'a' });
    await gw.agent.call({ ...charge(order), scope: 'shop/1', step: 7 });
    const text = await gw.agent.call({ ...charge(order), scope: 'shop/1', step: '7' });
    assert.equal(text.headers['idempotent-replayed'], 'true', 'a number is its text');
    assert.equal(up.times(order), 4);
});

test('an equal key with another amount is a conflict that names the place', async () => {
    const order = newOrder();
    await gw.agent.call(charge(order));
    const answer = await gw.agent.call(charge(order, { amount: 99 }));
    const problem = assertProblem(answer, 422, 'KEY_CONFLICT');
    assert.deepEqual(problem.drift, ['/amount']);
    assert.equal(up.times(order), 1);
});

test("a caller's key: in the body or the header, quoted and bare", async () => {
    const order = newOrder();
    const body = { scope: 'shop/1', tool: 'any', args: { order_id: order } };
    const key = `k-${order}`;
    const first = await gw.agent.call({ ...body, key });
    assert.equal(first.status, 200, first.text);
    for (const header of [key, `"${key}"`]) {
        const again = await gw.agent.call(body, { headers: { 'idempotency-key': header } });
        assert.equal(again.status, 200, again.text);
        assert.equal(again.headers['idempotent-replayed'], 'true');
        assert.deepEqual(again.body, first.body);
    }
    const both = await gw.agent.call({ ...body, key }, { headers: { 'idempotency-key': 'else' } });
    assert.equal(both.status, 400, both.text);
    const other = await gw.agent.call({ ...body, args: { order_id: newOrder() }, key });
    assertProblem(other, 422, 'KEY_CONFLICT');
    assert.equal(up.times(order), 1);
});

test('a header with two keys, or with an unfinished one, is refused', async () => {
    const body = { scope: 'shop/1', tool: 'any', args: { order_id: newOrder() } };
    for (const key of ['"open', '"a" b', ['k1', 'k2'], '"a\\x"', '"ü"']) {
        const answer = await gw.agent
            .call(body, { headers: { 'idempotency-key': key } })
            .catch((error) => ({ status: 400, text: error.message }));
        assert.equal(answer.status, 400, `${key}: ${answer.text}`);
    }
    assert.equal(up.times(body.args.order_id), 0);
});

test('a read passes through every time and leaves no effect', async () => {
    const order = newOrder();
    await gw.agent.call(charge(order));
    const body = { scope: 'shop/1', tool: 'lookup', args: { order_id: order } };
    const before = up.seen.length;
    for (let n = 1; n <= 2; n++) {
        const answer = await gw.agent.call(body);
        assert.equal(answer.status, 200, answer.text);
        assert.equal(answer.json.data.length, 1);
        assert.equal(answer.headers['idempotent-replayed'], undefined);
        assert.equal(up.seen.length, before + n);
    }
    assert.equal(up.seen.at(-1).method, 'GET');
});

test('a read that takes longer than its caller waits is not said to be recorded', async () => {
    const body = { scope: 'shop/1', tool: 'lookup.hangs', args: { order_id: newOrder() }, wait_ms: 300 };
    const problem = assertProblem(await gw.agent.call(body), 504, 'UPSTREAM_TIMEOUT');
    assert.equal(problem.effect, undefined);
    assert.match(problem.corrective_action, /more time/);
});

test('a rejection is the answer, and is replayed for what is irreversible', async () => {
    const body = { scope: 'shop/1', tool: 'rejected', args: { order_id: newOrder() } };
    const before = up.seen.length;
    const first = await gw.agent.call(body);
    assert.equal(first.status, 402, first.text);
    assert.deepEqual(first.json, { refused: true });
    const again = await gw.agent.call(body);
    assert.equal(again.status, 402);
    assert.equal(again.headers['idempotent-replayed'], 'true');
    assert.deepEqual(again.body, first.body);
    assert.equal(up.seen.length, before + 1);
});

test('a tool without an upstream is 422 and points to /v1/begin', async () => {
    const answer = await gw.agent.call({ scope: 'shop/1', tool: 'own', args: {} });
    assert.equal(answer.status, 422, answer.text);
    assert.match(answer.text, /\/v1\/begin/);
});

test('an unknown tool is 404', async () => {
    const answer = await gw.agent.call({ scope: 'shop/1', tool: 'chrage', args: {} });
    assertProblem(answer, 404, 'UNKNOWN_TOOL', /chrage/);
});

test('one who does not want to wait is told to come back', async () => {
    const order = newOrder();
    const body = { scope: 'shop/1', tool: 'slow', args: { order_id: order } };
    const first = gw.agent.call(body);
    await eventually('the upstream works', () => up.times(order) === 1);
    const hasty = await gw.agent.call({ ...body, wait_ms: 0 });
    const problem = assertProblem(hasty, 409, 'RETRY_IN_FLIGHT');
    assert.equal(problem.retriable, true);
    assert.match(hasty.headers['retry-after'], /^\d+$/);
    assert.equal((await first).status, 200);
    assert.equal(up.times(order), 1);
});

test('traceparent is passed on to the upstream', async () => {
    const trace = '4bf92f3577b34da6a3ce929d0e0e4736';
    const headers = { traceparent: `00-${trace}-00f067aa0ba902b7-01`, tracestate: 'a=b' };
    await gw.agent.call(charge(newOrder()), { headers });
    const seen = up.work.at(-1).headers;
    assert.match(seen.traceparent, new RegExp(`^00-${trace}-[0-9a-f]{16}-01$`));
    assert.doesNotMatch(seen.traceparent, /00f067aa0ba902b7/);
    assert.equal(seen.tracestate, 'a=b');
    await gw.agent.call(charge(newOrder()), { headers: { traceparent: '00-nonsense' } });
    assert.match(up.work.at(-1).headers.traceparent, /^00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]$/);
});

test('a client that hangs up during a write does not stop it: the retry gets the result', async () => {
    const order = newOrder();
    const body = { scope: 'shop/1', tool: 'slow', args: { order_id: order } };
    const abort = new AbortController();
    const own = new Client(gw.client.base, gw.texts.agent);
    const first = own.call(body, { signal: abort.signal }).catch((error) => error.name);
    await eventually('the upstream works', () => up.times(order) === 1);
    abort.abort();
    own.close();
    assert.equal(await first, 'AbortError');
    await sleep(20);
    const again = await gw.agent.call(body);
    assert.equal(again.status, 200, again.text);
    assert.equal(again.headers['idempotent-replayed'], 'true');
    assert.equal(up.times(order), 1);
});

test('clients that are answered, go, or wait too long, all at one moment: each has its own end', async () => {
    for (let round = 0; round < 3; round++) {
        const order = newOrder();
        const body = { scope: 'shop/1', tool: 'slow', args: { order_id: order } };
        // The work takes 400 ms, and so do the patience of some and the presence of others.
        const clients = Array.from({ length: 90 }, async (_, n) => {
            const moment = 370 + Math.floor(n / 3) * 3;
            if (n % 3 === 0) return gw.agent.call(body);
            if (n % 3 === 1) return gw.agent.call({ ...body, wait_ms: moment });
            const abort = new AbortController();
            setTimeout(() => abort.abort(), moment);
            return gw.agent.call(body, { signal: abort.signal }).catch((error) => error.name);
        });
        const answers = await Promise.all(clients);
        const text = JSON.stringify({ serial: up.asked(order)[0].serial, order });
        answers.forEach((one, n) => {
            if (one.status === 200) assert.equal(one.text, text);
            else if (n % 3 === 1) assertProblem(one, 409, 'RETRY_IN_FLIGHT');
            else if (n % 3 === 2) assert.equal(one, 'AbortError');
            else assert.fail(one.text);
        });
        await eventually('nobody waits any more', async () => (await gw.metric(/^semel_requests_parked/)) === 0);
        assert.equal((await gw.agent.call(body)).text, text);
        assert.equal(up.times(order), 1);
    }
});

test('a tool whose name is nearly one that is listed: what was probably meant', async () => {
    const answer = await gw.agent.call({ scope: 'shop/1', tool: 'chrage', args: {} });
    assert.match(assertProblem(answer, 404, 'UNKNOWN_TOOL').message, /did you mean charge\?/);
});

await run();
