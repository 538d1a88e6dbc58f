// /proxy/NAME/...: an API behind the ledger. Unsafe methods run once, safe ones pass.

import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import tls from 'node:tls';
import { Client, Raw, bytesOf } from './client.mjs';
import { Gateway, assert, assertProblem, certificate, freePort } from './harness.mjs';
import { newOrder } from './shop.mjs';
import { eventually, later, run, sleep, test } from './tap.mjs';
import { Upstream, reply } from './upstream.mjs';

const up = await Upstream.start();
const deadPort = await freePort();
const secret = 'sk_proxy_secret';

up.habit('v1', (upstream, entry, response) => {
    const { habits } = upstream;
    return (habits.get(entry.path.split('/')[3]) ?? habits.get('ok'))(upstream, entry, response);
});
up.habit('pieces', async (upstream, entry, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (let n = 0; n < 5; n++) {
        response.write(`data: ${n}\n\n`);
        await sleep(150);
    }
    response.end();
});
up.habit('large', (upstream, entry, response) => {
    const piece = Buffer.alloc(64 * 1024, 'y');
    let left = 800; // 50 MB
    response.writeHead(200, { 'content-type': 'application/octet-stream' });
    const more = () => {
        while (left-- > 0) if (!response.write(piece)) return response.once('drain', more);
        response.end();
    };
    more();
});
up.habit('cookie', (upstream, entry, response) => {
    upstream.did(entry);
    reply(response, 200, { ok: true }, { 'set-cookie': 'a=b', 'x-request-id': 'r1', etag: '"e"' });
});
// It goes away in the middle of its first twelve answers.
up.habit('loses', (upstream, entry, response) => {
    if (upstream.seen.filter((one) => one.path === entry.path).length > 12) {
        upstream.did(entry);
        reply(response, 200, { ok: true });
    } else {
        response.destroy();
    }
});
// Does the work and loses the answer; then it is closed until its key is forgotten.
up.habit('once-shut', (upstream, entry, response) => {
    if (upstream.asked(entry.order).length === 1) return upstream.habits.get('reset-after')(upstream, entry, response);
    reply(response, 503, { shut: true }, { 'retry-after': '10' });
});
up.habit('slow', async (upstream, entry, response) => {
    upstream.did(entry);
    await sleep(400);
    reply(response, 200, { serial: entry.serial });
});

const gw = await Gateway.start({
    env: { PROXY_SECRET: secret },
    config: {
        origins: ['https://console.example'],
        proxies: {
            api: { url: up.url, timeout: '3s' },
            based: { url: `${up.url}/v1/base`, headers: { Authorization: 'Bearer ${PROXY_SECRET}' } },
            keyed: { url: up.url, idempotency: { header: 'Idempotency-Key', window: '24h' } },
            brief: {
                url: up.url, idempotency: { header: 'Idempotency-Key', window: '4s' },
                retry: { attempts: 4, backoff: '50ms', max_backoff: '200ms' },
            },
            named: { url: up.url, idempotency: { header: 'X-Request-Key', window: '24h' } },
            dead: { url: `http://127.0.0.1:${deadPort}` },
        },
    },
});

const order = () => ({ order_id: newOrder() });
const post = (path, body, headers = {}, who = gw.agent) =>
    who.post(`/proxy/api${path}`, body, { headers });

test('a POST runs once; its repeat is replayed byte for byte', async () => {
    const body = order();
    const first = await post('/created/orders', body);
    assert.equal(first.status, 201, first.text);
    assert.equal(first.headers['idempotent-replayed'], undefined);
    assert.match(first.headers['semel-effect'], /^ef_/);
    const again = await post('/created/orders', body);
    assert.equal(again.status, 201);
    assert.equal(again.headers['idempotent-replayed'], 'true');
    assert.deepEqual(again.body, first.body);
    assert.equal(again.headers.location, first.headers.location);
    assert.equal(again.headers['content-type'], first.headers['content-type']);
    assert.equal(again.headers['set-cookie'], undefined);
    assert.equal(up.times(body.order_id), 1);
});

