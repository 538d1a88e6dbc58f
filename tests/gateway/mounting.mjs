// A proxy with an address of its own: the API at /, for clients that take no path in a base URL and
// for requests whose signature covers path and Host.

import crypto from 'node:crypto';
import net from 'node:net';
import path from 'node:path';
import { Client, Raw, bytesOf } from './client.mjs';
import { Gateway, assert, assertProblem, freePort, newPath, run as semel, scratch } from './harness.mjs';
import { newOrder } from './shop.mjs';
import { eventually, run, test } from './tap.mjs';
import { Upstream, reply } from './upstream.mjs';
import fs from 'node:fs';

const up = await Upstream.start();
const ports = { open: await freePort(), open2: await freePort(), shop: await freePort(), plain: await freePort() };
const socketPath = path.join(scratch(), 'shop.sock');
const gw = await Gateway.start({
    config: {
        hosts: ['api.example'],
        origins: ['https://console.example'],
        limits: { body: '64KiB' },
        proxies: {
            token: { url: up.url, listen: [`127.0.0.1:${ports.open}`, `127.0.0.1:${ports.open2}`] },
            shop: {
                url: up.url,
                listen: [`127.0.0.1:${ports.shop}`, `unix:${socketPath}`],
                pass_host: true,
                client: { name: 'shop-agent', scope: 'shop/agent' },
            },
        },
    },
});
const at = (port) => new Client({ host: '127.0.0.1', port });
const token = at(ports.open);
const shop = at(ports.shop);
const local = new Client({ socketPath });
const order = () => ({ order_id: newOrder() });
const last = () => up.seen.at(-1);

test('every path of the address is the path of the API', async () => {
    for (const target of ['/', '/v1/call', '/v1/effects', '/mcp/notes', '/metrics', '/healthz', '/readyz',
        '/openapi.json', '/proxy/shop/x', '/a/b%2Fc//d?e=%20&f', '/?x']) {
        const answer = await shop.get(target);
        assert.equal(answer.status, 200, `${target}: ${answer.text}`);
        assert.equal(last().raw, target);
        const body = order();
        const done = await shop.post(target, body);
        assert.equal(done.status, 200, `${target}: ${done.text}`);
        assert.match(done.headers['semel-effect'], /^ef_/);
        assert.equal(last().raw, target);
        assert.equal((await shop.post(target, body)).headers['idempotent-replayed'], 'true');
        assert.equal(up.times(body.order_id), 1);
    }
});

test('the same call by the address and by /proxy/ is one action, unless the API gets another Host', async () => {
    const headers = { 'semel-scope': 'shop/agent', 'semel-token': gw.texts.agent };
    for (const [name, client, times] of [['token', token, 1], ['shop', shop, 2]]) {
        const body = order();
        assert.equal((await client.post('/orders', body, { headers })).status, 200);
        const again = await gw.client.post(`/proxy/${name}/orders`, body, { headers });
        assert.equal(again.status, 200, again.text);
        assert.equal(up.times(body.order_id), times, name);
    }
});

test('an address needs Semel-Token, and Authorization is the API\'s there', async () => {
    const ours = { 'semel-token': gw.texts.agent };
    const seen = up.seen.length;
    // The API must not get a token of ours, whoever needs one.
    for (const client of [token, shop])
        for (const more of [{}, ours]) {
            const answer = await client.post('/orders', order(), { headers: { authorization: `Bearer ${gw.texts.agent}`, ...more } });
            assertProblem(answer, 400, 'BAD_ARGUMENTS', /would be sent to the API/);
        }
    for (const headers of [{}, { 'semel-token': 'x' },
        { 'semel-token': gw.texts.agent.slice(0, -1) }, { 'semel-token': gw.texts.approver }]) {
        const answer = await token.post('/orders', order(), { headers });
        assert.ok([401, 403].includes(answer.status), answer.text);
        assert.match(answer.headers['content-type'], /problem\+json/);
    }
    assertProblem(await token.get('/orders'), 401, 'UNAUTHENTICATED', /Semel-Token/);
    assert.equal(up.seen.length, seen);
    for (const client of [token, at(ports.open2)]) {
        const answer = await client.post('/orders', order(), { headers: { ...ours, authorization: 'Bearer sk_1' } });
        assert.equal(answer.status, 200, answer.text);
        assert.equal(last().headers.authorization, 'Bearer sk_1');
        assert.equal(last().headers['semel-token'], undefined);
    }
});

