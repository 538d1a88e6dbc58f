// What a client of an API behind the gateway gets: refusals that an SDK takes for refusals, and the
// headers of the upstream's answer.

import { Client, Raw, bytesOf } from './client.mjs';
import { Gateway, assert, assertProblem, freePort } from './harness.mjs';
import { newOrder } from './shop.mjs';
import { run, test } from './tap.mjs';
import { Upstream, reply } from './upstream.mjs';

const up = await Upstream.start();
const deadPort = await freePort();
const ownPort = await freePort();
const gw = await Gateway.start({
    contract: {
        version: 1,
        tools: {
            'proxy.careful': { class: 'irreversible', approval: { quorum: 1 } },
            'proxy.hasty': { class: 'write', approval: { quorum: 1 } },
            'proxy.api': { class: 'write', window: '1h' },
            'proxy.read': { class: 'read' },
            'proxy.picky': { class: 'write', input: { type: 'object', required: ['body'] } },
            get: { class: 'read', upstream: { method: 'POST', url: `${up.url}/{habit}/{order_id}` } },
            get_late: { class: 'read', upstream: { method: 'POST', url: `${up.url}/hang`, timeout: '200ms' } },
        },
    },
    config: {
        limits: { waiting: 4 }, // one for each token
        proxies: {
            api: { url: up.url, timeout: '1s' },
            careful: { url: up.url, listen: `127.0.0.1:${ownPort}` },
            picky: { url: up.url },
            hasty: { url: up.url, timeout: '500ms' },
            read: { url: up.url, timeout: '500ms' },
            dead: { url: `http://127.0.0.1:${deadPort}` },
        },
    },
});

const order = () => ({ order_id: newOrder() });
const post = (path, body, headers = {}) => gw.agent.post(`/proxy/${path}`, body, { headers });

// A problem that an SDK of the API understands, too.
function assertForeign(answer, status, code, type = 'semel_error') {
    const problem = assertProblem(answer, status, code);
    assert.equal(problem.error.type, type);
    assert.equal(problem.error.code, code);
    assert.ok(problem.error.message.startsWith(problem.message), answer.text);
    if (problem.corrective_action) assert.ok(problem.error.message.endsWith(problem.corrective_action), answer.text);
    return problem;
}

test('nothing that was not done has a status of success, and every refusal has an error object', async () => {
    const asked = order();
    // One of them has the place to wait, the other one is told at once.
    const [first, second] = [post('careful/ok', asked), post('careful/ok', asked)];
    const waits = assertForeign(await Promise.race([first, second]), 403, 'AWAITING_APPROVAL');
    assert.equal(up.times(asked.order_id), 0);
    const done = await gw.approver.post(`/v1/effects/${waits.effect}/approve`, { request: waits.request });
    assert.equal(done.status, 200, done.text);
    assert.deepEqual((await Promise.all([first, second])).map((one) => one.status).sort(), [200, 403]);
    assert.equal(up.times(asked.order_id), 1);

    const key = { 'idempotency-key': newOrder() };
    assert.equal((await post('api/ok', order(), key)).status, 200);
    assertForeign(await post('api/ok', order(), key), 422, 'KEY_CONFLICT', 'idempotency_error');

    const lost = order();
    assertForeign(await post('api/reset-after', lost), 409, 'IN_DOUBT');
    const large = order();
    assert.equal((await post('api/huge/2000000', large)).status, 200);
    assertForeign(await post('api/huge/2000000', large), 410, 'RESULT_EXPIRED');
    assertForeign(await post('dead/x', order()), 502, 'UPSTREAM_FAILED');
    assertForeign(await gw.agent.get('/proxy/dead/x'), 502, 'UPSTREAM_FAILED');
    assertForeign(await gw.client.post('/proxy/api/ok', order()), 401, 'UNAUTHENTICATED');
    assertForeign(await gw.approver.post('/proxy/api/ok', order()), 403, 'NOT_ALLOWED');
    assertForeign(await post('none/ok', order()), 404, 'NO_ROUTE');
    assertForeign(await post('api/ok', order(), { 'semel-scope': 'other/1' }), 403, 'FORBIDDEN');
    assertForeign(await gw.agent.post('/proxy/picky/ok'), 400, 'BAD_ARGUMENTS');
    assertForeign(await post('api/ok', order(), { content_type: 'x' }), 400, 'BAD_ARGUMENTS');
    assertForeign(await gw.agent.get('/proxy/api/ok', { headers: { origin: 'https://evil.example' } }), 403, 'NOT_ALLOWED');
});