test('every unsafe method runs once', async () => {
    for (const method of ['POST', 'PUT', 'PATCH', 'DELETE']) {
        const body = order();
        const path = `/proxy/api/ok/${method}?order_id=${body.order_id}`;
        const first = await gw.agent.request(method, path, method === 'DELETE' ? undefined : body);
        const again = await gw.agent.request(method, path, method === 'DELETE' ? undefined : body);
        assert.equal(first.status, 200, first.text);
        assert.deepEqual(again.body, first.body);
        assert.equal(again.headers['idempotent-replayed'], 'true', method);
        assert.equal(up.times(body.order_id), 1, method);
        assert.equal(up.asked(body.order_id)[0].method, method);
    }
});

test('safe methods pass every time', async () => {
    for (const method of ['GET', 'HEAD', 'OPTIONS']) {
        const before = up.seen.length;
        for (let n = 0; n < 3; n++) {
            const answer = await gw.agent.request(method, '/proxy/api/find?order_id=none');
            assert.equal(answer.status, 200, method);
            assert.equal(answer.headers['idempotent-replayed'], undefined);
        }
        assert.equal(up.seen.length, before + 3, method);
        assert.equal(up.seen.at(-1).method, method);
    }
});

test("a client's key, quoted and bare, is the identity; another body under it is 422", async () => {
    const body = order();
    const key = `key-${body.order_id}`;
    const first = await post('/ok', body, { 'idempotency-key': key });
    assert.equal(first.status, 200, first.text);
    const quoted = await post('/ok', body, { 'idempotency-key': `"${key}"` });
    assert.deepEqual(quoted.body, first.body);
    assert.equal(quoted.headers['idempotent-replayed'], 'true');
    const other = await post('/ok', order(), { 'idempotency-key': key });
    assertProblem(other, 422, 'KEY_CONFLICT');
    const elsewhere = await post('/ok/elsewhere', body, { 'idempotency-key': key });
    assertProblem(elsewhere, 422, 'KEY_CONFLICT');
    const fresh = await post('/ok', body, { 'idempotency-key': `${key}-2` });
    assert.equal(fresh.headers['idempotent-replayed'], undefined);
    assert.equal(up.times(body.order_id), 2);
});

test('without a key: method, path, query and canonical body are the identity', async () => {
    const id = newOrder();
    const headers = { 'content-type': 'application/json' };
    const send = (path, text, more = {}) =>
        gw.agent.request(more.method ?? 'POST', `/proxy/api${path}`, text, { headers: { ...headers, ...more.headers } });
    await send('/ok/a', `{"order_id":"${id}","n":1}`);
    const equal = await send('/ok/a', `{ "n": 1.0, "order_id": "${id}" }`);
    assert.equal(equal.headers['idempotent-replayed'], 'true', 'the order of names is nothing');
    await send('/ok/b', `{"order_id":"${id}","n":1}`);
    await send('/ok/a?x=1', `{"order_id":"${id}","n":1}`);
    await send('/ok/a', `{"order_id":"${id}","n":2}`);
    await send('/ok/a', `{"order_id":"${id}","n":1}`, { method: 'PUT' });
    assert.equal(up.times(id), 5);
    const bytes = Buffer.from([0, 1, 255, 254]);
    const before = up.seen.length;
    const types = { headers: { 'content-type': 'application/octet-stream' } };
    await send('/ok/bytes', bytes, types);
    assert.equal((await send('/ok/bytes', bytes, types)).headers['idempotent-replayed'], 'true');
    await send('/ok/bytes', Buffer.from([0, 1, 255, 253]), types);
    assert.equal(up.seen.length, before + 2);
});

test('the bytes of the body and of the path arrive as they were sent', async () => {
    const text = `{ "b" : 1.0,\n "a" : "\\u00fc", "order_id":"${newOrder()}" }`;
    const answer = await gw.agent.request('POST', '/proxy/api/echo/a%2Fb%20c;d=1?x=%41&y=+&z', text);
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.json.body, text);
    assert.equal(answer.json.raw, '/echo/a%2Fb%20c;d=1?x=%41&y=+&z');
});

