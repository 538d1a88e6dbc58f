// What the gateway is to MCP clients over HTTP, with a server behind it that speaks stdio: who may come
// in, sessions and their end, streams, both eras, people, and what is too much.

import fs from 'node:fs';
import { HttpClient, Site, alive } from './http_harness.mjs';
import { assert, assertDone, assertFresh, assertReplayed, assertVerdict, modernVersion, textOf } from './harness.mjs';
import { assertProblem } from '../gateway/harness.mjs';
import { eventually, run, sleep, test } from '../gateway/tap.mjs';

const tools = {
    append: { class: 'write' },
    look: { class: 'read' },
    put: { class: 'write', approval: { expires: '1h' } },
    wipe: { class: 'write', approval: { self_approval: true, expires: '1h' } },
};
const hints = (directory) => `${directory}/hints.json`;
const site = await Site.start({ contract: { tools }, config: { origins: ['https://page.example'] } });
const { place, gw } = site;
const effect = (what) => place.json('list', '--scope', 'shop').items.find((one) => one.args?.what === what);

const ping = { jsonrpc: '2.0', id: 1, method: 'ping' };
const start = {
    jsonrpc: '2.0', id: 0, method: 'initialize',
    params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'raw', version: '1' } },
};

// ---- the door

test('only a token of an agent comes in', async () => {
    const before = place.received('initialize').length;
    assertProblem(await gw.client.post('/mcp/s', start), 401, 'UNAUTHENTICATED');
    assertProblem(await gw.approver.post('/mcp/s', start), 403, 'NOT_ALLOWED');
    for (const method of ['GET', 'DELETE'])
        assertProblem(await gw.client.request(method, '/mcp/s'), 401, 'UNAUTHENTICATED');
    assert.equal(place.received('initialize').length, before, 'no server has heard of it');
});

test('pages and names that are not ours do not come in', async () => {
    const accept = 'application/json, text/event-stream';
    const ask = (headers) => gw.agent.post('/mcp/s', start, { headers: { accept, ...headers } });
    assertProblem(await ask({ origin: 'https://evil.example' }), 403, 'NOT_ALLOWED');
    assertProblem(await ask({ host: 'evil.example' }), 403, 'NOT_ALLOWED');
    const page = await ask({ origin: 'https://page.example' });
    assert.equal(page.status, 200, page.text);
    assert.equal(page.headers['access-control-allow-origin'], 'https://page.example');
    assert.match(page.headers['access-control-expose-headers'] ?? '', /mcp-session-id/i, 'the page can read its session');
    const wants = { origin: 'https://page.example', 'access-control-request-method': 'POST' };
    const preflight = await gw.client.request('OPTIONS', '/mcp/s', undefined, { headers: wants });
    assert.ok([200, 204].includes(preflight.status), preflight.text);
    assert.match(preflight.headers['access-control-allow-headers'], /mcp-session-id/i);
    assert.match(preflight.headers['access-control-allow-headers'], /mcp-protocol-version/i);
});

test('names and methods that there are not', async () => {
    assertProblem(await gw.agent.post('/mcp/other', ping), 404, 'NO_ROUTE');
    const put = await gw.agent.request('PUT', '/mcp/s', ping);
    assert.equal(put.status, 405, put.text);
    assert.match(put.headers.allow, /POST/);
});

test('what is no message is told so', async () => {
    const client = await site.open();
    for (const [text, code] of [['', -32700], ['{', -32700], ['7', -32600], ['{"jsonrpc":"2.0"}', -32600], ['[]', -32600]]) {
        const answer = await client.post(text);
        assert.ok([200, 400].includes(answer.status), `${text}: ${answer.text}`);
        assert.equal(answer.error.code, code, `${text}: ${answer.text}`);
    }
    assert.equal((await client.request('ping')).status, 200, 'the session lives on');
});

