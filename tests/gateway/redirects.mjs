// Redirects and links of an API behind the gateway: a client that follows them stays behind it.

import { Client } from './client.mjs';
import { Gateway, assert, assertProblem, freePort } from './harness.mjs';
import { newOrder } from './shop.mjs';
import { run, test } from './tap.mjs';
import { Upstream, reply } from './upstream.mjs';

const up = await Upstream.start();
const other = await Upstream.start();
const ownPort = await freePort();
const gw = await Gateway.start({
    contract: { version: 1, tools: { 'proxy.*': { class: 'write' } } },
    config: {
        proxies: {
            api: { url: up.url },
            based: { url: `${up.url}/v1/base` },
            named: { url: up.url, pass_host: true },
            own: { url: up.url, listen: `127.0.0.1:${ownPort}`, client: { name: 'shop', scope: 'shop/1' } },
        },
    },
});
const own = new Client({ host: '127.0.0.1', port: ownPort });

// The API answers with these headers, and a status, once it is told to.
const answers = new Map();
for (const name of ['moved', 'v1'])
    up.habit(name, (upstream, entry, response) => {
        upstream.did(entry);
        const { status, headers } = answers.get(entry.order ?? entry.query.get('order'));
        reply(response, status, { moved: true }, headers);
    });
const prepare = (status, headers) => {
    const order_id = newOrder();
    answers.set(order_id, { status, headers });
    return order_id;
};
const send = (method, proxy, order_id, client = gw.agent) =>
    client.request(method, client === own ? `/moved?order=${order_id}` : `/proxy/${proxy}/moved?order=${order_id}`, { order_id }, { headers: { 'semel-scope': 'shop/1' } });

test('a redirect to a place of the API leads back through the proxy, for the first caller and for replays', async () => {
    const host = `127.0.0.1:${gw.port}`;
    for (const [proxy, location, leads] of [
        ['api', `${up.url}/ok/1?a=b#c`, '/proxy/api/ok/1?a=b#c'],
        ['api', up.url, '/proxy/api'],
        ['api', `${up.url.toUpperCase().replace('HTTP', 'http')}/ok`, '/proxy/api/ok'],
        ['api', '/ok/1', '/proxy/api/ok/1'],
        ['api', `//127.0.0.1:${up.port}/ok`, '/proxy/api/ok'],
        ['api', `${up.url}?a=1`, '/proxy/api?a=1'],
        ['api', 'next', '/proxy/api/next'],
        ['api', '?page=2', '/proxy/api/moved?page=2'],
        ['api', '?next=a:b//c', '/proxy/api/moved?next=a:b//c'],
        ['api', 'next?u=http://x/', '/proxy/api/next?u=http://x/'],
        ['api', '/ok?p=C:\\x', '/proxy/api/ok?p=C:\\x'],
        ['api', 'a/..b/c', '/proxy/api/a/..b/c'],
        ['api', `http://127.0.0.1:${up.port}/ok`, '/proxy/api/ok'],
        ['based', 'x', '/proxy/based/x'],
        ['based', `${up.url}/v1/base/x`, '/proxy/based/x'],
        ['based', `${up.url}/v1/base`, '/proxy/based'],
        ['named', `http://${host}/ok`, '/proxy/named/ok'],
        ['api', './x', '/proxy/api/x'],
        ['api', '.', '/proxy/api/'],
        ['api', 'a/./b/../c?d=../e', '/proxy/api/a/c?d=../e'],
        ['api', '/ok/..', '/proxy/api/'],
        ['api', '../../../v1/effects', '/proxy/api/v1/effects'],
        ['api', '/../../v1/call', '/proxy/api/v1/call'],
        ['api', `${up.url}/a/../../b`, '/proxy/api/b'],
        ['based', '../base/x', '/proxy/based/x'],
        ['based', '/v1/other/../base/./x', '/proxy/based/x'],
    ])
        for (const [method, status] of [['POST', 308], ['PUT', 301], ['POST', 201], ['GET', 302]]) {
            const order = prepare(status, { location });
            const tries = [await send(method, proxy, order), await send(method, proxy, order)];
            for (const { status: got, headers, text } of tries) {
                assert.equal(got, status, text);
                assert.equal(headers.location, leads, `${proxy} ${location}`);
            }
            assert.equal(up.times(order), status === 308 || method === 'GET' ? 2 : 1, 'only a 308 says that nothing was done');
        }
    const order = prepare(307, { location: `${up.url}/ok` });
    assert.equal((await send('POST', 'own', order, own)).headers.location, '/ok');
    const root = prepare(307, { location: up.url });
    assert.equal((await send('POST', 'own', root, own)).headers.location, '/');
});