test('a base path, and no way out of it', async () => {
    const good = await gw.agent.post('/proxy/based/echo', order());
    assert.equal(good.json.raw, '/v1/base/echo', good.text);
    for (const path of ['/proxy/based/../../ok', '/proxy/based/%2e%2e/%2e%2e/ok', '/proxy/based/a/../../../ok',
        '/proxy/based/..%2fok', '/proxy/based/a%2f..%2f..%5cok', '/proxy/based/..;x/ok', '/proxy/based/.%2e/ok',
        '/proxy/based/%252e%252E/ok', '/proxy/based/..%252fok', '/proxy/based/a%25252f.%25252e', '/proxy/based/..%00/ok', '/proxy/based/..%3Fx/ok',
        '/proxy/based/..%23/ok', '/proxy/based/..%20/ok', '/proxy/based/a%00b', '/proxy/based/%C0%AE%c0%ae/ok', '/proxy/based/..%c0%af..%25c0%25afok',
        '/proxy/based/..%e0%80%afok', '/proxy/based/%F0%80%80%AE./ok', '/proxy/based/%u002e%u002e/ok', '/proxy/based/.%25u002E/ok', '/proxy/based//evil.example/']) {
        const raw = await Raw.connect(gw.port);
        raw.write(bytesOf('GET', path, { Authorization: `Bearer ${gw.texts.agent}` }));
        const status = await raw.status();
        raw.hangUp();
        if (path.endsWith('//evil.example/')) assert.equal(up.seen.at(-1).raw, '/v1/base//evil.example/');
        else assert.equal(status, 400, path);
    }
});

test('TRACE, which gives back what was sent, is not passed on', async () => {
    const before = up.seen.length;
    const raw = await Raw.connect(gw.port);
    raw.write(bytesOf('TRACE', '/proxy/based/echo', { Authorization: `Bearer ${gw.texts.agent}` }));
    assert.equal(await raw.status(), 405);
    raw.hangUp();
    assert.equal(up.seen.length, before);
});

test('headers: the upstream gets its own, never ours', async () => {
    const headers = {
        'x-custom': 'kept', 'accept-language': 'la', 'semel-scope': 'shop/x', cookie: 'c=1',
        connection: 'keep-alive,\tx-hop , x-other', 'x-hop': 'gone', 'x-other': 'gone', te: 'trailers', 'proxy-authorization': 'gone',
    };
    const answer = await gw.agent.post('/proxy/based/echo', order(), { headers });
    const seen = answer.json.headers;
    assert.equal(seen.authorization, `Bearer ${secret}`, 'the configured one wins');
    assert.equal(seen['x-custom'], 'kept');
    assert.equal(seen.host, `127.0.0.1:${up.port}`);
    for (const name of ['x-hop', 'x-other', 'te', 'proxy-authorization', 'semel-scope', 'semel-token'])
        assert.equal(seen[name], undefined, name);
    const text = JSON.stringify(seen);
    assert.ok(!text.includes(gw.texts.agent), 'our token stays here');
});

test("with Semel-Token, Authorization is the upstream's", async () => {
    const headers = { 'semel-token': gw.texts.agent, authorization: 'Bearer theirs' };
    const answer = await gw.client.post('/proxy/api/echo', order(), { headers });
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.json.headers.authorization, 'Bearer theirs');
    assert.equal(answer.json.headers['semel-token'], undefined);
    const own = await gw.agent.post('/proxy/api/echo', order());
    assert.ok(!JSON.stringify(own.json.headers).includes(gw.texts.agent), 'else it is ours and stays');
});

test('cookies of an answer are not replayed', async () => {
    const body = order();
    await post('/cookie', body);
    const again = await post('/cookie', body);
    assert.equal(again.headers['idempotent-replayed'], 'true');
    assert.equal(again.headers['set-cookie'], undefined);
});

test('statuses pass: what was rejected, and what is in doubt', async () => {
    const rejected = await post('/refuse/422', order());
    assert.equal(rejected.status, 422);
    assert.deepEqual(rejected.json, { refused: true });
    const body = order();
    for (let n = 0; n < 3; n++) assertProblem(await post('/status/500', body), 409, 'IN_DOUBT');
    assert.equal(up.times(body.order_id), 1);
    const lost = order();
    for (let n = 0; n < 3; n++) assertProblem(await post('/reset-after', lost), 409, 'IN_DOUBT');
    assert.equal(up.times(lost.order_id), 1);
    assertProblem(await gw.agent.post('/proxy/dead/x', order()), 502, 'UPSTREAM_FAILED');
    assertProblem(await gw.agent.get('/proxy/dead/x'), 502, 'UPSTREAM_FAILED');
    assert.equal((await gw.agent.get('/proxy/api/refuse/418')).status, 418);
});

test('the declared key header carries a key of ours that is the same on a repeat', async () => {
    const body = order();
    await gw.agent.post('/proxy/keyed/once', body);
    const seen = up.work.at(-1);
    assert.match(seen.key, /^[A-Za-z0-9_-]{43}$/);
});