test('a body over the limit is 413, and nothing of it is done', async () => {
    const client = await site.open();
    const large = await client.call('append', { what: 'large', fill: 'x'.repeat(1 << 20) }).catch(() => null);
    // Whoever still writes may see the connection end instead.
    if (large) assert.equal(large.status, 413, large.text);
    assert.equal(place.effects('large'), 0);
    assertFresh(await client.call('append', { what: 'small', fill: 'x'.repeat(900_000) }), 'small: 1');
});

// ---- sessions

test('sessions: made by initialize, needed by everything else, and known to their own token only', async () => {
    const client = await site.open();
    assert.match(client.session, /^[\x21-\x7e]{20,}$/);
    assert.equal((await client.request('ping')).status, 200);
    const ask = async (who, session) => {
        const other = site.client({ token: who });
        other.session = session;
        return other.post(ping);
    };
    for (const [who, session, status] of [
        ['agent', null, 400], ['agent', 'no-such-session', 404], ['agent', 'x'.repeat(2000), 404],
        ['agent2', client.session, 404], ['stranger', client.session, 404], ['agent', client.session, 200],
    ]) {
        const answer = await ask(who, session);
        assert.equal(answer.status, status, `${who} ${session}: ${answer.text}`);
        if (status !== 200) assert.ok(answer.error.message.length > 5, answer.text);
    }
    // Nor can it be listened to, or ended.
    const stranger = site.client({ token: 'agent2' });
    stranger.session = client.session;
    assert.equal((await stranger.listen()).status, 404);
    assert.equal((await stranger.end()).status, 404);
    assert.equal((await client.request('ping')).status, 200);
});

test('each session has a server of its own; DELETE ends both', async () => {
    const [one, two] = [await site.open(), await site.open()];
    assert.notEqual(one.session, two.session);
    await Promise.all([one.call('look', { what: 'of-one' }), two.call('look', { what: 'of-two' })]);
    const pids = ['of-one', 'of-two'].map((what) => place.serverOf(what));
    assert.notEqual(...pids);
    const stream = one.listen();
    await sleep(50);
    assert.equal((await one.end()).status, 200);
    await stream;
    await eventually('its server has ended', () => !alive(pids[0]));
    assert.ok(alive(pids[1]), 'the other one has not');
    assert.equal((await one.request('ping')).status, 404);
    assert.equal((await one.end()).status, 404);
    assert.equal((await two.request('ping')).status, 200);
});

test('a session that is ended in the middle of a write: it goes on and is recorded', async () => {
    const client = await site.open();
    const args = { what: 'ended', script: 'effect mark:ended wait:400 answer' };
    const call = client.call('append', args).catch(() => null);
    await place.passed('ended');
    assert.equal((await client.end()).status, 200);
    await call;
    const next = await site.open();
    assertReplayed(await next.call('append', args), 'ended: 1');
    const pid = place.serverOf('ended');
    await eventually('its server has ended', () => !alive(pid));
});

test('a server that ends in peace ends its session: the client has to start over', async () => {
    const client = await site.open();
    const answer = await client.call('look', { what: 'peace', script: 'exit:0' });
    assert.ok(answer.error ?? answer.result?.isError, answer.text);
    const next = await client.request('ping');
    assert.equal(next.status, 404, next.text);
});

// ---- streams

test('what a server says beside its answer comes on the stream of the request', async () => {
    const client = await site.open();
    const call = client.call('append', { what: 'told', script: 'log progress:2 effect answer' }, { _meta: { progressToken: 't' } });
    const answer = await call;
    assertFresh(answer, 'told: 1');
    assert.equal(answer.type, 'text/event-stream');
    assert.deepEqual(answer.messages.map((one) => one.method ?? 'answer'),
        ['notifications/message', 'notifications/progress', 'notifications/progress', 'answer']);
    assert.match(answer.headers.get('cache-control'), /no-cache|no-store/);
});

