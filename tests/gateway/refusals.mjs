// Bad requests: the right status, a sentence that helps, and nothing executed.

import { Raw, bytesOf } from './client.mjs';
import { Gateway, assert, assertProblem, run as semel } from './harness.mjs';
import { newOrder, shop } from './shop.mjs';
import { eventually, run, test } from './tap.mjs';
import { Upstream } from './upstream.mjs';

const up = await Upstream.start();
const gw = await Gateway.start({
    contract: shop(up),
    env: { SHOP_SECRET: 's' },
    config: {
        hosts: ['gateway.example'],
        origins: ['https://console.example'],
        limits: { body: '64KiB' },
    },
});
const good = () => ({ scope: 'shop/1', tool: 'charge', args: { order_id: newOrder(), amount: 1 } });

// Everything that a test here does leaves the upstream untouched.
function untouched(name, body) {
    test(name, async () => {
        const before = up.seen.length;
        await body();
        assert.equal(up.seen.length, before, 'nothing was executed');
    });
}

untouched('without a token there is no access', async () => {
    for (const [method, path] of [
        ['POST', '/v1/call'], ['POST', '/v1/begin'], ['POST', '/v1/commit'], ['GET', '/v1/effects'],
        ['GET', '/v1/effects/ef_x'], ['GET', '/v1/approvals'], ['GET', '/v1/stream'],
        ['GET', '/metrics'], ['POST', '/v1/effects/ef_x/approve'], ['GET', '/proxy/x/y'],
    ]) {
        const answer = await gw.client.request(method, path, method === 'POST' ? good() : undefined);
        assertProblem(answer, 401, 'UNAUTHENTICATED');
        assert.match(answer.headers['www-authenticate'], /^Bearer/);
    }
});

untouched('a wrong token is no token', async () => {
    const right = gw.texts.agent;
    const wrong = right.slice(0, -1) + (right.endsWith('A') ? 'B' : 'A');
    for (const value of [
        `Bearer ${wrong}`, 'Bearer', 'Bearer ', `Basic ${right}`, right, `Bearer ${right}x`,
        `Bearer ${right} ${right}`, `Bearer ${'a'.repeat(5000)}`, 'Bearer \xfc',
    ]) {
        const answer = await gw.client.call(good(), { headers: { authorization: value } });
        assert.ok([401, 431].includes(answer.status), `${value}: ${answer.status}`);
        assert.ok(!answer.text.includes(right));
    }
});

test('the scheme of a token may be written in any case', async () => {
    const headers = { authorization: `bearer ${gw.texts.agent}` };
    assert.equal((await gw.client.call(good(), { headers })).status, 200);
});

untouched('a role that may not is told which may', async () => {
    for (const who of [gw.approver, gw.operator])
        assertProblem(await who.call(good()), 403, 'NOT_ALLOWED', /agent/);
});

untouched('a revoked token is nobody within a second or so', async () => {
    const who = await gw.token('revoked', 'agent', 'shop');
    const id = gw.texts.revoked.split('_')[1];
    const gone = semel(['token', 'revoke', id, '--tokens', gw.tokens]);
    assert.equal(gone.status, 0, gone.stderr);
    await eventually('it counts no more', async () => (await who.get('/v1/tools')).status === 401);
});

untouched('a foreign scope is refused', async () => {
    for (const scope of ['other/1', 'shopping', 'sho', 'SHOP/1', 'shop1/x'])
        assertProblem(await gw.agent.call({ ...good(), scope }), 403, 'FORBIDDEN');
    assertProblem(await gw.stranger.call(good()), 403, 'FORBIDDEN');
    assertProblem(await gw.stranger.post('/v1/begin', good()), 403, 'FORBIDDEN');
});