test('a write that the API redirects to another place is refused, and its client does not go there', async () => {
    for (const [proxy, location, name] of [
        ['api', `${other.url}/ok`, `127.0.0.1:${other.port}`],
        ['api', `https://127.0.0.1:${up.port}/ok`, `127.0.0.1:${up.port}`],
        ['api', `//user:pass@evil.example/ok`, 'evil.example'],
        ['api', `http:/\\evil.example/ok`, 'another place'],
        ['api', `/\\evil.example/ok`, 'another place'],
        ['api', `${up.url}.evil.example/ok`, `127.0.0.1:${up.port}.evil.example`],
        ['api', `${up.url}@evil.example/ok`, 'evil.example'],
        ['api', `gopher://evil.example/ok`, 'another place'],
        ['based', `${up.url}/v1/basement/x`, `127.0.0.1:${up.port}`],
        ['based', '/v1/other', 'another place'],
        ['based', `${up.url}/v1/base/../other`, `127.0.0.1:${up.port}`],
        ['based', '../other/ok', 'another place'],
        ['based', '../../../v1/effects', 'another place'],
        ['based', 'a/../../../x', 'another place'],
        ['api', 'a/%2e%2E/..', 'another place'],
        ['api', '/.//evil.example/x', 'another place'],
        ['api', '/a/..//evil.example/x', 'another place'],
        ['api', `${up.url}//evil.example/ok`, `127.0.0.1:${up.port}`],
        ['api', 'mailto:a@evil.example', 'another place'],
        ['api', '/\t/evil.example/x', 'another place'],
        ['api', `${up.url}/\t/evil.example/x`, `127.0.0.1:${up.port}`],
    ])
        for (const [method, status] of [['POST', 307], ['POST', 308], ['PUT', 301], ['DELETE', 302], ['PATCH', 307], ['POST', 300], ['PUT', 305]]) {
            const undone = status === 307 || status === 308;
            const order = prepare(status, { location, 'content-encoding': 'identity' });
            for (let n = 0; n < 2; n++) {
                const answer = await send(method, proxy, order);
                const { message, retriable } = assertProblem(answer, 502, 'UPSTREAM_FAILED', undone ? /nothing was done/ : /may have done it/);
                assert.match(message, /not behind this proxy/);
                assert.equal(retriable, undone);
                assert.ok(message.includes(`redirects this request to ${name},`), message);
                assert.ok(!answer.text.includes('user:pass'));
                assert.equal(answer.headers.location, undefined);
                assert.match(answer.headers['semel-effect'], /^ef_/);
            }
            assert.equal(up.times(order), undone ? 2 : 1, `${method} ${status}`);
        }
    const body = JSON.stringify({ order_id: prepare(307, { location: `${other.url}/ok` }) });
    const headers = { authorization: `Bearer ${gw.texts.agent}`, 'semel-scope': 'shop/1', 'content-type': 'application/json' };
    assert.equal((await fetch(`http://127.0.0.1:${gw.port}/proxy/api/moved`, { method: 'POST', headers, body })).status, 502);
    assert.equal((await own.post('/moved', { order_id: prepare(307, { location: `${up.url}//evil.example` }) })).status, 502);
    const beside = prepare(307, { location: 'api/x' });
    assertProblem(await gw.agent.post(`/proxy/based?order=${beside}`, { order_id: beside }, { headers: { 'semel-scope': 'shop/1' } }), 502, 'UPSTREAM_FAILED');
    assert.equal(other.seen.length, 0, 'a client that follows redirects goes nowhere');
});

test('a write that was redirected runs once the API does it', async () => {
    const order = prepare(308, { location: `${other.url}/ok` });
    assertProblem(await send('PUT', 'api', order), 502, 'UPSTREAM_FAILED');
    answers.set(order, { status: 200, headers: {} });
    for (let n = 0; n < 2; n++) assert.equal((await send('PUT', 'api', order)).status, 200);
    assert.equal(up.times(order), 2, 'and then it is a replay');
});

