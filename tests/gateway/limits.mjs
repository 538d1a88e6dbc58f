// Clients that are slow, many, silent or gone: they are cut off, and what they held is free again.

import { spawn, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { Client, Raw, bytesOf } from './client.mjs';
import { Gateway, assert, assertProblem, freePort, newPath, semel } from './harness.mjs';
import { newOrder, shop } from './shop.mjs';
import { eventually, later, run, sleep, test } from './tap.mjs';
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

test('at most 1024 connections have room for large heads, and the others go on', async () => {
    const other = await Gateway.start({});
    const ask = async (n) => {
        const raw = await Raw.connect(other.port);
        raw.write(bytesOf('GET', '/healthz', { 'X-Long': 'c'.repeat(n) }));
        return [await raw.status(), raw];
    };
    const all = [];
    for (let n = 0; n < 16; n++) all.push(...(await Promise.all(Array.from({ length: 64 }, () => ask(3000)))));
    assert.ok(all.every(([status]) => status === 200));
    assert.equal((await ask(20_000))[0], 431);
    assert.equal((await ask(3000))[0], 200, 'what fits into little is taken');
    for (const [, raw] of all.slice(0, 10)) raw.hangUp();
    await eventually('there is room again', async () => (await ask(20_000))[0] === 200);
    for (const [, raw] of all) raw.hangUp();
    await other.stop();
});

test('a connection that says nothing is cut off, and may speak late', async () => {
    const late = await Raw.connect(gw.port);
    const silent = await Raw.connect(gw.port);
    await sleep(1000);
    late.write(bytesOf('GET', '/healthz', {}));
    assert.equal(await late.status(), 200);
    const took = await Promise.race([silent.closed, sleep(30_000).then(() => Infinity)]);
    assert.ok(took > 1500 && took < 25_000, `cut off after ${took} ms`);
    late.hangUp();
});

test('a head that trickles in is cut off', async () => {
    const raw = await Raw.connect(gw.port);
    trickle(raw, bytesOf('GET', '/healthz', { 'X-Slow': 'x'.repeat(400) }), 100);
    const took = await Promise.race([raw.closed, sleep(30_000).then(() => Infinity)]);
    assert.ok(took > 1500 && took < 25_000, `cut off after ${took} ms`);
    raw.hangUp();
});

test('a body that trickles in is cut off, however steadily', async () => {
    const raw = await Raw.connect(gw.port);
    const body = JSON.stringify({ scope: 'shop/1', tool: 'charge', args: { order_id: 'x'.repeat(400) } });
    raw.write(bytesOf('POST', '/v1/call', head(body.length)));
    const before = up.seen.length;
    trickle(raw, body, 100);
    const took = await Promise.race([raw.closed, sleep(30_000).then(() => Infinity)]);
    assert.ok(took > 1500 && took < 25_000, `cut off after ${took} ms`);
    assert.equal(up.seen.length, before);
    raw.hangUp();
});

test('a request that comes byte by byte, but in time, is answered', async () => {
    const patient = await Gateway.start({ contract: shop(up), env: { SHOP_SECRET: 's' } });
    const raw = await Raw.connect(patient.port);
    const body = JSON.stringify({ scope: 'shop/1', tool: 'charge', args: { order_id: newOrder() } });
    trickle(raw, bytesOf('POST', '/v1/call', head(body.length), body), 1);
    assert.equal(await raw.status(), 200);
    raw.hangUp();
    await patient.stop();
});

test('a connection whose client has closed its side is closed, and not when it has rested too long', async () => {
    const contract = { ...shop(up), defaults: { loop: 'off' } };
    const patient = await Gateway.start({ contract, env: { SHOP_SECRET: 's' }, config: { limits: { idle: '300s' } } });
    const body = JSON.stringify({ scope: 'shop/1', tool: 'charge', args: { order_id: newOrder() } });
    const bytes = bytesOf('POST', '/v1/call', {
        Authorization: `Bearer ${patient.texts.agent}`, 'Content-Type': 'application/json',
        'Content-Length': `${body.length}`,
    }, body);
    const resting = [];
    for (let n = 0; n < 2; n++) {
        resting.push((await Raw.connect(patient.port)).write(bytes)); // it runs, and is brought into memory
        assert.equal(await resting[n].status(), 200);
    }
    const tool = `${path.dirname(process.env.SEMEL_BIN)}/tests/tool_half_close`;
    const { stdout } = spawnSync(tool, [patient.port, 10], { input: bytes, encoding: 'utf8', timeout: 60_000 });
    assert.equal(stdout, 'HTTP/1.1 200 OK\n'.repeat(10));
    for (const raw of resting) raw.hangUp();
    await patient.stop();
});

test('one who says nothing, and one who rests too long, are cut off', async () => {
    const silent = await Raw.connect(gw.port);
    const resting = await Raw.connect(gw.port);
    resting.write(bytesOf('GET', '/healthz', {}));
    assert.equal(await resting.status(), 200);
    for (const raw of [silent, resting]) {
        const took = await Promise.race([raw.closed, sleep(30_000).then(() => Infinity)]);
        assert.ok(took < 25_000, `cut off after ${took} ms`);
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
    const answer = await gw.agent.call({ scope: 'shop/1', tool: 'charge', args: { order_id: newOrder() } });
    assert.equal(answer.status, 200, answer.text);
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
        });
    }
    assert.ok(refused >= 100, `${refused} were turned away, of at least 40 each time`);
});

