// The gateway decides how a server over HTTP reads a request: it labels the body, and takes a deciding
// header only once. No client can make the server see another message or session than the gateway does.

import http from 'node:http';
import { Site } from './http_harness.mjs';
import { WebServer } from './http_server.mjs';
import { assert, assertFresh } from './harness.mjs';
import { run, test } from '../gateway/tap.mjs';

const contract = { tools: { append: { class: 'write' }, look: { class: 'read' } } };
const web = await WebServer.start({ sessions: true });
const site = await Site.start({
    contract, servers: { web: { url: web.url, headers: { 'x-team': 'ours' } } },
});
const client = await site.open({ name: 'web' });
const child = await Site.start({ contract });
const lines = await child.open();

// A request with exactly these headers, in their order, and what came back.
function raw(one, { method = 'POST', headers = [], body = '', query = '', type = ['content-type', 'application/json'] }) {
    const { host, pathname } = new URL(one.url);
    const [name, port] = host.split(':');
    const all = [
        'host', host, 'authorization', one.headers.authorization, ...type,
        'accept', 'application/json, text/event-stream', 'content-length', String(Buffer.byteLength(body)), ...headers,
    ];
    return new Promise((resolve, reject) => {
        const request = http.request({ host: name, port, path: pathname + query, method, headers: all }, async (answer) => {
            const text = Buffer.concat(await answer.toArray()).toString();
            resolve({ status: answer.statusCode, text });
        });
        request.on('error', reject);
        request.end(body);
    });
}
const sessionOf = (one) => ['mcp-session-id', one.session, 'mcp-protocol-version', one.agreed];
const ping = '{"jsonrpc":"2.0","id":1,"method":"ping"}';

// For a reader of UTF-7 the string ends early, and a call follows.
const polyglot = '{"jsonrpc":"2.0","id":1,"method":"ping","x":"+ACIALAAi-method+ACIAOgAi-tools/call+ACIALAAi-params+ACIAOgB7ACI-name+ACIAOgAi-append+ACIALAAi-arguments+ACIAOgB7ACI-what+ACIAOgAi-utf7+ACIAfQB9ACwAIg-y+ACIAOgAi-"}';

for (const [kind, one] of [['over HTTP', client], ['over stdio', lines]]) {
    test(`a body that is labelled as anything but JSON in UTF-8 is refused; a server ${kind}`, async () => {
        const before = web.received.length;
        for (const value of [
            'application/json; charset = utf-7', 'application/json;charset=utf-7', 'application/json; charset=utf-8; charset=utf-7',
            'application/json; charset=utf-7; charset=utf-8', 'application/json; xcharset=utf-7', 'application/json; charset="utf-7"',
            'application/json; charset=utf-16', 'application/json; charset=', 'application/json; charset', 'application/json;',
            'application/json; charset=utf-8;', 'application/json; charset=utf8', 'application/json; charset=\'utf-8\'',
            'application/json, application/json', 'application/json application/json', 'text/plain', 'text/plain; application/json',
            'application/json+x', 'application/jsonx', 'xapplication/json', 'application/vnd.api+json', 'application/json; boundary=x',
            'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x', '',
        ]) {
            const answer = await raw(one, { type: ['content-type', value], headers: sessionOf(one), body: polyglot });
            assert.equal(answer.status, 415, `${value}: ${answer.text}`);
            assert.match(answer.text, /application\/json/);
        }
        assert.equal((await raw(one, { type: [], headers: sessionOf(one), body: ping })).status, 415);
        for (const coding of ['gzip', 'deflate', 'br', 'utf-7', 'identity, gzip', 'x', '']) {
            const answer = await raw(one, { headers: [...sessionOf(one), 'content-encoding', coding], body: ping });
            assert.equal(answer.status, 415, `${coding}: ${answer.text}`);
        }
        const two = await raw(one, {
            type: ['content-type', 'application/json', 'Content-Type', 'application/json; charset=utf-7'], headers: sessionOf(one), body: polyglot,
        });
        assert.equal(two.status, 400, two.text);
        assert.match(two.text, /more than one Content-Type/);
        assert.equal(web.received.length, before, 'nothing came through');
    });

    test(`a body that is labelled as JSON in UTF-8 is taken, however that is written; a server ${kind}`, async () => {
        for (const value of [
            'application/json', 'Application/JSON', 'application/json; charset=utf-8', 'application/json;charset=UTF-8',
            'application/json ; charset="utf-8"', 'application/json; Charset=Utf-8',
        ])
            assert.equal((await raw(one, { type: ['content-type', value], headers: sessionOf(one), body: ping })).status, 200, value);
        const answer = await raw(one, { headers: [...sessionOf(one), 'content-encoding', 'identity'], body: ping });
        assert.equal(answer.status, 200);
    });
}

const shown = (entry) => {
    const names = new Set();
    for (let i = 0; i < entry.raw.length; i += 2) names.add(entry.raw[i].toLowerCase());
    return names;
};

