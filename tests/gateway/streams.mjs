// Answers that come piece by piece, such as the tokens of a language model: reads pass as they come,
// and so do writes whose proxy says `stream`, which are recorded too.
//
// The upstream sends a piece when the test says so. A piece that arrives while the next one has not
// been sent has not been kept back.

import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import path from 'node:path';
import { Client } from './client.mjs';
import { Gateway, assert, assertProblem } from './harness.mjs';
import { newOrder } from './shop.mjs';
import { eventually, full, run, test } from './tap.mjs';
import { Upstream, reply } from './upstream.mjs';

const MB = 1e6;
const LARGE = (full ? 1000 : 200) * MB;

const up = await Upstream.start();

// What the test does with the answers that the upstream has begun, by order.
const answers = new Map();
const begin = (upstream, entry, response) => {
    upstream.did(entry);
    response.writeHead(200, { 'content-type': 'text/event-stream', 'x-request-id': 'r-1', 'set-cookie': 'a=b' });
    response.flushHeaders();
    const answer = { response, closed: false };
    response.on('close', () => (answer.closed = true));
    answers.set(entry.order, answer);
};
up.habit('chat', begin);
up.habit('pay', begin);

// As many bytes as the path says, as fast as they are taken.
up.habit('flood', (upstream, entry, response) => {
    upstream.did(entry);
    const flood = { sent: 0, closed: false };
    answers.set(entry.order, flood);
    response.on('close', () => (flood.closed = true));
    const piece = Buffer.alloc(64 * 1024, 'z');
    const size = Number(entry.path.split('/')[2]);
    response.writeHead(200, { 'content-type': 'application/octet-stream' });
    const more = () => {
        while (flood.sent < size && !flood.closed) {
            const next = piece.subarray(0, Math.min(piece.length, size - flood.sent));
            flood.sent += next.length;
            if (!response.write(next)) return response.once('drain', more);
        }
        response.end();
    };
    more();
});

const options = {
    contract: {
        version: 1,
        tools: {
            'proxy.llm': {
                class: 'write',
                variants: [{ when: [{ field: '/path', matches: '/(chat|flood).*' }], class: 'read' }],
            },
            'proxy.sse': { class: 'irreversible', key: { fields: ['/body'] }, barrier: 'off' },
        },
    },
    config: {
        proxies: {
            llm: { url: up.url, timeout: '20s' },
            sse: { url: up.url, timeout: '20s', stream: true },
            keyed: { url: up.url, timeout: '20s', stream: true, idempotency: { header: 'Idempotency-Key', window: '1h' } },
            brief: { url: up.url, timeout: '600ms', stream: true, retry: { attempts: 3, backoff: '10ms' } },
        },
    },
};
const gw = await Gateway.start(options);

const order = () => ({ order_id: newOrder() });

// A request whose answer is read by hand: `text` is what has come, `over` is "end" or "cut".
function open(path, body, gateway = gw) {
    return new Promise((resolve, reject) => {
        const request = http.request({
            host: '127.0.0.1', port: gateway.port, method: 'POST', path: `/proxy/${path}`, agent: false,
            headers: { authorization: `Bearer ${gateway.texts.agent}`, 'content-type': 'application/json' },
        }, (response) => {
            const stream = { request, response, headers: response.headers, status: response.statusCode, text: '', bytes: 0 };
            stream.over = new Promise((done) => {
                response.on('end', () => done('end'));
                response.on('error', () => done('cut'));
            });
            stream.read = () => response.on('data', (piece) => {
                stream.bytes += piece.length;
                if (stream.bytes < 100_000) stream.text += piece;
            });
            stream.leave = () => request.destroy();
            resolve(stream);
        });
        request.on('error', reject);
        request.end(JSON.stringify(body));
    });
}

// One that the upstream has begun and that is being read.
async function opened(path, body, gateway = gw) {
    const stream = await open(path, body, gateway);
    assert.equal(stream.status, 200);
    stream.read();
    return stream;
}