test('a burst far beyond the bound hangs nothing, and SIGTERM ends it', async () => {
    const small = await Gateway.start({ ledger: 'memory:', config: { limits: { connections: 50 } } });
    for (let round = 0; round < 8; round++) {
        const crowd = Array.from({ length: 95 }, () => net.connect(small.port, '127.0.0.1'));
        for (const socket of crowd) socket.on('error', () => {});
        await sleep(100);
        for (const socket of crowd) socket.destroy();
        await eventually('there is room again', async () => {
            const own = new Client(small.client.base);
            const answer = await own.get('/healthz').catch(() => ({ status: 0 }));
            own.close();
            return answer.status === 200;
        });
    }
    assert.deepEqual(await small.stop(), { code: 0, signal: null });
});

test('a part of a request line counts from its first byte, also behind another request', async () => {
    const fresh = await Raw.connect(gw.port);
    fresh.write('GET /hea');
    const later = await Raw.connect(gw.port);
    later.write(bytesOf('GET', '/healthz', {}));
    assert.equal(await later.status(), 200);
    later.write('GET /');
    const ahead = await Raw.connect(gw.port);
    ahead.write(`${bytesOf('GET', '/healthz', {})}GET /hea`);
    const patient = await Gateway.start({
        ledger: 'memory:', config: { limits: { request: '1s', idle: '60s' } },
    });
    const second = await Raw.connect(patient.port);
    second.write(`${bytesOf('GET', '/healthz', {})}GET /`);
    const resting = await Raw.connect(patient.port);
    resting.write(bytesOf('GET', '/healthz', {}));
    for (const [raw, least] of [[fresh, 1500], [later, 1500], [ahead, 1500], [second, 800]]) {
        const took = await Promise.race([raw.closed, sleep(30_000).then(() => Infinity)]);
        assert.ok(took > least && took < 25_000, `cut off after ${took} ms`);
    }
    assert.ok(!resting.socket.destroyed, 'one that rests may rest');
    resting.hangUp();
    await patient.kill();
});

// A gateway whose log is read by nobody until `resume`: { child, client, ended }.
async function unread() {
    const file = newPath('config.yaml');
    const port = await freePort();
    fs.writeFileSync(file, JSON.stringify({
        version: 1, listen: `127.0.0.1:${port}`, ledger: 'memory:', tokens: newPath('tokens.json'),
        log: { format: 'json', requests: 'all' },
    }));
    const child = spawn(semel, ['serve', '--config', file], { stdio: ['ignore', 'ignore', 'pipe'] });
    later(() => child.kill('SIGKILL'));
    const ended = new Promise((resolve) => child.on('exit', (code) => resolve(code)));
    child.stderr.pause();
    const client = new Client({ host: '127.0.0.1', port });
    await eventually('it answers', async () => (await client.get('/healthz').catch(() => ({}))).status === 200);
    return { child, client, ended };
}