test('an API that loses its answers for a while is asked by each repeat, with the same key', async () => {
    const body = order();
    const send = () => gw.agent.post('/proxy/keyed/loses', body);
    const answers = [];
    do answers.push((await send()).status);
    while (answers.at(-1) !== 200 && answers.length < 20);
    assert.equal(answers.at(-1), 200, answers);
    const asked = up.seen.filter((one) => one.path === '/loses');
    assert.ok(asked.length > 12, `${asked.length}`);
    assert.equal(new Set(asked.map((one) => one.headers['idempotency-key'])).size, 1);
    assert.equal((await send()).headers['idempotent-replayed'], 'true');
});

test('an API that says to come back when its key is forgotten is not sent a repeat then', async () => {
    const body = order();
    const send = () => gw.agent.post('/proxy/brief/once-shut', body);
    await send();
    const asked = up.asked(body.order_id);
    await eventually('it is held for a person, or sent too late', async () =>
        (await send()).json.code === 'IN_DOUBT' || asked.some((one) => one.at - asked[0].at >= 10_000));
    // The key is kept for 4 s, and Retry-After is 10 s. What is sent within the 4 s may be late on a busy machine.
    assert.deepEqual(asked.map((one) => one.at - asked[0].at).filter((ms) => ms >= 10_000), []);
    assert.equal(up.times(body.order_id), 1);
});

test('an API that has moved is not sent what the old one may have done', async () => {
    const keyed = { idempotency: { header: 'Idempotency-Key', window: '24h' } };
    const moving = new Gateway({ config: { proxies: { keyed } } });
    const body = order();
    const sendTo = async (base) => {
        keyed.url = `${up.url}${base}`;
        await moving.up();
        const answer = await moving.agent.post('/proxy/keyed/pay', body);
        assert.equal((await moving.stop()).code, 0);
        return answer;
    };
    const { effect } = assertProblem(await sendTo('/once-lost'), 504, 'UPSTREAM_TIMEOUT');
    assert.equal(assertProblem(await sendTo('/ok'), 504, 'UPSTREAM_TIMEOUT').effect, effect);
    assert.deepEqual(up.asked(body.order_id).map((one) => one.path), ['/once-lost/pay']);
    assert.equal((await sendTo('/once-lost')).status, 200, 'the old one knows its key');
    assert.equal(up.times(body.order_id), 1);
});

// The values of one header as the upstream got them, in any spelling of servers that take _ for -.
const valuesOf = (entry, name) => entry.rawHeaders.filter((_, i) => i % 2 === 1 && entry.rawHeaders[i - 1].toLowerCase().replaceAll('_', '-') === name);

test('headers that are there several times keep their order', async () => {
    const headers = { 'x-list': ['c', 'a', 'b', 'a'], 'accept-language': ['la', 'de'] };
    for (const method of ['GET', 'POST']) {
        const body = method === 'POST' ? order() : undefined;
        assert.equal((await gw.agent.request(method, '/proxy/api/once', body, { headers })).status, 200);
        const entry = up.seen.at(-1);
        assert.deepEqual(valuesOf(entry, 'x-list'), ['c', 'a', 'b', 'a'], method);
        assert.deepEqual(valuesOf(entry, 'accept-language'), ['la', 'de'], method);
    }
});

test('a configured header takes the place of all that the client sends for it', async () => {
    const headers = { 'x-request-key': ['mine', 'mine too'], 'X_Request_Key': 'mine as well', Authorization_: 'x' };
    assert.equal((await gw.agent.post('/proxy/named/once', order(), { headers })).status, 200);
    const keys = valuesOf(up.seen.at(-1), 'x-request-key');
    assert.equal(keys.length, 1, keys);
    assert.match(keys[0], /^"?[A-Za-z0-9_-]{43}"?$/);
    await gw.agent.post('/proxy/named/once', order(), { headers: { 'X.Request!Key': 'mine' } });
    assert.ok(!up.seen.at(-1).rawHeaders.includes('mine'), up.seen.at(-1).rawHeaders);
    await gw.agent.post('/proxy/based/once', order(), { headers: { Authorization_X: 'kept', AUTHORIZATION: `Bearer ${gw.texts.agent}` } });
    assert.deepEqual(valuesOf(up.seen.at(-1), 'authorization'), [`Bearer ${secret}`]);
});