test('a token of the gateway is never passed on: the request is refused, and is told where it has the token', async () => {
    const secret = gw.texts.agent;
    const basic = (text) => `Basic ${Buffer.from(text).toString('base64')}`;
    const seen = up.seen.length;
    const ways = [
        ['x-api-key', secret], ['authorization', `Token ${secret}`], ['authorization', `Bearer  ${secret}`], ['authorization', basic(`${secret}:`)],
        ['authorization', basic(`user:${secret}`).replace(/=*$/, '')], ['cookie', `a=b; token=${secret}`], ['x-url', `/a?t=${secret.replaceAll('_', '%5F')}`],
    ];
    for (const method of ['GET', 'POST']) {
        const ask = (client, target, headers) => client.request(method, target, method === 'GET' ? undefined : order(), { headers });
        const refused = async (client, front, name, headers, target = '/orders') => {
            const answer = await ask(client, front + target, headers);
            const { message } = assertProblem(answer, 400, 'BAD_ARGUMENTS', /Semel-Token/);
            assert.ok(message.toLowerCase().includes(name), message);
            assert.ok(!answer.text.includes(secret.slice(-43)));
        };
        for (const [client, front, more] of [[shop, '', {}], [gw.client, '/proxy/shop', { 'semel-token': secret, 'semel-scope': 'shop/1' }]]) {
            for (const [name, value] of ways) await refused(client, front, name, { ...more, [name]: value });
            await refused(client, front, 'the query', more, `/orders?token=${secret}`);
            await refused(client, front, 'the path', more, `/orders/${secret}/x`);
        }
        await refused(gw.client, '/proxy/shop', 'authorization', { 'semel-token': secret, authorization: `Bearer ${secret}` });
        await refused(gw.agent, '/proxy/shop', 'x-api-key', { 'x-api-key': secret });
    }
    assert.equal(up.seen.length, seen);
    for (const value of ['semel_', `semel_short_${'x'.repeat(43)}`, secret.slice(0, -1), secret.slice(1), basic('a:semel_')])
        assert.equal((await shop.post('/orders', order(), { headers: { 'x-api-key': value } })).status, 200, value);
});

test('who comes without a token is the configured client', async () => {
    for (const client of [shop, local]) {
        const answer = await client.post('/orders', order(), { headers: { authorization: 'Bearer sk_2' } });
        assert.equal(answer.status, 200, answer.text);
        assert.equal(last().headers.authorization, 'Bearer sk_2');
        const effect = await gw.effect(answer.headers['semel-effect']);
        assert.equal(effect.scope, 'shop/agent');
        assert.ok(effect.events.some((one) => one.actor === 'shop-agent'), JSON.stringify(effect.events));
    }
    const below = await shop.post('/orders', order(), { headers: { 'semel-scope': 'shop/agent/run-1' } });
    assert.equal((await gw.effect(below.headers['semel-effect'])).scope, 'shop/agent/run-1');
    for (const scope of ['shop', 'shop/agent2', 'other'])
        assertProblem(await shop.post('/orders', order(), { headers: { 'semel-scope': scope } }), 403, 'FORBIDDEN');
});

test('a token that is shown counts, also where none is needed', async () => {
    const body = order();
    const headers = { 'semel-token': gw.texts.agent, 'semel-scope': 'shop/1' };
    const answer = await shop.post('/orders', body, { headers });
    assert.equal((await gw.effect(answer.headers['semel-effect'])).scope, 'shop/1');
    assertProblem(await shop.post('/orders', body, { headers: { 'semel-token': 'wrong' } }), 401, 'UNAUTHENTICATED');
    assertProblem(await shop.post('/orders', body, { headers: { 'semel-token': '' } }), 401, 'UNAUTHENTICATED');
});

test('pages of other sites reach nothing: Host, Origin and Sec-Fetch-Site', async () => {
    const seen = up.seen.length;
    for (const headers of [
        { host: 'evil.example' }, { host: `evil.example:${ports.shop}` }, { host: '127.0.0.1.evil.example' },
        { host: 'shop' }, { origin: 'https://evil.example' }, { origin: 'null' }, { 'sec-fetch-site': 'cross-site' },
        { 'sec-fetch-site': 'same-site' },
    ]) {
        for (const method of ['GET', 'POST', 'OPTIONS'])
            assertProblem(await shop.request(method, '/orders', undefined, { headers }), 403, 'NOT_ALLOWED');
    }
    const raw = await Raw.connect(ports.shop);
    raw.write(bytesOf('GET', 'http://evil.example/orders', {}));
    assert.equal(await raw.status(), 403);
    assert.equal(up.seen.length, seen);
    for (const headers of [
        { host: `localhost:${ports.shop}` }, { host: 'api.example' }, { origin: `http://127.0.0.1:${ports.shop}` },
        { origin: 'https://console.example', 'sec-fetch-site': 'cross-site' }, { 'sec-fetch-site': 'none' },
    ])
        assert.equal((await shop.get('/orders', { headers })).status, 200, JSON.stringify(headers));
});

