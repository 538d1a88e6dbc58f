// Clients that are slow, many, silent or gone: they are cut off, and what they held is free again.

import { Client, Raw, bytesOf } from './client.mjs';
import { Gateway, assert, assertProblem } from './harness.mjs';
import { newOrder, shop } from './shop.mjs';
import { eventually, run, sleep, test } from './tap.mjs';
import { Upstream } from './upstream.mjs';

const up = await Upstream.start();
const gw = await Gateway.start({
    contract: shop(up),
    env: { SHOP_SECRET: 's' },
    config: { limits: { request: '2s', idle: '3s', connections: 300 } },
});
const head = (length) => ({
    Authorization: `Bearer ${gw.texts.agent}`,
    'Content-Type': 'application/json',
    'Content-Length': `${length}`,
});

// Writes a byte at a time until the server has had enough.
async function trickle(raw, bytes, pauseMs) {
    for (const byte of bytes) {
        if (raw.socket.destroyed) return;
        raw.write(byte);
        await sleep(pauseMs);
    }
}

test('a head that trickles in is cut off', async () => {
    const raw = await Raw.connect(gw.port);
    trickle(raw, bytesOf('GET', '/healthz', { 'X-Slow': 'x'.repeat(400) }), 100);
    const took = await Promise.race([raw.closed, sleep(8000).then(() => Infinity)]);
    assert.ok(took > 1500 && took < 6000, `cut off after ${took} ms`);
    raw.hangUp();
});

test('a body that trickles in is cut off, however steadily', async () => {
    const raw = await Raw.connect(gw.port);
    const body = JSON.stringify({ scope: 'shop/1', tool: 'charge', args: { order_id: 'x'.repeat(400) } });
    raw.write(bytesOf('POST', '/v1/call', head(body.length)));
    const before = up.seen.length;
    trickle(raw, body, 100);
    const took = await Promise.race([raw.closed, sleep(8000).then(() => Infinity)]);
    assert.ok(took > 1500 && took < 6000, `cut off after ${took} ms`);
    assert.equal(up.seen.length, before);
    raw.hangUp();
});

test('a request that comes byte by byte, but in time, is answered', async () => {
    const raw = await Raw.connect(gw.port);
    const body = JSON.stringify({ scope: 'shop/1', tool: 'charge', args: { order_id: newOrder() } });
    trickle(raw, bytesOf('POST', '/v1/call', head(body.length), body), 1);
    assert.equal(await raw.status(), 200);
    raw.hangUp();
});

test('one who says nothing, and one who rests too long, are cut off', async () => {
    const silent = await Raw.connect(gw.port);
    const resting = await Raw.connect(gw.port);
    resting.write(bytesOf('GET', '/healthz', {}));
    assert.equal(await resting.status(), 200);
    for (const raw of [silent, resting]) {
        const took = await Promise.race([raw.closed, sleep(10_000).then(() => Infinity)]);
        assert.ok(took < 9000, `cut off after ${took} ms`);
    }
});

test('half a request and a hang-up leave nothing behind', async () => {
    const body = JSON.stringify({ scope: 'shop/1', tool: 'charge', args: { order_id: newOrder() } });
    const whole = bytesOf('POST', '/v1/call', head(body.length), body);
    const before = up.seen.length;
    for (let n = 0; n < 60; n++) {
        const raw = await Raw.connect(gw.port);
        raw.write(whole.slice(0, Math.floor((whole.length - 1) * (n / 60)) + 1));
        await sleep(2);
        raw.hangUp();
    }
    await sleep(100);
    assert.equal(up.seen.length, before, 'nothing that was not asked for whole');
    assert.equal((await gw.client.get('/readyz')).status, 200);
});

test('a crowd of slow clients does not keep others out', async () => {
    const crowd = await Promise.all(Array.from({ length: 150 }, () => Raw.connect(gw.port)));
    for (const raw of crowd) raw.write('POST /v1/call HTTP/1.1\r\nHost: 127');
    const began = Date.now();
    const answer = await gw.agent.call({ scope: 'shop/1', tool: 'charge', args: { order_id: newOrder() } });
    assert.equal(answer.status, 200, answer.text);
    assert.ok(Date.now() - began < 1000);
    for (const raw of crowd) raw.hangUp();
});

test('more connections than allowed are turned away, and there is room again after them', async () => {
    let refused = 0;
    for (let round = 0; round < 5; round++) {
        const crowd = [];
        for (let n = 0; n < 340; n++) {
            const raw = await Raw.connect(gw.port).catch(() => null);
            if (raw) crowd.push(raw);
        }
        await sleep(200);
        refused += crowd.filter((one) => one.socket.destroyed).length;
        for (const raw of crowd) raw.hangUp();
        await eventually('there is room again', async () => {
            const own = new Client(gw.client.base);
            const answer = await own.get('/healthz').catch(() => ({ status: 0 }));
            own.close();
            return answer.status === 200;
        }, 5000);
    }
    assert.ok(refused >= 100, `${refused} were turned away, of at least 40 each time`);
});

const parked = () => gw.metric(/^semel_.*(parked|waiting)/);

test('a client that hangs up while it waits is noticed and forgotten', async () => {
    const order = newOrder();
    const began = await gw.agent.post('/v1/begin', {
        scope: 'shop/1', tool: 'own', args: { order_id: order },
    });
    assert.equal(began.json.verdict, 'execute', began.text);
    const own = new Client(gw.client.base, gw.texts.agent);
    const abort = new AbortController();
    const body = { scope: 'shop/1', tool: 'own', args: { order_id: order }, wait_ms: 60_000 };
    const waiting = Array.from({ length: 20 }, () =>
        own.post('/v1/begin', body, { signal: abort.signal }).catch((error) => error.name));
    await eventually('they wait', async () => (await parked()) >= 20);
    abort.abort();
    own.close();
    await Promise.all(waiting);
    await eventually('nobody waits any more', async () => (await parked()) === 0, 5000);
    await gw.agent.post('/v1/commit', { claim: began.json.claim, kind: 'success' });
});

test('a client that hangs up while it waits for an approval is forgotten, the request is not', async () => {
    const order = newOrder();
    const body = { scope: 'shop/1', tool: 'gift', args: { order_id: order, amount: 900 } };
    const abort = new AbortController();
    const own = new Client(gw.client.base, gw.texts.agent);
    const waiting = own.call({ ...body, wait_ms: 60_000 }, { signal: abort.signal }).catch(() => null);
    await eventually('it waits', async () => (await parked()) >= 1);
    abort.abort();
    await waiting;
    own.close();
    await eventually('nobody waits any more', async () => (await parked()) === 0, 5000);
    const still = await gw.agent.call({ ...body, wait_ms: 0 });
    assertProblem(still, 202, 'AWAITING_APPROVAL');
});

test('one that does not read its answer is cut off', async () => {
    const order = newOrder();
    await gw.agent.call({ scope: 'shop/1', tool: 'charge', args: { order_id: order } });
    const memory = () => gw.metric(/process_resident_memory_bytes$/);
    const before = await memory();
    const raw = await Raw.connect(gw.port);
    raw.socket.pause();
    const request = bytesOf('GET', '/openapi.json', {});
    for (let n = 0; n < 2000 && !raw.socket.destroyed; n++) raw.write(request);
    const grown = (await memory()) - before;
    assert.ok(grown < 20e6, `${grown} bytes more`);
    raw.hangUp();
    assert.equal((await gw.client.get('/healthz')).status, 200);
});

await run();