test('a body that is labelled as another encoding counts by its bytes: its value is not ours to read', async () => {
    const { order_id } = order();
    const bodies = [`{"order_id":"${order_id}","n":1}`, `{ "n":1, "order_id":"${order_id}"}`];
    const times = async (path, headers) => {
        const before = up.seen.length;
        for (const body of bodies) await gw.agent.post(`/proxy/api/once/${path}`, body, { headers });
        return up.seen.length - before;
    };
    assert.equal(await times('a', { 'content-type': 'application/json; charset=utf-8' }), 1);
    assert.equal(await times('b', { 'content-type': 'application/json; charset=utf-7' }), 2);
    assert.equal(await times('c', { 'content-type': 'application/json; charset = utf-7' }), 2);
    assert.equal(await times('d', { 'content-encoding': 'x-other' }), 2);
});

test('a header that decides something is refused in a spelling that only some servers read', async () => {
    const before = up.seen.length;
    const names = ['Content_Type', 'content.type', 'Content_Encoding', 'Content_Length', 'Transfer_Encoding', 'Idempotency_Key',
        'Idempotency!Key', 'Last_Event_ID', 'Mcp_Session_Id', 'Mcp-Session_Id', 'Mcp_Anything', 'Semel_Scope', 'Semel_Token'];
    for (const name of names)
        for (const method of ['GET', 'POST']) {
            const answer = await gw.agent.request(method, '/proxy/api/once', method === 'POST' ? order() : undefined, { headers: { [name]: 'x' } });
            assertProblem(answer, 400, 'BAD_ARGUMENTS', /spell/);
        }
    assert.equal(up.seen.length, before);
    await gw.agent.get('/proxy/api/once', { headers: { X_Plain: 'kept' } });
    assert.ok(up.seen.at(-1).rawHeaders.includes('X_Plain'), 'other headers keep their names');
});

test('a header that asks for another path, or makes a write of a read, is refused: nothing would record it', async () => {
    const before = up.seen.length;
    const paths = ['X-Original-URL', 'X-Rewrite-URL', 'x_rewrite_url'];
    const methods = ['X-HTTP-Method-Override', 'X-HTTP-Method', 'x-method-override', 'X-Original-Method', 'X_HTTP_METHOD_OVERRIDE'];
    for (const [method, names] of [['GET', [...paths, ...methods]], ['OPTIONS', methods], ['POST', paths]])
        for (const name of names) {
            const body = method === 'POST' ? order() : undefined;
            assertProblem(await gw.agent.request(method, '/proxy/api/once', body, { headers: { [name]: 'DELETE' } }), 400, 'BAD_ARGUMENTS');
        }
    assert.equal(up.seen.length, before);
});

test('equal requests at once: one runs, all are answered alike or told to come back', async () => {
    const body = order();
    const answers = await Promise.all(Array.from({ length: 50 }, () => post('/slow', body)));
    assert.equal(up.times(body.order_id), 1);
    const good = answers.filter((one) => one.status === 200);
    assert.ok(good.length >= 1);
    assert.equal(new Set(good.map((one) => one.text)).size, 1);
    for (const one of answers.filter((answer) => answer.status !== 200)) {
        assertProblem(one, 409, 'RETRY_IN_FLIGHT');
        assert.ok(one.headers['retry-after']);
    }
});

test('a client that hangs up does not cancel a write: the retry gets the result', async () => {
    const body = order();
    const abort = new AbortController();
    const own = new Client(gw.client.base, gw.texts.agent);
    const first = own.post('/proxy/api/slow', body, { signal: abort.signal }).catch((error) => error.name);
    await eventually('the upstream works', () => up.times(body.order_id) === 1);
    abort.abort();
    await first;
    own.close();
    const again = await eventually('it is recorded', async () => {
        const answer = await post('/slow', body);
        return answer.status === 200 && answer;
    });
    assert.equal(again.headers['idempotent-replayed'], 'true');
    assert.equal(up.times(body.order_id), 1);
});

test('a read streams: its pieces come when they are sent', async () => {
    const times = [];
    await new Promise((resolve, reject) => {
        const request = http.get({
            host: '127.0.0.1', port: gw.port, path: '/proxy/api/pieces',
            headers: { authorization: `Bearer ${gw.texts.agent}` },
        }, (response) => {
            response.on('data', () => times.push(Date.now()));
            response.on('end', resolve);
        });
        request.on('error', reject);
    });
    assert.ok(times.length >= 4, `${times.length} pieces`);
    assert.ok(times.at(-1) - times[0] > 300, 'not all at the end');
});