untouched('unknown paths are 404 and other methods 405 with what is allowed', async () => {
    for (const path of ['/', '/v1', '/v1/cal', '/v2/call', '/v1/effects/a/b/c', '/v1/call/', '//v1/call'])
        assertProblem(await gw.agent.get(path), 404, 'NO_ROUTE');
    assertProblem(await gw.agent.get('/v1/cal'), 404, 'NO_ROUTE', /\/v1\/call/);
    const wrong = await gw.agent.request('DELETE', '/v1/call');
    assert.equal(wrong.status, 405, wrong.text);
    assert.equal(wrong.headers.allow, 'POST');
    assert.equal((await gw.agent.post('/v1/effects', {})).status, 405);
});

untouched('a body that is no JSON is told where', async () => {
    for (const text of ['', '{', 'nonsense', '{"scope":"shop/1",}', '[1,2', '{"a":01}', '"\\ud800"']) {
        const answer = await gw.agent.call(text);
        assertProblem(answer, 400, 'BAD_ARGUMENTS');
    }
    const placed = await gw.agent.call('{"scope": "shop/1",\n "tool": charge}');
    assertProblem(placed, 400, 'BAD_ARGUMENTS', /line 2|2:10/);
});

untouched('a body of another shape is told what is wrong', async () => {
    for (const [change, words] of [
        [{ scope: undefined }, /scope/],
        [{ scope: 7 }, /scope/],
        [{ scope: 'shop/' + 'x'.repeat(600) }, /scope/],
        [{ tool: undefined }, /tool/],
        [{ tool: ['charge'] }, /tool/],
        [{ args: 'text' }, /arguments/],
        [{ args: [1] }, /arguments/],
        [{ step: true }, /step/],
        [{ key: 5 }, /key/],
        [{ wait_ms: '100' }, /wait_ms/],
        [{ wait_ms: -1 }, /wait_ms/],
        [{ wait_ms: 1e300 }, /wait_ms/],
        [{ waits_ms: 1 }, /wait_ms/],
        [{ args: { order_id: 5, amount: 1 } }, /order_id/],
        [{ args: { amount: 1 } }, /order_id/],
    ]) {
        const answer = await gw.agent.call({ ...good(), ...change });
        assertProblem(answer, 400, 'BAD_ARGUMENTS', words);
    }
    for (const scope of ['', '/', 'a//b', 'a/', '/a', 'a\u0000b', 'a\nb'])
        assertProblem(await gw.admin.call({ ...good(), scope }), 400, 'BAD_ARGUMENTS', /scope/);
    assertProblem(await gw.agent.call('[]'), 400, 'BAD_ARGUMENTS');
    assertProblem(await gw.agent.call('null'), 400, 'BAD_ARGUMENTS');
});

untouched('duplicate names, at any depth, are refused', async () => {
    const order = newOrder();
    for (const text of [
        `{"scope":"shop/1","scope":"shop/2","tool":"charge","args":{"order_id":"${order}"}}`,
        `{"scope":"shop/1","tool":"charge","args":{"order_id":"${order}","order_id":"x"}}`,
        `{"scope":"shop/1","tool":"charge","args":{"order_id":"${order}","\\u006frder_id":"x"}}`,
    ])
        assertProblem(await gw.agent.call(text), 400, 'BAD_ARGUMENTS', /twice|duplicate/i);
});

untouched('too deep is refused', async () => {
    const deep = '['.repeat(200) + ']'.repeat(200);
    const text = `{"scope":"shop/1","tool":"charge","args":{"order_id":"x","d":${deep}}}`;
    assertProblem(await gw.agent.call(text), 400, 'BAD_ARGUMENTS', /deep|depth|nest/i);
});

untouched('what is not UTF-8 is refused', async () => {
    const bytes = Buffer.from('{"scope":"shop/1","tool":"charge","args":{"order_id":"?"}}');
    bytes[bytes.indexOf('?')] = 0xff;
    assertProblem(await gw.agent.call(bytes), 400, 'BAD_ARGUMENTS', /UTF-8/i);
});