const upstreamOf = (body) => eventually('the upstream has begun', () => answers.get(body.order_id));

// The upstream sends an event, and the client gets it before anything else is sent.
async function event(body, stream, text) {
    const { response } = await upstreamOf(body);
    const expected = `${stream.text}data: ${text}\n\n`;
    response.write(`data: ${text}\n\n`);
    await eventually(`the event ${text} has come`, () => stream.text === expected);
}

const replay = (path, body, gateway = gw) => gateway.agent.post(`/proxy/${path}`, body);
const recorded = (effect, ...states) => gw.state(effect, ...states);

test('a POST that reads passes as it comes, every time, and nothing is recorded', async () => {
    const body = order();
    for (let n = 1; n <= 2; n++) {
        answers.delete(body.order_id);
        const stream = await opened('llm/chat', body);
        assert.equal(stream.headers['content-type'], 'text/event-stream');
        assert.equal(stream.headers['semel-effect'], undefined);
        for (const text of ['one', 'two', 'three']) await event(body, stream, text);
        answers.get(body.order_id).response.end();
        assert.equal(await stream.over, 'end');
        assert.equal(up.times(body.order_id), n);
        assert.equal(up.asked(body.order_id).at(-1).body, JSON.stringify(body), 'its body arrives');
    }
    const items = (await gw.admin.get('/v1/effects?tool=proxy.llm')).json.items;
    assert.deepEqual(items, []);
    const written = order();
    await replay('llm/ok', written);
    assert.equal((await replay('llm/ok', written)).headers['idempotent-replayed'], 'true', 'others are writes');
    assert.equal(up.times(written.order_id), 1);
});

test('a read ends at the upstream when its client leaves', async () => {
    const body = order();
    const stream = await opened('llm/chat', body);
    await event(body, stream, 'one');
    stream.leave();
    await eventually('the upstream sees it', () => answers.get(body.order_id).closed);
});

test('a read that the upstream breaks off is cut, not ended', async () => {
    const body = order();
    const stream = await opened('llm/chat', body);
    await event(body, stream, 'one');
    answers.get(body.order_id).response.destroy();
    assert.equal(await stream.over, 'cut');
});

test('the stream of a write comes as it is sent, and is replayed as a whole', async () => {
    const body = order();
    const stream = await opened('sse/pay', body);
    const effect = stream.headers['semel-effect'];
    assert.match(effect, /^ef_/);
    assert.deepEqual(stream.headers['set-cookie'], ['a=b']);
    for (const text of ['one', 'two', 'three']) await event(body, stream, text);
    assert.equal((await gw.effect(effect)).state, 'running');
    answers.get(body.order_id).response.end();
    assert.equal(await stream.over, 'end');
    assert.equal((await gw.effect(effect)).state, 'succeeded', 'it is recorded when the client has its end');
    const again = await replay('sse/pay', body);
    assert.equal(again.status, 200);
    assert.equal(again.text, stream.text);
    assert.equal(again.headers['content-type'], 'text/event-stream');
    assert.equal(again.headers['x-request-id'], 'r-1');
    assert.equal(again.headers['set-cookie'], undefined);
    assert.equal(again.headers['idempotent-replayed'], 'true');
    assert.equal(again.headers['semel-effect'], effect);
    assert.equal(up.times(body.order_id), 1);
});

test('of two callers at once one gets the stream, the other one the recorded whole', async () => {
    const body = order();
    const stream = await opened('sse/pay', body);
    const others = Array.from({ length: 5 }, () => replay('sse/pay', body));
    await event(body, stream, 'one');
    await eventually('the others wait', async () => (await gw.metric(/^semel_.*(parked|waiting)/)) >= 5);
    await event(body, stream, 'two');
    answers.get(body.order_id).response.end('data: last\n\n');
    assert.equal(await stream.over, 'end');
    for (const other of await Promise.all(others)) {
        assert.equal(other.status, 200, other.text);
        assert.equal(other.text, stream.text);
        assert.equal(other.headers['idempotent-replayed'], 'true');
    }
    assert.equal(up.times(body.order_id), 1);
});

