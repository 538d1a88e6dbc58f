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
        const status = await raw.status(3000);
        assert.ok(status === 400 || status === 0, `${JSON.stringify(head)}: ${status}`);
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
        const text = await raw.all(3000);
        assert.ok(!/^HTTP\/1\.1 (2|5)\d\d/.test(text) || /^HTTP\/1\.1 50[15]/.test(text), text.slice(0, 60));
        raw.hangUp();
    }
    assert.equal((await gw.client.get('/healthz')).status, 200);
});

test('without Host there is one answer, and it is a refusal', async () => {
    const raw = await Raw.connect(gw.port);
    raw.write('GET /healthz HTTP/1.1\r\n\r\n');
    const text = await raw.all(2000);
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