untouched('too large is 413, and at once if the length says so', async () => {
    const body = { ...good(), args: { order_id: 'x', blob: 'y'.repeat(70_000) } };
    const refused = await gw.agent.call(body);
    assertProblem(refused, 413, 'TOO_LARGE', /65536|64/);
    assert.match(refused.json.corrective_action, /limits\.body\./, 'the field as it is called');
    const raw = await Raw.connect(gw.port);
    raw.write(bytesOf('POST', '/v1/call', {
        Authorization: `Bearer ${gw.texts.agent}`, 'Content-Length': '9999999999',
    }));
    assert.equal(await raw.status(), 413);
    raw.hangUp();
});

untouched('too large in pieces is 413 too', async () => {
    const raw = await Raw.connect(gw.port);
    raw.write(bytesOf('POST', '/v1/call', {
        Authorization: `Bearer ${gw.texts.agent}`, 'Transfer-Encoding': 'chunked',
    }));
    const piece = 'x'.repeat(8192);
    for (let n = 0; n < 12 && !raw.socket.destroyed; n++) raw.write(`2000\r\n${piece}\r\n`);
    raw.write('0\r\n\r\n');
    assert.equal(await raw.status(), 413);
    raw.hangUp();
});

test('a body in pieces is read', async () => {
    const raw = await Raw.connect(gw.port);
    const body = JSON.stringify(good());
    raw.write(bytesOf('POST', '/v1/call', {
        Authorization: `Bearer ${gw.texts.agent}`, 'Transfer-Encoding': 'chunked',
    }));
    for (const byte of body) raw.write(`1\r\n${byte}\r\n`);
    raw.write('0\r\n\r\n');
    assert.equal(await raw.status(), 200);
    raw.hangUp();
});

untouched('two ways to say how long a body is are refused', async () => {
    const body = JSON.stringify(good());
    const heads = [
        { 'Content-Length': `${body.length}`, 'Transfer-Encoding': 'chunked' },
        { 'Content-Length': [`${body.length}`, `${body.length + 1}`] },
        { 'Content-Length': `-${body.length}` },
        { 'Content-Length': `${body.length}x` },
    ];
    for (const head of heads) {
        const raw = await Raw.connect(gw.port);
        raw.write(bytesOf('POST', '/v1/call', { Authorization: `Bearer ${gw.texts.agent}`, ...head }, body));
        const status = await raw.status();
        assert.equal(status, 400, JSON.stringify(head));
        raw.hangUp();
    }
});

untouched('a chunked body far over the bound is told so before its end', async () => {
    const raw = await Raw.connect(gw.port);
    raw.write(bytesOf('POST', '/v1/call', {
        Authorization: `Bearer ${gw.texts.agent}`, 'Transfer-Encoding': 'chunked',
    }));
    const piece = 'x'.repeat(65_536);
    for (let n = 0; n < 40 && !raw.socket.destroyed; n++) raw.write(`10000\r\n${piece}\r\n`);
    assert.match(await raw.all(), /^HTTP\/1\.1 413 .*"code":"TOO_LARGE"/s);
    raw.hangUp();
});