test('a write whose stream breaks off is in doubt, and its client sees that it is not whole', async () => {
    const body = order();
    const stream = await opened('sse/pay', body);
    await event(body, stream, 'one');
    const waits = replay('sse/pay', body);
    answers.get(body.order_id).response.destroy();
    assert.equal(await stream.over, 'cut');
    assertProblem(await waits, 409, 'IN_DOUBT');
    await recorded(stream.headers['semel-effect'], 'in_doubt');
    assertProblem(await replay('sse/pay', body), 409, 'IN_DOUBT');
    assert.equal(up.times(body.order_id), 1);
});

test('where the API takes a key, a repeat of what broke off is sent again with the same key, and streams', async () => {
    const body = order();
    const stream = await opened('keyed/pay', body);
    await event(body, stream, 'one');
    answers.get(body.order_id).response.destroy();
    assert.equal(await stream.over, 'cut');
    await recorded(stream.headers['semel-effect'], 'in_doubt');
    answers.delete(body.order_id);
    const again = await opened('keyed/pay', body);
    assert.equal(again.headers['semel-effect'], stream.headers['semel-effect']);
    for (const text of ['one', 'two']) await event(body, again, text);
    answers.get(body.order_id).response.end();
    assert.equal(await again.over, 'end');
    const keys = up.asked(body.order_id).map((entry) => entry.key);
    assert.equal(keys.length, 2);
    assert.equal(keys[0], keys[1]);
    assert.equal((await replay('keyed/pay', body)).text, again.text);
});

// By HTTP/1.0 an answer without a length ends with its connection.
test('a client of HTTP/1.0 sees that an answer is not whole', async () => {
    for (const path of ['llm/chat', 'sse/pay']) {
        const body = order();
        const text = JSON.stringify(body);
        const socket = net.connect(gw.port, '127.0.0.1');
        let came = '';
        socket.on('data', (piece) => (came += piece));
        const over = new Promise((resolve) => {
            socket.on('end', () => resolve('end'));
            socket.on('error', (error) => resolve(error.code));
        });
        socket.write(`POST /proxy/${path} HTTP/1.0\r\nAuthorization: Bearer ${gw.texts.agent}\r\n` +
            `Content-Type: application/json\r\nContent-Length: ${text.length}\r\n\r\n${text}`);
        const { response } = await upstreamOf(body);
        response.write('data: one\n\n');
        await eventually('the event has come', () => came.includes('data: one'));
        response.destroy();
        assert.equal(await over, 'ECONNRESET', path);
    }
});

test('a stream whose length is known ends when it is recorded, too', async () => {
    const body = order();
    const stream = await opened('sse/ok', body);
    assert.equal(stream.headers['content-length'], undefined);
    assert.equal(await stream.over, 'end');
    assert.equal((await gw.effect(stream.headers['semel-effect'])).state, 'succeeded');
    assert.equal((await replay('sse/ok', body)).text, stream.text);
});

test('the time of a stream is for silence, not for the whole', async () => {
    const body = order();
    const stream = await opened('brief/pay', body);
    const began = Date.now();
    for (let n = 0; Date.now() - began < 1000; n++) await event(body, stream, `${n}`); // longer than `timeout`
    assert.equal(await stream.over, 'cut', 'and then it falls silent');
    await recorded(stream.headers['semel-effect'], 'in_doubt');
});

test('a client that leaves does not stop a write: it is recorded as a whole', async () => {
    const body = order();
    const stream = await opened('sse/pay', body);
    const effect = stream.headers['semel-effect'];
    await event(body, stream, 'one');
    stream.leave();
    const { response } = answers.get(body.order_id);
    response.write('data: two\n\n');
    response.end('data: three\n\n');
    await recorded(effect, 'succeeded');
    const again = await replay('sse/pay', body);
    assert.equal(again.text, 'data: one\n\ndata: two\n\ndata: three\n\n');
    assert.equal(up.times(body.order_id), 1);
});