test('a server over HTTP gets the protocol\'s headers of a client, and no others; the label is ours', async () => {
    const extra = [
        'x-http-method-override', 'DELETE', 'x-method-override', 'GET', 'content-language', 'de', 'content-location', '/x',
        'content-range', 'bytes 0-1/2', 'x-original-url', '/other', 'x-forwarded-for', '1.2.3.4', 'cookie', 'a=b', 'x-team', 'theirs',
        'X_Team', 'theirs too', 'accept-charset', 'utf-7', 'te', 'trailers',
        'x-team', 'theirs again', 'accept-language', 'de', 'user-agent', 'test',
    ];
    const bodies = {
        passing: ping,
        call: '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"append","arguments":{"what":"labelled"}}}',
    };
    const known = new Set([
        'host', 'accept', 'accept-language', 'user-agent', 'mcp-session-id', 'mcp-protocol-version', 'content-type', 'content-length',
        'x-team', 'traceparent',
    ]);
    for (const [what, body] of Object.entries(bodies)) {
        const answer = await raw(client, { type: ['content-type', 'APPLICATION/json;charset="UTF-8"'], headers: [...sessionOf(client), ...extra], body });
        assert.equal(answer.status, 200, answer.text);
        const entry = web.received.at(-1);
        assert.equal(entry.message.method, JSON.parse(body).method);
        for (const name of shown(entry)) assert.ok(known.has(name), `${what}: ${name} was passed on`);
        assert.equal(entry.headers['content-type'], 'application/json', what);
        assert.equal(entry.headers['x-team'], 'ours', what);
        assert.equal(entry.headers['accept-language'], 'de');
    }
});

test('a header that decides something and is there twice is refused', async () => {
    const other = await site.open({ name: 'web', token: 'agent2' });
    const before = web.received.length;
    for (const [name, ...values] of [
        ['Mcp-Session-Id', client.session, other.session], ['Mcp-Session-Id', other.session, client.session],
        ['MCP-Protocol-Version', '2025-11-25', '2026-07-28'], ['Mcp-Method', 'ping', 'tools/call'], ['Mcp-Name', 'look', 'append'],
        ['Mcp-Param-Region', 'a', 'b'], ['Last-Event-ID', '1', '2'], ['Idempotency-Key', 'a', 'b'], ['Semel-Scope', 'a', 'b'],
        ['Content-Encoding', 'identity', 'gzip'], ['Authorization', 'a', client.headers.authorization],
    ]) {
        for (const method of ['POST', 'GET', 'DELETE']) {
            const body = method === 'POST' ? ping : '';
            const headers = [name, values[0], name.toLowerCase(), values[1]];
            const answer = await raw(client, { method, headers, body });
            assert.equal(answer.status, 400, `${method} ${name}: ${answer.text}`);
            assert.match(answer.text, /more than one/);
            if (!name.includes('-')) continue;
            const spelled = await raw(client, { method, headers: [name.replaceAll('-', '_'), values[1]], body });
            assert.equal(spelled.status, 400, `${name} with underscores: ${spelled.text}`);
            assert.match(spelled.text, /spell/);
        }
    }
    assert.equal(web.received.length, before);
    assert.ok(web.sessions.has(other.serverSession), 'the session of somebody else lives on');
    assert.equal((await other.request('ping')).status, 200);
});

test('a query of the client\'s is not put behind the address of a server', async () => {
    for (const body of [ping, '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"look","arguments":{"what":"q"}}}']) {
        const answer = await raw(client, { headers: sessionOf(client), body, query: '?account=other&sessionId=1' });
        assert.equal(answer.status, 200, answer.text);
        assert.equal(web.received.at(-1).url, new URL(web.url).pathname);
    }
});

test('a session is its owner\'s, however others write its name', async () => {
    const other = await site.open({ name: 'web', token: 'agent2' });
    for (const name of [
        `${other.session} `, `${other.session}\t`, `  ${other.session}`, `${other.session}\u00a0`, `${other.session}, x`, `x, ${other.session}`,
        `"${other.session}"`, `${other.session};`, other.session.toUpperCase(), other.session.toLowerCase(),
    ]) {
        for (const method of ['POST', 'GET', 'DELETE']) {
            const answer = await raw(client, { method, headers: ['mcp-session-id', name], body: method === 'POST' ? ping : '' });
            assert.equal(answer.status, 404, `${method} <${name}>: ${answer.text}`);
        }
    }
    assert.equal((await other.request('ping')).status, 200);
});

test('a header that names another method than the body is refused, whatever passes otherwise', async () => {
    const before = web.received.length;
    for (const body of [ping, '{"jsonrpc":"2.0","method":"notifications/initialized"}', '{"jsonrpc":"2.0","id":1,"result":{}}', `[${ping}]`]) {
        const answer = await raw(client, { headers: [...sessionOf(client), 'mcp-method', 'tools/call', 'mcp-name', 'append'], body });
        assert.equal(answer.status, 400, answer.text);
    }
    assert.equal(web.received.length, before);
    assert.equal((await raw(client, { headers: [...sessionOf(client), 'mcp-method', 'ping'], body: ping })).status, 200);
});

test('what has no body in the protocol brings none', async () => {
    const body = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"append","arguments":{"what":"bodies"}}}';
    const before = web.received.length;
    for (const method of ['GET', 'DELETE'])
        assert.equal((await raw(client, { method, headers: sessionOf(client), body })).status, 400);
    assert.equal(web.received.length, before);
    assertFresh(await client.call('append', { what: 'last' }), 'last: 1');
});

await run();