// Every request here is followed by another one: whoever reads the first in another way than what
// stands in front of us would answer the second one as well.
untouched('a head that could be read in two ways is refused, and the connection closed', async () => {
    const auth = `Authorization: Bearer ${gw.texts.agent}\r\n`;
    const host = 'Host: 127.0.0.1\r\n';
    const next = `GET /v1/effects?limit=1 HTTP/1.1\r\n${host}${auth}\r\n`;
    const length = `${next.length}`;
    for (const head of [
        `GET /healthz HTTP/1.1\r\n${host}Content-Length : ${length}\r\n\r\n`,
        `GET /healthz HTTP/1.1\r\n${host}Transfer-Encoding : chunked\r\n\r\n`,
        `GET /healthz HTTP/1.1\r\n${host}Transfer-Encoding\0: chunked\r\n\r\n`,
        `GET /healthz HTTP/1.1\r\n${host}X: y\rTransfer-Encoding: chunked\r\n\r\n`,
        `GET /healthz HTTP/1.1\r\n${host}X: y\nTransfer-Encoding: chunked\r\n\r\n`,
        `GET /healthz HTTP/1.1\r\n${host}X: a\r\n b\r\n\r\n`,
        `GET /healthz HTTP/1.1\r\n${host}X: a\r\n\tContent-Length: 5\r\n\r\n`,
        `GET /healthz HTTP/1.1\r\n${host}: foo\r\n\r\n`,
        `GET /healthz HTTP/1.1\r\n${host}X(y): foo\r\n\r\n`,
        `GET /healthz HTTP/1.1\r\n${host}X: a\0b\r\n\r\n`,
        `GET /healthz HTTP/1.1\r\n${host}X: a\0\0Y: b\r\n\r\n`,
        `GET /healthz HTTP/1.1\r\n${host}X: a\r\nY: b\0\0\0\0\r\n\r\n`,
        `GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\0evil\r\n\r\n`,
        `GET /healthz\0x HTTP/1.1\r\n${host}\r\n`,
        `GET  /healthz HTTP/1.1\r\n${host}\r\n`,
        `GET /healthz?a\0b HTTP/1.1\r\n${host}\r\n`,
        `G(T /healthz HTTP/1.1\r\n${host}\r\n`,
        `GET /healthz HTTP/1.1\r\n${host}Transfer-Encoding: gzip, chunked\r\n\r\n`,
        `GET /healthz HTTP/1.1\r\n${host}Transfer-Encoding: xchunked\r\n\r\n`,
        `GET /healthz HTTP/1.1\r\n${host}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n`,
        'GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n',
        `GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: ${length}\r\n\r\n`,
    ]) {
        const raw = await Raw.connect(gw.port);
        raw.write(Buffer.from(`${head}${next}`, 'latin1'));
        const text = await raw.all();
        assert.match(text, /^HTTP\/1\.1 400 /, JSON.stringify(head));
        assert.equal(text.split('HTTP/1.1 ').length, 2, JSON.stringify(head));
        assert.ok(raw.socket.destroyed, `closed after ${JSON.stringify(head)}`);
    }
});

test('headers that are unusual and right are taken', async () => {
    for (const line of ['X:a', 'X:', 'X: ', 'X:\t a \t', "!#$%&'*+-.^_`|~09: a", 'X: \xe4\xff', 'X: a:b: c']) {
        const raw = await Raw.connect(gw.port);
        raw.write(Buffer.from(`GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n${line}\r\n\r\n`, 'latin1'));
        assert.equal(await raw.status(), 200, line);
        raw.hangUp();
    }
    const raw = await Raw.connect(gw.port);
    raw.write('GET /healthz HTTP/1.0\r\n\r\n');
    assert.equal(await raw.status(), 200, 'no header at all');
});