test('what belongs to no request comes on the stream of the session, of which there is one', async () => {
    const client = await site.open();
    const stream = client.listen();
    await sleep(50);
    assertDone(await client.call('look', { what: 'listened', script: 'again changed log answer' }));
    await eventually('it is told', () => client.notes.length === 2);
    assert.deepEqual(client.notes.map((one) => one.method), ['notifications/tools/list_changed', 'notifications/message']);
    // Whoever comes back for it, for the connection broke, has it from then on.
    const again = client.listen();
    assert.equal((await stream).status, 200, 'the old one has ended');
    await client.call('look', { what: 'listened-2', script: 'again changed answer' });
    await eventually('it is told again', () => client.notes.length === 3);
    again.abort();
});

for (const [word, method, result] of [
    ['elicit', 'elicitation/create', { action: 'accept', content: { name: 'x' } }],
    ['sample', 'sampling/createMessage', { role: 'assistant', content: { type: 'text', text: 'x' }, model: 'm' }],
]) {
    test(`the server asks (${method}) on the stream of the call, and is answered by another POST`, async () => {
        const client = await site.open({ capabilities: { elicitation: {}, sampling: {} } });
        const asked = [];
        client.on(method, (params, message) => {
            asked.push(message);
            return result;
        });
        const args = { what: word, script: `${word} ${word} effect answer` };
        const answer = await client.call('append', args);
        assertFresh(answer, `${word}: 1`);
        assert.equal(asked.length, 2);
        assert.deepEqual(answer.messages.filter((one) => one.method === method).length, 2);
        assert.ok(textOf(answer).includes(JSON.stringify(result)), textOf(answer));
        assertReplayed(await client.call('append', args));
        assert.equal(asked.length, 2, 'a replay asks nobody');
    });
}

// ---- the modern era

test('modern: headers that do not say what the body says are refused', async () => {
    const client = await site.open({ modern: true });
    const call = (headers, what) => client.call('append', { what }, {}, { headers });
    for (const [n, headers] of [
        { 'mcp-method': 'tools/list' }, { 'mcp-method': null }, { 'mcp-name': 'look' }, { 'mcp-name': null },
        { 'mcp-protocol-version': '2025-11-25' }, { 'mcp-protocol-version': null },
    ].entries()) {
        const answer = await call(headers, `mismatch-${n}`);
        assert.equal(answer.status, 400, `${JSON.stringify(headers)}: ${answer.text}`);
        assert.equal(answer.error.code, -32020, answer.text);
        assert.equal(place.effects(`mismatch-${n}`), 0);
    }
    const encode = (text) => `=?base64?${Buffer.from(text).toString('base64')}?=`;
    assertFresh(await call({ 'mcp-name': encode('append') }, 'encoded'), 'encoded: 1');
    assert.equal((await call({ 'mcp-name': encode('look') }, 'mismatch-b')).status, 400);
    const read = (uri, name) => client.request('resources/read', { uri }, { headers: { 'mcp-name': name } });
    assert.equal((await read('file:///größe', encode('file:///größe'))).error.code, -32601, 'it has come to the server');
    assert.equal((await client.post({ ...ping, params: {} }, {})).error.code, -32602, 'a version in the header only');
});

test('modern: there are no sessions, and no stream without a request', async () => {
    const client = await site.open({ modern: true });
    assertFresh(await client.call('append', { what: 'no-session' }));
    const answer = await client.request('server/discover');
    assert.deepEqual(answer.result.supportedVersions, [modernVersion]);
    assert.equal(answer.headers.get('mcp-session-id'), null);
    for (const method of ['GET', 'DELETE']) {
        const refused = await client.exchange(method, { headers: client.headersOf() });
        assert.ok([400, 404, 405].includes(refused.status), `${method} ${refused.status}`);
    }
});