test('a client of an API that does not accept problems gets application/json', async () => {
    const typeFor = async (accept) => {
        const answer = await post('api/reset-after', order(), { accept });
        assert.deepEqual([answer.status, answer.json.code], [409, 'IN_DOUBT'], answer.text);
        return answer.headers['content-type'];
    };
    for (const accept of ['application/json', 'application/vnd.github.v3+json', 'text/html, application/xml;q=0.9'])
        assert.equal(await typeFor(accept), 'application/json', accept);
    for (const accept of ['*/*', 'application/*', 'text/html, */*;q=0.8', 'application/json, application/problem+json'])
        assert.equal(await typeFor(accept), 'application/problem+json', accept);
    const { headers } = await gw.client.get('/v1/effects', { headers: { accept: 'application/json' } });
    assert.equal(headers['content-type'], 'application/problem+json', 'of the gateway itself');
});

test("at a proxy's own address refusals are the same", async () => {
    const own = new Client({ host: '127.0.0.1', port: ownPort });
    assertForeign(await own.post('/v1/call', order()), 401, 'UNAUTHENTICATED');
    const headers = { 'semel-token': gw.texts.agent };
    const asked = order();
    const both = [own.post('/ok', asked, { headers }), own.post('/ok', asked, { headers })];
    const waits = assertForeign(await Promise.race(both), 403, 'AWAITING_APPROVAL');
    const denied = await gw.approver.post(`/v1/effects/${waits.effect}/deny`, { request: waits.request, reason: 'no' });
    assert.equal(denied.status, 200, denied.text);
    for (const one of await Promise.all(both)) assert.equal(one.status, 403, one.text);
    assertForeign(await own.post('/ok', asked, { headers }), 403, 'DENIED');
    own.close();
});

test('a client is told that a call awaits approval before its patience for the API ends', async () => {
    const body = order();
    const waits = assertForeign(await post('hasty/ok', body), 403, 'AWAITING_APPROVAL');
    const again = post('hasty/ok', body);
    assert.equal((await gw.approver.post(`/v1/effects/${waits.effect}/approve`, { request: waits.request })).status, 200);
    const answer = await again;
    assert.equal((answer.status === 403 ? await post('hasty/ok', body) : answer).status, 200, answer.text);
    assert.equal(up.times(body.order_id), 1);
});

test('what cannot be read has an error object, if it may be for an API', async () => {
    const host = 'Host: 127.0.0.1\r\n';
    const agent = `Authorization: Bearer ${gw.texts.agent}\r\n`;
    for (const [port, text, status] of [
        [gw.port, `POST /proxy/api/ok HTTP/1.1\r\n${host}X: ${'y'.repeat(200_000)}\r\n\r\n`, 431],
        [gw.port, `POST /proxy/api/ok HTTP/1.1\r\n${host}Content-Length: abc\r\n\r\n`, 400],
        [gw.port, `POST /proxy/api/${'x'.repeat(200_000)} HTTP/1.1\r\n${host}\r\n`, 414],
        [gw.port, `POST /proxy/api/ok HTTP/1.1\r\n${host}${agent}Transfer-Encoding: chunked\r\n\r\n${`80000\r\n${'x'.repeat(0x80000)}\r\n`.repeat(4)}`, 413],
        [ownPort, `POST /ok HTTP/1.1\r\n${host}Content-Length: abc\r\n\r\n`, 400],
    ]) {
        const raw = await Raw.connect(port);
        raw.write(text);
        const answer = await raw.all();
        assert.match(answer, new RegExp(`^HTTP/1.1 ${status} `), answer.slice(0, 300));
        const { error, code } = JSON.parse(answer.split('\r\n\r\n')[1]);
        assert.equal(error?.type, 'semel_error', answer.slice(0, 600));
        assert.equal(error.code, code);
        raw.hangUp();
    }
    const raw = await Raw.connect(gw.port);
    raw.write(`POST /v1/call HTTP/1.1\r\n${host}Content-Length: abc\r\n\r\n`);
    assert.equal(JSON.parse((await raw.all()).split('\r\n\r\n')[1]).error, undefined);
    raw.hangUp();
});

test('elsewhere a call that waits for approval is 202, and problems have no error object', async () => {
    const asked = await gw.agent.post('/v1/begin', { scope: 'shop/1', tool: 'proxy.careful', args: order() });
    assert.equal(assertProblem(asked, 202, 'AWAITING_APPROVAL').error, undefined);
    assert.equal(assertProblem(await gw.client.post('/v1/call', {}), 401, 'UNAUTHENTICATED').error, undefined);
});

up.habit('dressed', (upstream, entry, response) => {
    upstream.did(entry);
    reply(response, 201, { serial: entry.serial }, {
        'Set-Cookie': ['a=1; HttpOnly', 'b=2'], 'WWW-Authenticate': 'Digest nonce="once"', Authorization: 'Bearer s',
        'X-Api-Key': 's', 'X-Auth-Token': 's', Date: 'Tue, 01 Jan 2019 00:00:00 GMT',
        'Request-Id': 'req_1', 'Stripe-Version': '2026-01-01', 'X-RateLimit-Remaining': '7', Warning: ['199 - "a"', '199 - "b"'],
        ETag: '"e"', Location: '/v1/things/1', 'X-Latin': Buffer.from('b\xfccher', 'latin1').toString('latin1'),
        Connection: 'keep-alive, X-Hop', 'X-Hop': 'h', 'Keep-Alive': 'timeout=9', 'Proxy-Authenticate': 'Basic',
        'Cache-Control': 'public', 'Idempotent-Replayed': 'true', 'Semel-Effect': 'ef_theirs', 'Semel-Doubt': 'unrecorded',
    });
});