test('a large read passes in bounded memory, also to one who reads slowly', async () => {
    const count = (path, pauseMs) => new Promise((resolve, reject) => {
        let bytes = 0;
        http.get({
            host: '127.0.0.1', port: gw.port, path, agent: false,
            headers: { authorization: `Bearer ${gw.texts.agent}` },
        }, async (response) => {
            for await (const piece of response) {
                bytes += piece.length;
                if (pauseMs && bytes < 2_000_000) await sleep(pauseMs);
            }
            resolve(bytes);
        }).on('error', reject);
    });
    const before = await gw.memory();
    const sizes = await Promise.all([count('/proxy/api/large', 0), count('/proxy/api/large', 5)]);
    assert.deepEqual(sizes, [800 * 65536, 800 * 65536]);
    await gw.assertGrown(before, 20e6);
});

test('a reader who hangs up ends the read', async () => {
    const raw = await Raw.connect(gw.port);
    raw.write(bytesOf('GET', '/proxy/api/large', { Authorization: `Bearer ${gw.texts.agent}` }));
    await raw.status();
    raw.hangUp();
    await eventually('nothing is under way', async () => {
        const sockets = [...up.sockets].filter((one) => one.writableLength > 0);
        return sockets.length === 0;
    });
});

test('who may not, may not here either', async () => {
    assertProblem(await gw.client.post('/proxy/api/ok', order()), 401, 'UNAUTHENTICATED');
    assertProblem(await gw.approver.post('/proxy/api/ok', order()), 403, 'NOT_ALLOWED');
    assert.equal((await gw.agent.get('/proxy/none/x')).status, 404);
    assert.equal((await gw.agent.get('/proxy/')).status, 404);
    const foreign = await post('/ok', order(), { 'semel-scope': 'other/1' });
    assert.equal(foreign.status, 403, foreign.text);
});

test('what one tenant did is not replayed to another', async () => {
    const body = order();
    const first = await post('/ok', body);
    const other = await post('/ok', body, {}, gw.stranger);
    assert.equal(other.status, 200, other.text);
    assert.equal(other.headers['idempotent-replayed'], undefined);
    assert.notDeepEqual(other.body, first.body);
});

up.habit('headers', (upstream, entry, response) => {
    upstream.did(entry);
    const headers = { etag: '"e"', location: '/here' };
    for (let n = 0; n < 12; n++) headers[`x-long-${n}`] = 'v'.repeat(900);
    reply(response, 200, { ok: true }, { ...headers, 'access-control-allow-origin': '*' });
});

test("an upstream's answer with very many headers loses the longest, and is given", async () => {
    const body = order();
    for (const answer of [
        await gw.agent.get('/proxy/api/headers'),
        await gw.agent.request('HEAD', '/proxy/api/headers'),
        await post('/headers', body),
        await post('/headers', body),
    ]) {
        assert.equal(answer.status, 200, answer.text);
        assert.equal(answer.headers.etag, '"e"');
    }
    const passed = await gw.agent.get('/proxy/api/headers', { headers: { 'x-own': 'o'.repeat(4500) } });
    assert.equal(passed.status, 200, 'even if the request has a long head');
    assert.equal(passed.headers.location, '/proxy/api/here');
    assert.ok(Object.keys(passed.headers).filter((name) => name.startsWith('x-long')).length < 5);
});

test('a preflight for a listed page is answered here, another OPTIONS passes', async () => {
    const origin = 'https://console.example';
    const headers = { origin, 'access-control-request-method': 'PUT' };
    const before = up.seen.length;
    const asked = await gw.client.request('OPTIONS', '/proxy/api/ok', undefined, { headers });
    assert.equal(asked.status, 204, asked.text);
    assert.equal(up.seen.length, before, 'the upstream is not asked');
    const passed = await gw.agent.request('OPTIONS', '/proxy/api/ok', undefined, { headers: { origin } });
    assert.equal(passed.status, 200, passed.text);
    assert.equal(up.seen.length, before + 1);
    const got = await gw.agent.get('/proxy/api/headers', { headers: { origin } });
    assert.equal(got.headers['access-control-allow-origin'], origin, 'ours, and not the upstream\'s beside it');
});