test('a log that nobody reads stops nothing, and says afterwards what it lacks', async () => {
    const { child, client, ended } = await unread();
    // Two megabytes: the pipe and the queue are full long before.
    const path = `/${'a'.repeat(900)}`;
    for (let n = 0; n < 250; n++)
        await Promise.all(Array.from({ length: 10 }, async () => {
            assert.equal((await client.get(path)).status, 404);
        }));
    assert.equal((await client.get('/healthz')).status, 200);
    let log = '';
    child.stderr.setEncoding('utf8');
    child.stderr.on('data', (piece) => (log += piece));
    child.stderr.resume();
    await eventually('it tells what is missing', () => /lines are missing/.test(log));
    const lines = log.split('\n').filter((line) => line.startsWith('{')).map((line) => JSON.parse(line));
    const missing = lines.filter((one) => /missing/.test(one.message)).reduce((sum, one) => sum + one.lines, 0);
    const told = lines.filter((one) => one.path === path).length;
    assert.ok(missing > 500, `${missing} lines are missing`);
    assert.ok(told + missing >= 2500 && told + missing < 2510, `${told} are there`);
    client.close();
    child.kill('SIGTERM');
    assert.equal(await ended, 0);
});

test('a log that nobody reads does not keep it from ending', async () => {
    const { child, client, ended } = await unread();
    const path = `/${'a'.repeat(900)}`;
    for (let n = 0; n < 40; n++)
        await Promise.all(Array.from({ length: 10 }, () => client.get(path)));
    client.close();
    child.kill('SIGTERM');
    assert.equal(await Promise.race([ended, sleep(30_000).then(() => 'still there')]), 0);
    child.stderr.destroy();
});

test('one token has a quarter of the executions and of the places to wait', async () => {
    const contract = shop(up);
    contract.tools.slow.upstream.url = contract.tools.slow.upstream.url.replace('/slow/400', '/slow/3000');
    const narrow = await Gateway.start({
        contract, env: { SHOP_SECRET: 's' }, config: { limits: { in_flight: 8, waiting: 8 } },
    });
    const slow = (who, tool = 'slow') => {
        const order = newOrder();
        return { order, answer: who.call({ scope: 'shop/1', tool, args: { order_id: order, amount: 1 } }) };
    };
    // Two of eight are executed for one token, and the others' are free.
    const own = [slow(narrow.agent), slow(narrow.agent)];
    await eventually('two run', () => own.every(({ order }) => up.times(order) === 1));
    const third = slow(narrow.agent, 'charge');
    const refused = await third.answer;
    assertProblem(refused, 503, 'OVERLOADED');
    assert.match(refused.json.detail, /This token has its share of executions running/);
    assert.match(refused.headers['retry-after'], /^\d+$/);
    assert.equal(up.times(third.order), 0);
    const other = slow(narrow.agent2, 'charge');
    assert.equal((await other.answer).status, 200);
    for (const { answer } of own) assert.equal((await answer).status, 200);
    assert.equal((await slow(narrow.agent, 'charge').answer).status, 200, 'there is room again');
    // Of those who wait, too: the third one of a token is answered at once.
    const wanted = { scope: 'shop/1', tool: 'gift', args: { order_id: newOrder(), amount: 500 } };
    const abort = new AbortController();
    const waits = (who) => who.call({ ...wanted, wait_ms: 60_000 }, { signal: abort.signal }).catch(() => null);
    const waiting = [waits(narrow.agent), waits(narrow.agent)];
    const places = () => narrow.metric(/^semel_requests_parked/);
    await eventually('two wait', async () => (await places()) === 2);
    assertProblem(await narrow.agent.call({ ...wanted, wait_ms: 60_000 }), 202, 'AWAITING_APPROVAL');
    waiting.push(waits(narrow.agent2));
    await eventually('and one of another token', async () => (await places()) === 3);
    abort.abort();
    await Promise.all(waiting);
    await narrow.kill();
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
    await eventually('nobody waits any more', async () => (await parked()) === 0);
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
    await eventually('nobody waits any more', async () => (await parked()) === 0);
    const still = await gw.agent.call({ ...body, wait_ms: 0 });
    assertProblem(still, 202, 'AWAITING_APPROVAL');
});

test('one that does not read its answer is cut off', async () => {
    const order = newOrder();
    await gw.agent.call({ scope: 'shop/1', tool: 'charge', args: { order_id: order } });
    const before = await gw.memory();
    const raw = await Raw.connect(gw.port);
    raw.socket.pause();
    const request = bytesOf('GET', '/openapi.json', {});
    for (let n = 0; n < 2000 && !raw.socket.destroyed; n++) raw.write(request);
    await gw.assertGrown(before, 20e6);
    raw.hangUp();
    assert.equal((await gw.client.get('/healthz')).status, 200);
});

await run();