test('a target that is no path is not passed on', async () => {
    const seen = up.seen.length;
    for (const target of ['*', '@evil.example/x', '.evil.example/', 'ftp://127.0.0.1/x', '/a/../b', '/%2e%2e/b']) {
        const raw = await Raw.connect(ports.shop);
        raw.write(bytesOf('OPTIONS', target, {}));
        assert.equal(await raw.status(), 400, target);
        raw.hangUp();
    }
    assert.equal(up.seen.length, seen);
});

test('Host is the upstream\'s, or the client\'s if pass_host says so', async () => {
    await token.get('/x', { headers: { 'semel-token': gw.texts.agent } });
    assert.equal(last().headers.host, `127.0.0.1:${up.port}`);
    await shop.get('/x');
    assert.equal(last().headers.host, `127.0.0.1:${ports.shop}`);
    await shop.post('/x', order(), { headers: { host: 'API.example' } });
    assert.equal(last().headers.host, 'API.example');
    const raw = await Raw.connect(ports.shop);
    raw.write(bytesOf('GET', 'http://api.example/y', { Host: 'evil.example' }));
    assert.equal(await raw.status(), 200);
    assert.equal(last().headers.host, 'api.example');
    assert.equal(last().rawHeaders.filter((name) => name.toLowerCase() === 'host').length, 1);
});

const hmac = (key, text) => crypto.createHmac('sha256', key).update(text).digest();
const sha256 = (text) => crypto.createHash('sha256').update(text).digest('hex');

// AWS's Signature Version 4 of a request, as the server computes it from what it got.
function signatureOf({ method, raw, headers, body }, names, secret) {
    const [target, query = ''] = raw.split('?');
    const canonical = [
        method, target, query.split('&').sort().join('&'),
        ...names.map((name) => `${name}:${headers[name].trim().replace(/ +/g, ' ')}`), '',
        names.join(';'), sha256(body),
    ].join('\n');
    const day = headers['x-amz-date'].slice(0, 8);
    const scope = `${day}/eu-west-1/s3/aws4_request`;
    const text = ['AWS4-HMAC-SHA256', headers['x-amz-date'], scope, sha256(canonical)].join('\n');
    const key = ['eu-west-1', 's3', 'aws4_request'].reduce(hmac, hmac(`AWS4${secret}`, day));
    return { scope, signature: hmac(key, text).toString('hex') };
}

test('a signature over path, query, Host and headers holds at the upstream', async () => {
    up.habit('bucket', (upstream, entry, response) => {
        const [, names, signature] = /SignedHeaders=([^,]*), Signature=(\w+)$/.exec(entry.headers.authorization);
        const right = signatureOf(entry, names.split(';'), 'secret').signature === signature;
        reply(response, right ? 200 : 403, { right, serial: upstream.did(entry) });
    });
    for (const [method, raw, body] of [
        ['PUT', '/bucket/a%20b/c%2Bd?x-id=PutObject', 'one two'], ['GET', '/bucket/?list-type=2&prefix=a%2Fb', ''],
        ['POST', '/bucket/k?uploads=', ''], ['DELETE', '/bucket/k%C3%A4', ''],
    ]) {
        const headers = {
            host: `127.0.0.1:${ports.shop}`,
            'accept-encoding': 'identity',
            'amz-sdk-invocation-id': crypto.randomUUID(),
            'amz-sdk-request': 'attempt=1',
            'content-type': 'application/octet-stream',
            range: 'bytes=0-9',
            'x-amz-content-sha256': sha256(body),
            'x-amz-date': '20260101T000000Z',
            'x-amz-meta-note': 'a  b',
            'x-amz-security-token': 't'.repeat(1500),
        };
        const names = Object.keys(headers).sort();
        const { scope, signature } = signatureOf({ method, raw, headers, body }, names, 'secret');
        headers.authorization =
            `AWS4-HMAC-SHA256 Credential=AKID/${scope}, SignedHeaders=${names.join(';')}, Signature=${signature}`;
        for (const client of [shop, local]) {
            const answer = await client.request(method, raw, body === '' ? undefined : body, { headers });
            assert.equal(answer.status, 200, `${method} ${raw}: ${answer.text}`);
        }
    }
});