test('modern: clients that use the same ids and tokens at once share a server and do not mix', async () => {
    const clients = await Promise.all([1, 2, 3].map(() => site.open({ modern: true })));
    const names = clients.map((_, n) => `mixed-${n}`);
    const begun = clients.map((client, n) => client.call(n === 2 ? 'look' : 'append', {
        what: names[n], script: `effect mark:${names[n]} gate:mixed-go progress:2 answer`,
    }, { _meta: { progressToken: 1 } }, { id: 1 }));
    await Promise.all(names.map((name) => place.passed(name)));
    assert.equal(new Set(names.map((name) => place.serverOf(name))).size, 1, 'one server');
    place.mark('mixed-go');
    const answers = await Promise.all(begun);
    answers.forEach((answer, n) => {
        assertFresh(answer, `${names[n]}: 1`);
        assert.equal(answer.id, 1);
        const told = clients[n].notes.map((note) => [note.params.message, note.params.progressToken, note.params.progress]);
        assert.deepEqual(told, [[names[n], 1, 1], [names[n], 1, 2]], `what client ${n} was told`);
    });
});

test('modern: another token has a server of its own', async () => {
    const [one, two] = [await site.open({ modern: true }), await site.open({ modern: true, token: 'agent2' })];
    await one.call('look', { what: 'token-1' });
    await two.call('look', { what: 'token-2' });
    assert.notEqual(place.serverOf('token-1'), place.serverOf('token-2'));
});

test('modern: a call in several legs', async () => {
    const client = await site.open({ modern: true });
    const args = { what: 'legs', script: 'input effect answer' };
    const asked = await client.call('append', args);
    assert.equal(asked.result.resultType, 'input_required', asked.line);
    const more = {
        inputResponses: { which: { action: 'accept', content: { name: 'x' } } }, requestState: asked.result.requestState,
    };
    assertFresh(await client.call('append', args, more), 'legs: 1');
    assertReplayed(await client.call('append', args, more), 'legs: 1');
    assert.equal(place.effects('legs'), 1);
});

// ---- scopes

test('a call is in the scope of its token and server; what a client names must be inside of that', async () => {
    const client = await site.open();
    const at = (scope, what) => client.call('append', { what }, { _meta: { 'semel/scope': scope } });
    assertFresh(await client.call('append', { what: 'plain' }));
    assert.equal(effect('plain').scope, 'shop/s');
    assertFresh(await at('shop/order-7', 'inside'), 'inside: 1');
    assert.equal(effect('inside').scope, 'shop/order-7/s');
    assertFresh(await client.call('append', { what: 'inside' }), 'inside: 2'); // equal, and another action
    for (const scope of ['other', 'shopping', 'shop2/x', '']) {
        const answer = await at(scope, 'outside');
        if (scope === '') continue; // nothing is named
        assertVerdict(answer, 'BAD_ARGUMENTS', /outside/);
    }
    assert.ok(place.effects('outside') <= 1);
    assertFresh(await (await site.open({ token: 'stranger' })).call('append', { what: 'plain' }), 'plain: 2');
});

// ---- people

test('an approval is awaited, given by another token, and the retry runs', async () => {
    const client = await site.open();
    const args = { what: 'pending' };
    const verdict = assertVerdict(await client.call('put', args), 'AWAITING_APPROVAL');
    assert.equal(place.effects('pending'), 0);
    const request = (await gw.effect(verdict.effect)).request;
    assertProblem(await gw.agent.post(`/v1/effects/${verdict.effect}/approve`, { request }), 403, 'NOT_ALLOWED');
    // A client that knows of it and asks again waits for it.
    const waits = client.call('put', args);
    await sleep(150);
    const given = await gw.approver.post(`/v1/effects/${verdict.effect}/approve`, { request });
    assert.equal(given.status, 200, given.text);
    assertFresh(await waits, 'pending: 1');
    assertReplayed(await client.call('put', args), 'pending: 1');
    assert.equal(place.effects('pending'), 1);
});