// The second request lies in the same memory as the first.
test('a head of up to 32 KiB is taken, and a larger one refused before anything runs', async () => {
    const heads = [];
    for (let n = 500; n <= 33_000; n += 1300) heads.push({ 'X-Long': 'a'.repeat(n) });
    for (let n = 32_000; n <= 33_400; n += 70) heads.push({ 'X-Long': 'a'.repeat(n) });
    for (let n = 40_000; n <= 90_000; n += 7_000) heads.push({ 'X-Long': 'a'.repeat(n) });
    for (let n = 1; n <= 60; n += 6) heads.push({ 'X-Many': Array.from({ length: n }, () => 'a'.repeat(500)) });
    for (let n = 500; n <= 20_000; n += 3900) heads.push({ Cookie: `a=${'b'.repeat(n)}`, 'X-Long': 'c'.repeat(8000) });
    for (let n = 5; n <= 100; n += 30) heads.push({ Cookie: 'a=b; '.repeat(n) });
    let taken = 0;
    for (const more of heads) {
        const order = newOrder();
        const body = JSON.stringify({ scope: 'shop/1', tool: 'charge', args: { order_id: order } });
        const head = bytesOf('POST', '/v1/call', {
            Authorization: `Bearer ${gw.texts.agent}`, 'Content-Length': `${body.length}`, ...more,
        });
        const raw = await Raw.connect(gw.port);
        raw.write(head + body + head + body);
        const status = await raw.status();
        const shown = `${head.length} bytes, ${head.split('\r\n').length} lines: ${status}`;
        assert.equal(status, head.length <= 32_768 ? 200 : 431, shown);
        assert.equal(up.times(order), status === 200 ? 1 : 0, shown);
        taken += status === 200;
        raw.hangUp();
    }
    assert.ok(taken > 50, `${taken} taken`);
    const answer = await gw.agent.call(good(), { headers: { 'x-long': 'a'.repeat(40_000) } });
    assertProblem(answer, 431, 'TOO_LARGE', /32 KiB/);
});

test('a request for a whole URI is for its path, and for the host that it names', async () => {
    for (const [target, status] of [
        [`http://127.0.0.1:${gw.port}/healthz`, 200], ['HTTP://localhost/healthz', 200],
        ['https://gateway.example/healthz', 200], ['http://evil.example/healthz', 403],
        ['http://127.0.0.1', 404], ['http://127.0.0.1?x', 404], ['http:///healthz', 403],
        ['ftp://127.0.0.1/healthz', 404],
    ]) {
        const raw = await Raw.connect(gw.port);
        raw.write(bytesOf('GET', target, {}));
        assert.equal(await raw.status(), status, target);
        raw.hangUp();
    }
});

untouched('another type of content is 415', async () => {
    const headers = { 'content-type': 'text/plain' };
    assert.equal((await gw.agent.call(JSON.stringify(good()), { headers })).status, 415);
});

test('Host: our addresses and configured names, and no other', async () => {
    for (const [host, status] of [
        [`127.0.0.1:${gw.port}`, 200], ['127.0.0.1', 200], ['localhost', 200],
        [`localhost:${gw.port}`, 200], ['gateway.example', 200], ['GATEWAY.example', 200],
        ['evil.example', 403], ['127.0.0.1.evil.example', 403], ['gateway.example.evil', 403],
    ]) {
        const answer = await gw.agent.get('/v1/tools', { headers: { host } });
        if (status === 403) assert.ok([400, 403, 421].includes(answer.status), `${host}: ${answer.status}`);
        else assert.equal(answer.status, status, `${host}: ${answer.text}`);
    }
    const raw = await Raw.connect(gw.port);
    raw.write(`GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n`);
    assert.ok((await raw.status()) >= 400);
    raw.hangUp();
});

test('Origin: ours and configured ones, and no other', async () => {
    for (const [origin, status] of [
        [undefined, 200], ['https://console.example', 200], [`http://127.0.0.1:${gw.port}`, 200],
        ['https://evil.example', 403], ['null', 403], ['https://console.example.evil', 403],
    ]) {
        const headers = origin === undefined ? {} : { origin };
        const answer = await gw.agent.get('/v1/tools', { headers });
        assert.equal(answer.status, status, `${origin}: ${answer.text}`);
    }
});

const page = { origin: 'https://console.example' };