test('an upgrade of the connection is refused, also behind /proxy/', async () => {
    const seen = up.seen.length;
    const ask = (port, target, more) => Raw.connect(port).then((raw) => raw.write(bytesOf('GET', target, more)));
    const socket = { Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': 'eA==' };
    for (const raw of [
        await ask(ports.shop, '/live', socket), await ask(ports.shop, '/live', { ...socket, Upgrade: 'TLS/1.0' }),
        await ask(gw.port, '/proxy/shop/live', { ...socket, 'Semel-Token': gw.texts.agent }),
    ]) {
        assert.equal(await raw.status(), 501);
        assert.match(raw.received.toString(), /problem\+json.*"code":"UNSUPPORTED".*[Ww]ebsocket/s);
        raw.hangUp();
    }
    assert.equal(up.seen.length, seen);
    const raw = await ask(ports.shop, '/live', { Connection: 'Upgrade, HTTP2-Settings', Upgrade: 'h2c', 'HTTP2-Settings': 'AAMAAABk' });
    assert.equal(await raw.status(), 200, 'HTTP/2 is offered, and not needed');
    assert.equal(last().headers.upgrade, undefined);
    assert.equal(last().headers['http2-settings'], undefined);
});

test('the limits of the gateway hold at the address', async () => {
    assertProblem(await shop.post('/x', 'x'.repeat(70_000)), 413, 'TOO_LARGE');
    assertProblem(await shop.request('TRACE', '/x'), 405, 'NOT_ALLOWED');
});

test('the gateway says where each proxy listens', async () => {
    const said = gw.log.trim().split('\n').map((line) => JSON.parse(line)).filter((one) => one.message === 'listening');
    assert.deepEqual(said.map((one) => [one.address, one.proxy]), [
        [`http://127.0.0.1:${gw.port}`, undefined],
        [`http://127.0.0.1:${ports.open}`, 'token'], [`http://127.0.0.1:${ports.open2}`, 'token'],
        [`http://127.0.0.1:${ports.shop}`, 'shop'], [`unix:${socketPath}`, 'shop'],
    ]);
});

// What `serve --check` and `serve` say of a proxy.
function refusal(proxies, more = {}) {
    const file = newPath('config.yaml');
    fs.writeFileSync(file, JSON.stringify({
        version: 1, listen: '127.0.0.1:8790', ledger: 'memory:', tokens: gw.tokens, proxies, ...more,
    }));
    const checked = semel(['serve', '--check', '--config', file]);
    const started = semel(['serve', '--config', file]);
    assert.notEqual(checked.status, 0, checked.stdout);
    assert.notEqual(started.status, 0);
    return `${checked.stderr}\n${started.stderr}`;
}

test('what must not be started is refused, by --check too', () => {
    const client = { name: 'a', scope: 'b' };
    for (const [proxies, words, more] of [
        [{ a: { url: up.url, client } }, /listen/],
        [{ a: { url: up.url, listen: '0.0.0.0:9000', client } }, /other machines/, { behind_proxy: true }],
        [{ a: { url: up.url, listen: ['127.0.0.1:9000', '[::]:9000'], client } }, /other machines/, { behind_proxy: true }],
        [{ a: { url: up.url, listen: '0.0.0.0:9000' } }, /tls/],
        [{ a: { url: up.url, listen: '127.0.0.1:8790' } }, /there already/],
        [{ a: { url: up.url, listen: '127.0.0.1:9000' }, b: { url: up.url, listen: 'localhost:9000' } }, /there already/],
        [{ a: { url: up.url, listen: 9000 } }, /127\.0\.0\.1:9000/],
        [{ a: { url: up.url, listen: '127.0.0.1:9000', client: { name: 'a' } } }, /scope/],
        [{ a: { url: up.url, listen: '127.0.0.1:9000', client: { name: 'a', scope: '' } } }, /scope/],
        [{ a: { url: up.url, listen: '127.0.0.1:9000', client: { name: 'a\nb', scope: 'b' } } }, /name/],
        [{ a: { url: up.url, listen: '127.0.0.1:9000', client: { name: 'a', scope: '//' } } }, /scope/],
    ]) {
        const said = refusal(proxies, more);
        assert.match(said.split('\n\n')[0], words, said);
    }
});

test('draining ends the address, and lets what is under way there end', async () => {
    const other = await Gateway.start({
        config: {
            proxies: {
                shop: { url: up.url, listen: `127.0.0.1:${ports.plain}`, client: { name: 'a', scope: 'shop' } },
            },
        },
    });
    const body = order();
    let release;
    const released = new Promise((resolve) => (release = resolve));
    up.habit('held', async (upstream, entry, response) => {
        upstream.did(entry);
        await released;
        reply(response, 200, {});
    });
    const slow = at(ports.plain).post('/held', body);
    await eventually('it has begun', () => up.times(body.order_id) === 1);
    const ended = other.stop();
    await eventually('nobody listens', () => new Promise((resolve) => {
        const socket = net.connect(ports.plain, '127.0.0.1', () => socket.destroy() && resolve(false));
        socket.on('error', () => resolve(true));
    }));
    release();
    assert.equal((await slow).status, 200);
    assert.equal((await ended).code, 0);
});

await run();