test('a client that leaves before the answer begins, or while it reads nothing, does not stop a write', async () => {
    const early = order();
    up.habit('late', async (upstream, entry, response) => {
        upstream.did(entry);
        await eventually('the client has left', () => answers.get(early.order_id) === 'gone');
        reply(response, 200, { late: true });
    });
    const own = new Client(gw.client.base, gw.texts.agent);
    const abort = new AbortController();
    const asking = own.post('/proxy/sse/late', early, { signal: abort.signal }).catch(() => 'left');
    await eventually('the upstream works', () => up.times(early.order_id) === 1);
    abort.abort();
    assert.equal(await asking, 'left');
    own.close();
    answers.set(early.order_id, 'gone');
    const late = await eventually('it is recorded', async () => {
        const answer = await replay('sse/late', early);
        return answer.status === 200 && answer;
    });
    assert.deepEqual(late.json, { late: true });

    const body = order();
    const size = LARGE;
    const stream = await open(`sse/flood/${size}`, body); // it is never read
    const flood = answers.get(body.order_id);
    await stalled(flood);
    assert.ok(flood.sent < size, `${flood.sent} bytes were taken from the upstream`);
    stream.leave();
    await recorded(stream.headers['semel-effect'], 'succeeded');
    assert.equal(flood.sent, size);
    assert.equal(up.times(body.order_id), 1);
});

// Nothing more is taken from the upstream.
async function stalled(flood) {
    let before = -1;
    let since = Date.now();
    await eventually('the upstream has to wait', () => {
        if (flood.sent !== before) [before, since] = [flood.sent, Date.now()];
        return Date.now() - since > 500;
    });
}

test('a client that reads slowly slows the upstream down; a large stream needs little memory', async () => {
    const before = await gw.memory();
    for (const path of ['llm/flood', 'sse/flood']) {
        const body = order();
        const stream = await open(`${path}/${LARGE}`, body);
        const flood = answers.get(body.order_id);
        await stalled(flood);
        assert.ok(flood.sent < LARGE / 2, `${path}: ${flood.sent} bytes were taken from the upstream`); // the kernel keeps many
        stream.read();
        assert.equal(await stream.over, 'end', path);
        assert.equal(stream.bytes, LARGE, path);
        await gw.assertGrown(before, 50 * MB, path);
        if (path.startsWith('sse')) {
            assert.equal((await gw.effect(stream.headers['semel-effect'])).outcome.bytes, LARGE);
            assertProblem(await replay(`${path}/${LARGE}`, body), 410, 'RESULT_EXPIRED');
        }
    }
});

test('with `stream`, what is refused is judged as ever; what may be tried again is', async () => {
    const refused = order();
    const answer = await replay('brief/refuse/402', refused);
    assert.equal(answer.status, 402, answer.text);
    assert.deepEqual(answer.json, { refused: true });
    up.habit('busy-once', (upstream, entry, response) =>
        upstream.asked(entry.order).length < 2 ? reply(response, 429, { busy: true }) : begin(upstream, entry, response));
    const body = order();
    const stream = await opened('brief/busy-once', body);
    await event(body, stream, 'one');
    answers.get(body.order_id).response.end();
    assert.equal(await stream.over, 'end');
    assert.equal(up.asked(body.order_id).length, 2);
    up.habit('nothing', (upstream, entry, response) => {
        upstream.did(entry);
        response.writeHead(204).end();
    });
    assert.equal((await replay('brief/nothing', order())).status, 204);
    const broken = order();
    for (let n = 0; n < 2; n++) assertProblem(await replay('brief/status/500', broken), 409, 'IN_DOUBT');
    assert.equal(up.times(broken.order_id), 1);
});