// An API that sends bytes which belong to no answer: they look like one. Through TLS, if it has a certificate.
async function stray(secured = null) {
    const sent = { more: 0, connections: 0 };
    const evil = 'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL';
    const kinds = {
        none: (socket) => { socket.write(`HTTP/1.1 204 No Content\r\nContent-Length: ${evil.length}\r\n\r\n`); socket.write(evil); },
        more: (socket) => { socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'); setImmediate(() => socket.write(evil, () => sent.more++)); },
        HEAD: (socket) => { socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${evil.length}\r\n\r\n`); setImmediate(() => socket.write(evil)); },
        // The answer's end and the bytes beyond it are one record of TLS.
        rest: (socket) => { socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n'); socket.write(`ok${evil}`); },
        chunks: (socket) => { socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'); socket.write(`2\r\nok\r\n0\r\n\r\n${evil}`); },
        lengths: (socket) => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\nokok'),
        list: (socket) => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2, 4\r\n\r\nokok'),
        twice: (socket) => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\ngood'),
        good: (socket) => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood'),
    };
    const serve = (socket) => {
        let text = '';
        sent.connections++;
        socket.setNoDelay(true); // what is sent is there
        socket.on('error', () => {});
        socket.on('data', (piece) => {
            text += piece;
            for (let end = text.indexOf('\r\n\r\n'); end >= 0; end = text.indexOf('\r\n\r\n')) {
                const head = text.slice(0, end);
                const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
                if (text.length < end + 4 + length) return;
                text = text.slice(end + 4 + length);
                const kind = head.startsWith('HEAD') ? 'HEAD' : head.split(' ')[1].split('/')[1];
                kinds[kind](socket);
            }
        });
    };
    const pair = secured && { key: fs.readFileSync(secured.key), cert: fs.readFileSync(secured.certificate) };
    const server = secured ? tls.createServer(pair, serve) : net.createServer(serve);
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    later(() => new Promise((resolve) => server.close(resolve)));
    return { port: server.address().port, sent };
}

test('an answer that names several lengths is a broken one: a write is in doubt', async () => {
    const { port } = await stray();
    const other = await Gateway.start({ config: { proxies: { raw: { url: `http://127.0.0.1:${port}` } } } });
    const headers = { 'semel-scope': 'shop/1' };
    for (const kind of ['lengths', 'list']) {
        assertProblem(await other.agent.get(`/proxy/raw/${kind}`), 502, 'UPSTREAM_FAILED', /several lengths/);
        assertProblem(await other.agent.post(`/proxy/raw/${kind}`, {}, { headers }), 409, 'IN_DOUBT');
    }
    assert.equal((await other.agent.get('/proxy/raw/twice')).text, 'good');
    assert.equal((await other.agent.post('/proxy/raw/twice', {}, { headers })).text, 'good');
    await other.stop();
});

for (const secured of [null, certificate()])
    test(`bytes that an API sends beyond its answer never become the answer of another request${secured ? ', through TLS' : ''}`, async () => {
        const { port, sent } = await stray(secured);
        const raw = { url: `${secured ? 'https' : 'http'}://127.0.0.1:${port}` };
        const other = await Gateway.start({ config: { proxies: { raw }, ...(secured ? { ca_file: secured.certificate } : {}) } });
        const headers = { 'semel-scope': 'shop/1' };
        for (let n = 0; n < 10; n++)
            for (const [method, kind] of [['POST', 'none'], ['POST', 'more'], ['HEAD', 'good'], ['GET', 'none'], ['POST', 'rest'], ['GET', 'rest'], ['POST', 'chunks'], ['GET', 'chunks']]) {
                await other.agent.request(method, `/proxy/raw/${kind}/${n}`, method === 'POST' ? { n } : undefined, { headers });
                if (kind === 'more') await eventually('the bytes are there', () => sent.more === n + 1);
                for (let again = 0; again < 2; again++) {
                    const answer = await other.agent.post(`/proxy/raw/good/${method}${kind}`, { n }, { headers });
                    assert.equal(answer.status, 200, answer.text);
                    assert.equal(answer.text, 'good', `${method} ${kind} ${n} ${again}`);
                }
            }
        const before = sent.connections;
        for (let n = 0; n < 200; n++) assert.equal((await other.agent.get(`/proxy/raw/good/${n}`)).text, 'good');
        assert.ok(sent.connections <= before + 1, `${sent.connections - before} connections for 200 requests`);
        await other.stop();
    });

await run();