test('a browser may ask for a page of a listed origin, and gets what it needs', async () => {
    const ask = (path, headers) => gw.client.request('OPTIONS', path, undefined, { headers });
    const wants = { ...page, 'access-control-request-method': 'POST' };
    for (const [path, methods] of [
        ['/v1/call', /^POST$/], ['/v1/effects', /^GET, HEAD$/], ['/v1/effects/ef_1/approve', /^POST$/],
        ['/proxy/any/thing', /PATCH.*DELETE/],
    ]) {
        const answer = await ask(path, wants);
        assert.equal(answer.status, 204, answer.text);
        assert.equal(answer.headers['access-control-allow-origin'], page.origin);
        assert.match(answer.headers['access-control-allow-methods'], methods);
        assert.match(answer.headers.vary, /Origin/);
        for (const name of ['Authorization', 'Content-Type', 'Idempotency-Key', 'Semel-Scope', 'Last-Event-ID'])
            assert.ok(answer.headers['access-control-allow-headers'].split(', ').includes(name), name);
    }
    assertProblem(await ask('/nowhere', wants), 404, 'NO_ROUTE');
    assertProblem(await ask('/v1/call', { ...wants, origin: 'https://evil.example' }), 403, 'NOT_ALLOWED');
    assert.equal((await ask('/v1/call', page)).status, 405, 'not a preflight');
    assert.equal((await ask('/v1/call', { 'access-control-request-method': 'POST' })).status, 405);
});

test('answers to pages of listed origins can be read by them, refusals too', async () => {
    const told = (answer) => answer.headers['access-control-allow-origin'];
    const done = await gw.agent.call(good(), { headers: page });
    assert.equal(done.status, 200, done.text);
    assert.equal(told(done), page.origin);
    assert.match(done.headers.vary, /Origin/);
    assert.equal(done.headers['access-control-expose-headers'], 'Semel-Effect, Semel-Doubt, Semel-Warning, Idempotent-Replayed, Retry-After, Mcp-Session-Id');
    const refused = await gw.client.get('/v1/effects', { headers: page });
    assertProblem(refused, 401, 'UNAUTHENTICATED');
    assert.equal(told(refused), page.origin);
    for (const headers of [{}, { origin: `http://127.0.0.1:${gw.port}` }, { origin: 'https://evil.example' }])
        assert.equal(told(await gw.agent.get('/v1/tools', { headers })), undefined);
});

untouched('requests that are no HTTP do no harm', async () => {
    for (const bytes of [
        '\0\0\0\0\r\n\r\n', 'GET\r\n\r\n', 'GET / HTTP/9.9\r\n\r\n', 'POST /v1/call HTTP/1.1\r\n: x\r\n\r\n',
        `GET /${'x'.repeat(20_000)} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`,
        `GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n${'A: b\r\n'.repeat(3000)}\r\n`,
        `GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ${'y'.repeat(100_000)}\r\n\r\n`,
        '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', '\xff'.repeat(9000),
        'GET /v1/effects/%00%ff%2e%2e HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n',
        'GET /v1/effects?limit=%zz&%00=%ff HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n',
    ]) {
        const raw = await Raw.connect(gw.port);
        raw.write(Buffer.from(bytes, 'latin1'));
        raw.socket.end();
        const text = await raw.all();
        assert.ok(!/^HTTP\/1\.1 (2|5)\d\d/.test(text) || /^HTTP\/1\.1 50[15]/.test(text), text.slice(0, 60));
        raw.hangUp();
    }
    assert.equal((await gw.client.get('/healthz')).status, 200);
});

test('without Host there is one answer, and it is a refusal', async () => {
    const raw = await Raw.connect(gw.port);
    raw.write('GET /healthz HTTP/1.1\r\n\r\n');
    const text = await raw.all();
    assert.match(text, /^HTTP\/1\.1 400 /);
    assert.equal(text.split('HTTP/1.1 400').length, 2, text);
});

untouched('control characters in what is asked do not reach the log', async () => {
    const raw = await Raw.connect(gw.port);
    raw.write('GET /v1/\x1b[31mred%0aINFO HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n');
    await raw.status();
    raw.hangUp();
    assert.doesNotMatch(gw.log, /\x1b/);
    for (const line of gw.log.trim().split('\n')) assert.equal(typeof JSON.parse(line), 'object', line);
});

await run();