// All values of one header as they came.
async function rawHeaders(path, body) {
    const raw = await Raw.connect(gw.port);
    const text = JSON.stringify(body);
    raw.write(bytesOf('POST', path, { Authorization: `Bearer ${gw.texts.agent}`, 'Content-Type': 'application/json' }, text));
    const head = await raw.head();
    raw.hangUp();
    const lines = head.split('\r\n').slice(1).filter(Boolean).map((line) => line.split(/: (.*)/s));
    return (name) => lines.filter(([n]) => n.toLowerCase() === name).map(([, value]) => value);
}

test("whoever's call runs gets all headers of the answer but those of the connection", async () => {
    const values = await rawHeaders('/proxy/api/dressed', order());
    assert.deepEqual(values('set-cookie'), ['a=1; HttpOnly', 'b=2']);
    assert.deepEqual(values('warning'), ['199 - "a"', '199 - "b"']);
    for (const name of ['www-authenticate', 'authorization', 'x-api-key', 'x-auth-token', 'request-id', 'stripe-version',
        'x-ratelimit-remaining', 'etag', 'location', 'x-latin', 'content-type', 'content-length'])
        assert.equal(values(name).length, 1, name);
    assert.deepEqual(values('date'), ['Tue, 01 Jan 2019 00:00:00 GMT']);
    for (const name of ['x-hop', 'keep-alive', 'proxy-authenticate', 'idempotent-replayed', 'semel-doubt'])
        assert.deepEqual(values(name), [], name);
    assert.deepEqual(values('cache-control'), ['no-store'], 'ours');
    assert.equal(values('semel-effect').length, 1);
    assert.notEqual(values('semel-effect')[0], 'ef_theirs');
});

test('a replay has the same headers without cookies, credentials and the date', async () => {
    const body = order();
    const first = await post('api/dressed', body);
    const values = await rawHeaders('/proxy/api/dressed', body);
    assert.equal(values('idempotent-replayed').length, 1);
    for (const name of ['request-id', 'stripe-version', 'x-ratelimit-remaining', 'etag', 'location', 'content-type'])
        assert.deepEqual(values(name), [first.headers[name]], name);
    assert.deepEqual(values('warning'), ['199 - "a"', '199 - "b"'], 'several stay several');
    for (const name of ['set-cookie', 'www-authenticate', 'authorization', 'x-api-key', 'x-auth-token', 'x-hop', 'keep-alive'])
        assert.deepEqual(values(name), [], name);
    assert.equal(values('date').length, 1);
    assert.notEqual(values('date')[0], 'Tue, 01 Jan 2019 00:00:00 GMT');
    const shown = await gw.effect(first.headers['semel-effect']);
    assert.ok(!JSON.stringify(shown).includes('HttpOnly'), 'no cookie is recorded');
});

test('what an upstream says of a refusal passes with its headers, too', async () => {
    up.habit('declined', (upstream, entry, response) => reply(response, 402, { error: { code: 'card_declined' } }, { 'set-cookie': 'c=1', 'request-id': 'req_2' }));
    const answer = await post('api/declined', order());
    assert.equal(answer.status, 402, answer.text);
    assert.deepEqual(answer.headers['set-cookie'], ['c=1']);
    assert.equal(answer.headers['request-id'], 'req_2');
});

test('a read that gets no answer, or an error, is not in doubt', async () => {
    for (const [path, status] of [['status/500', 500], ['status/503', 503], ['refuse/429', 429]])
        for (let n = 0; n < 2; n++) {
            const answer = await post(`read/${path}`, order());
            assert.equal(answer.status, status, answer.text);
            assert.equal(answer.headers['semel-effect'], undefined);
        }
    assertForeign(await post('read/reset-after', order()), 502, 'UPSTREAM_FAILED');
    assertForeign(await post('read/hang', order()), 504, 'UPSTREAM_TIMEOUT');
    const call = (tool, habit) => gw.agent.call({ scope: 'shop/1', tool, args: { habit, ...order() }, wait_ms: 9000 });
    assert.equal((await call('get', 'find-broken')).status, 500);
    assertProblem(await call('get', 'reset-after'), 502, 'UPSTREAM_FAILED');
    assertProblem(await call('get_late', 'x'), 504, 'UPSTREAM_TIMEOUT');
    const all = await gw.admin.get('/v1/effects?tool=proxy.read');
    assert.deepEqual(all.json.items, [], 'nothing is recorded');
});

await run();