test('a gateway that is stopped lets a stream end; one that is killed leaves a doubt', async () => {
    const other = await Gateway.start(options);
    const body = order();
    const stream = await opened('sse/pay', body, other);
    await event(body, stream, 'one');
    const stopping = other.stop();
    await eventually('it drains', () => other.log.includes('draining:'));
    await event(body, stream, 'two');
    answers.get(body.order_id).response.end();
    assert.equal(await stream.over, 'end');
    assert.equal((await stopping).code, 0);

    await other.up();
    assert.equal((await replay('sse/pay', body, other)).text, 'data: one\n\ndata: two\n\n');
    const lost = order();
    const cut = await opened('sse/pay', lost, other);
    await event(lost, cut, 'one');
    await other.kill();
    assert.equal(await cut.over, 'cut');
    await other.up();
    assertProblem(await replay('sse/pay', lost, other), 409, 'IN_DOUBT');
    assert.equal(up.times(lost.order_id), 1);
});

test('a gateway whose time to drain is over cuts its streams, and what they wrote is in doubt', async () => {
    const other = await Gateway.start({ ...options, config: { ...options.config, drain: '200ms' } });
    const written = order();
    const read = order();
    const streams = [await opened('sse/pay', written, other), await opened('llm/chat', read, other)];
    await event(written, streams[0], 'one');
    await event(read, streams[1], 'one');
    assert.equal((await other.stop()).code, 0);
    for (const stream of streams) assert.equal(await stream.over, 'cut');
    await other.up();
    assertProblem(await replay('sse/pay', written, other), 409, 'IN_DOUBT');
    assert.equal(up.times(written.order_id), 1);
});

test('many streams at once, of which some are left and some break off: each is recorded as what it was', async () => {
    const kinds = ['whole', 'left', 'broken', 'unread'];
    const all = await Promise.all(Array.from({ length: 60 }, async (_, n) => {
        const body = order();
        const kind = kinds[n % kinds.length];
        const stream = await open(kind === 'unread' ? 'sse/flood/20000000' : 'sse/pay', body);
        assert.equal(stream.status, 200);
        return { body, kind, stream, effect: stream.headers['semel-effect'] };
    }));
    await Promise.all(all.map(async ({ body, kind, stream, effect }) => {
        if (kind !== 'unread') stream.read();
        if (kind === 'whole' || kind === 'broken') await event(body, stream, 'one');
        if (kind === 'left' || kind === 'unread') stream.leave();
        const { response } = answers.get(body.order_id);
        if (kind === 'broken') response.destroy();
        else if (kind !== 'unread') response.end('data: last\n\n');
        if (kind === 'whole' || kind === 'broken') assert.equal(await stream.over, kind === 'whole' ? 'end' : 'cut');
        await recorded(effect, kind === 'broken' ? 'in_doubt' : 'succeeded');
        assert.equal(up.times(body.order_id), 1);
    }));
    await eventually('nothing is under way', async () =>
        (await gw.metric(/^semel_runs_in_flight|^semel_upstream_exchanges_in_flight/)) === 0);
});

test('a stream that cannot be recorded has been passed on: the log tells, and it is recorded later', async () => {
    const other = await Gateway.start(options);
    const file = path.join(other.directory, 'ledger.db');
    const body = order();
    const stream = await opened('sse/pay', body, other);
    const effect = stream.headers['semel-effect'];
    await event(body, stream, 'one');
    fs.renameSync(file, `${file}.x`);
    answers.get(body.order_id).response.end();
    assert.equal(await stream.over, 'end');
    await eventually('the log tells', () => other.log.split('\n').some((line) =>
        line.includes('"level":"error"') && line.includes('could not be recorded yet') && line.includes(effect)));
    const doubtful = await replay('sse/pay', body, other);
    assert.equal(doubtful.text, stream.text);
    assert.equal(doubtful.headers['semel-doubt'], 'unrecorded');
    fs.renameSync(`${file}.x`, file);
    await other.state(effect, 'succeeded');
    const again = await replay('sse/pay', body, other);
    assert.equal(again.text, stream.text);
    assert.equal(again.headers['semel-doubt'], undefined);
    assert.equal(up.times(body.order_id), 1);
});

await run();