test('who may approve himself is asked on the stream of the call', async () => {
    const client = await site.open({ capabilities: { elicitation: {} } });
    const forms = [];
    client.on('elicitation/create', (params) => {
        forms.push(params);
        return { action: 'accept', content: { approve: true } };
    });
    assertFresh(await client.call('wipe', { what: 'own' }), 'own: 1');
    assert.equal(forms.length, 1);
    assert.match(forms[0].message, /wipe/);
    assertVerdict(await (await site.open()).call('wipe', { what: 'cannot-ask' }), 'AWAITING_APPROVAL');
    const young = await site.open({ modern: true, capabilities: { elicitation: {} } });
    const asked = await young.call('wipe', { what: 'own-young' });
    assert.equal(asked.result.resultType, 'input_required', asked.line);
    const [name] = Object.keys(asked.result.inputRequests);
    const more = { inputResponses: { [name]: { action: 'accept', content: { approve: true } } }, requestState: asked.result.requestState };
    assertFresh(await young.call('wipe', { what: 'own-young' }, more), 'own-young: 1');
});

test('a question of ours that nobody answers ends with the call, and the answer of a stranger is none', async () => {
    const client = await site.open({ capabilities: { elicitation: {} } });
    let question = null;
    client.serve = (message) => (question = message);
    const call = client.call('wipe', { what: 'unanswered' });
    await eventually('it is asked', () => question);
    const other = await site.open({ capabilities: { elicitation: {} } });
    await other.post({ jsonrpc: '2.0', id: question.id, result: { action: 'accept', content: { approve: true } } });
    await sleep(100);
    assert.equal(place.effects('unanswered'), 0);
    call.abort();
    await sleep(50);
    assert.equal((await client.request('ping')).status, 200);
    assert.equal(effect('unanswered').state, 'pending_approval');
});

test('tools that the contract hides are not listed, and cannot be called', async () => {
    const hidden = await Site.start({ contract: { unlisted: 'hide', tools: { append: { class: 'write' }, look: { class: 'read' } } } });
    for (const modern of [false, true]) {
        const client = await hidden.open({ modern });
        const { result } = await client.request('tools/list');
        assert.deepEqual(result.tools.map((tool) => tool.name), ['append', 'look']);
        assertVerdict(await client.call('secret', { what: 'hidden' }), 'UNKNOWN_TOOL');
    }
    assert.equal(hidden.place.effects('hidden'), 0);
});

// ---- batches

test('a batch of 2025-03-26: its answers come back together, and writes are done once', async () => {
    const client = await site.open({ version: '2025-03-26' });
    assert.equal(client.agreed, '2025-03-26');
    const call = (id, name, what) => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: { what } } });
    const batch = [call('a', 'append', 'batch'), { jsonrpc: '2.0', method: 'notifications/roots/list_changed' }, call('b', 'look', 'batched'), call('c', 'append', 'batch'), { ...ping, id: 'p' }];
    const answer = await client.post(batch);
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual(answer.messages.map((one) => one.id).sort(), ['a', 'b', 'c', 'p']);
    assert.equal(place.effects('batch'), 1);
    const said = await client.post([{ jsonrpc: '2.0', method: 'notifications/roots/list_changed' }]);
    assert.equal(said.status, 202, said.text);
    await eventually('both have come', () => place.received('notifications/roots/list_changed').length === 2);
});

test('another revision has no batches', async () => {
    const client = await site.open();
    const answer = await client.post([{ ...ping, id: 'p' }]);
    assert.equal(answer.error?.code, -32600, answer.text);
});

// ---- bytes

test('what is no write is passed on byte for byte', async () => {
    const client = await site.open();
    const text = '{ "jsonrpc":"2.0","id": "\\u0061b" ,"method":"example/echo", "params":{"n":1.50e+2,"big":12345678901234567890, "x":"\\/"}}';
    const answer = await client.post(text);
    assert.equal(answer.status, 200, answer.text);
    assert.ok(fs.readFileSync(`${place.directory}/received`, 'utf8').split('\n').includes(text), 'as it came');
    assert.ok(answer.text.includes('"id":"\\u0061b"'), answer.text);
});

await run();