test('a write that is answered with 301 or 302 counts as done, and is replayed byte for byte', async () => {
    for (const method of ['PUT', 'PATCH', 'DELETE', 'POST'])
        for (const status of [301, 302]) {
            const order = prepare(status, { location: `${up.url}/ok/${newOrder()}`, etag: '"1"' });
            const [first, again] = [await send(method, 'api', order), await send(method, 'api', order)];
            assert.equal(first.status, status, first.text);
            assert.equal(again.headers['idempotent-replayed'], 'true');
            assert.deepEqual([again.status, again.text, again.headers.location, again.headers.etag], [status, first.text, first.headers.location, '"1"']);
            assert.equal(up.times(order), 1);
            assert.equal((await gw.effect(first.headers['semel-effect'])).state, 'succeeded');
        }
});

test('a write that is redirected to another place after it may have been done is recorded, and not repeated', async () => {
    const order = prepare(302, { location: `${other.url}/ok` });
    const first = await send('DELETE', 'api', order);
    assert.equal(assertProblem(first, 502, 'UPSTREAM_FAILED').retriable, false);
    assert.equal((await gw.effect(first.headers['semel-effect'])).state, 'succeeded');
    answers.set(order, { status: 200, headers: {} });
    assertProblem(await send('DELETE', 'api', order), 502, 'UPSTREAM_FAILED');
    assert.equal(up.times(order), 1);
});

test('a redirect of a write that names several places is refused, whichever is the first, for replays too', async () => {
    for (const location of [[`${other.url}/ok`, `${up.url}/ok`], [`${up.url}/ok`, `${other.url}/ok`], [`${up.url}/ok`, `${up.url}/1`]])
        for (const [method, status] of [['POST', 307], ['PUT', 302], ['POST', 300]]) {
            const order = prepare(status, { location });
            for (let n = 0; n < 2; n++) assertProblem(await send(method, 'api', order), 502, 'UPSTREAM_FAILED', /several places/);
        }
});

test('a read is led to the place that the API means, which is not one of the gateway', async () => {
    for (const [location, leads] of [['/login', `${up.url}/login`], ['../login', `${up.url}/v1/base/../login`], ['../../v1/effects', `${up.url}/v1/base/../../v1/effects`], [`${up.url}/login`, `${up.url}/login`], ['/v1/base/x', '/proxy/based/x']])
        assert.equal((await send('GET', 'based', prepare(302, { location }))).headers.location, leads);
});

test('a redirect that makes a read of a write, or is one of a read, leads where the API says', async () => {
    for (const [method, status] of [['POST', 303], ['PUT', 303], ['POST', 302], ['POST', 301], ['GET', 307], ['GET', 302], ['GET', 300]]) {
        const location = `${other.url}/ok`;
        const answer = await send(method, 'api', prepare(status, { location }));
        assert.equal(answer.status, status, answer.text);
        assert.equal(answer.headers.location, location);
    }
});

test('a client that follows a redirect of a write does it once, behind the ledger', async () => {
    const order_id = prepare(308, { location: `${up.url}/ok/${newOrder()}` });
    const before = up.seen.length;
    for (let n = 0; n < 2; n++) {
        const answer = await fetch(`http://127.0.0.1:${gw.port}/proxy/api/moved`, {
            method: 'POST',
            headers: { authorization: `Bearer ${gw.texts.agent}`, 'semel-scope': 'shop/1', 'content-type': 'application/json' },
            body: JSON.stringify({ order_id }),
        });
        assert.equal(answer.status, 200);
        assert.equal(new URL(answer.url).pathname.split('/')[1], 'proxy');
        assert.equal(answer.headers.get('idempotent-replayed'), n === 0 ? null : 'true');
    }
    assert.equal(up.seen.slice(before).filter((entry) => entry.path.startsWith('/ok/')).length, 1);
});

test('links to pages of the API lead back through the proxy', async () => {
    const link = `<${up.url}/items?page=2>; rel="next", <${other.url}/x>; rel="help", </items?page=9>; rel="last"`;
    for (const method of ['GET', 'POST']) {
        const answer = await send(method, 'api', prepare(200, { link, 'content-location': `${up.url}/items` }));
        const here = `http://127.0.0.1:${gw.port}/proxy/api`;
        assert.equal(answer.headers.link, `<${here}/items?page=2>; rel="next", <${other.url}/x>; rel="help", <${here}/items?page=9>; rel="last"`);
        assert.equal(answer.headers['content-location'], '/proxy/api/items');
    }
    for (const odd of ['<', '<>; rel=x', `<${up.url}/a`, 'x'])
        assert.equal((await send('GET', 'api', prepare(200, { link: odd }))).headers.link, odd);
});

await run();
