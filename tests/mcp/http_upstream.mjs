// Servers that speak Streamable HTTP, and misbehave: behind the gateway for clients over HTTP, and behind
// `semel mcp --upstream` for clients over stdio. Whatever they do, a write is done once, and who asks is
// told the truth.

import fs from 'node:fs';
import http from 'node:http';
import { Site, UpstreamPlace } from './http_harness.mjs';
import { WebServer } from './http_server.mjs';
import {
    assert, assertDone, assertFresh, assertReplayed, assertVerdict, effectOf, textOf,
} from './harness.mjs';
import { eventually, run, sleep, test } from '../gateway/tap.mjs';

const tools = {
    append: { class: 'write' }, look: { class: 'read' }, region: { class: 'write' },
    put: { class: 'write', on_repeat: 'run', repeat_after: '300ms' }, secret: { class: 'write', approval: { self_approval: true } },
};
const contract = { defaults: { loop: 'off' }, tools }; // what is asked for often here is no loop
const [web, plain] = [await WebServer.start({ sessions: true }), await WebServer.start()];
const site = await Site.start({
    contract,
    servers: {
        web: { url: web.url, headers: { authorization: 'Bearer ${SECRET}' } }, plain: { url: plain.url },
    },
    env: { SECRET: 'upstream-secret' },
});
const { gw } = site;

// The same server behind the proxy on stdio.
const lines = new UpstreamPlace(web.url, { contract });

// A client for each front: raw HTTP through the gateway, lines through the proxy.
const fronts = {
    gateway: {
        open: (options = {}) => site.open({ name: 'web', ...options }),
    },
    stdio: {
        open: (options = {}) => lines.open(options),
    },
};

for (const [front, { open }] of Object.entries(fronts)) {
    const name = (what) => `${front}-${what}`;

    // ---- what broke after the effect

    for (const [title, script] of [
        ['answers 500', 'effect status:500'], ['answers 503', 'effect status:503'], ['answers 202', 'effect taken'],
        ['closes the connection', 'effect hang'], ['breaks its stream', 'effect stream break'],
        ['ends its stream without an answer', 'effect stream empty'], ['answers with half a message', 'effect half'],
        ['answers with what is no message', 'effect junk'],
    ]) {
        test(`${front}: a server that ${title} after the effect leaves a doubt, and is not asked again`, async () => {
            const client = await open();
            const args = { what: name(script.replaceAll(' ', '-')), script };
            const verdict = assertVerdict(await client.call('append', args), 'IN_DOUBT');
            assertVerdict(await client.call('append', args), 'IN_DOUBT', new RegExp(verdict.effect));
            assert.equal(web.effects(args.what), 1);
            assert.equal(web.calls(args.what).length, 1, 'it was sent once');
            assertFresh(await client.call('append', { what: `${args.what}-next` }), `${args.what}-next: 1`);
        });
    }

    for (const modern of [false, true]) {
        test(`${front}: a stream that breaks after the effect, with ids (${modern ? 'modern: that is the end' : 'legacy: gone on with'})`, async () => {
            const client = await open({ modern });
            const args = { what: name(`resumed-${modern}`), script: 'ids effect wait:30 break wait:50 answer' };
            const answer = await client.call('append', args);
            if (modern) assertVerdict(answer, 'IN_DOUBT');
            else {
                assertFresh(answer, `${args.what}: 1`);
                assertReplayed(await client.call('append', args), `${args.what}: 1`);
            }
            assert.equal(web.effects(args.what), 1);
            assert.equal(web.calls(args.what).length, 1);
        });
    }

    test(`${front}: a server that closes its stream and wants to be asked for the rest`, async () => {
        const client = await open();
        const args = { what: name('polled'), script: 'ids:20 close asked:1 effect progress close asked:2 answer' };
        const before = web.received.length;
        assertFresh(await client.call('append', args, { _meta: { progressToken: 'p' } }), `${args.what}: 1`);
        const gets = web.received.slice(before).filter((one) => one.headers['last-event-id']);
        assert.ok(gets.length >= 2, 'it was asked');
        for (const one of gets) assert.equal(one.verb, 'GET');
        assert.equal(client.progress('p').length, 1, 'nothing is told twice');
        const read = await client.call('look', { what: name('polled-read'), script: 'ids:20 close wait:60 answer' });
        if (front === 'stdio') {
            assertFresh(read);
            return;
        }
        // What only reads passes as it is: it is the client who comes back, by the server's own ids.
        const last = /^id: (.*)$/m.exec(read.text)[1];
        await sleep(80);
        const headers = { ...client.headersOf(), accept: 'text/event-stream', 'last-event-id': last };
        const rest = await client.exchange('GET', { headers }, read.id);
        assert.match(rest.text, /polled-read/);
    });

    test(`${front}: a server that does not give the rest of a stream leaves a doubt`, async () => {
        const client = await open();
        web.options.refuseResume = 404;
        const args = { what: name('no-rest'), script: 'ids effect wait:30 break' };
        const answer = await client.call('append', args);
        web.options.refuseResume = 0;
        assertVerdict(answer, 'IN_DOUBT');
        assert.equal(web.effects(args.what), 1);
    });

    // ---- what was turned down

    for (const [title, word, status] of [
        ['400', 'refuse:400', 400], ['401', 'status:401', 401], ['403', 'status:403', 403], ['429', 'status:429', 429],
    ]) {
        test(`${front}: a write that is turned down with ${title} was not done, and may be tried again`, async () => {
            const client = await open();
            const args = { what: name(`down-${status}`), script: word };
            const answer = await client.call('append', args);
            if (front === 'gateway') {
                assert.equal(answer.status, status, answer.text);
                assert.match(answer.text, word.startsWith('refuse') ? /turned down/ : /^the status is \d+$/);
                if (word.startsWith('status')) {
                    assert.equal(answer.type, 'text/plain');
                    assert.deepEqual([answer.headers.get('x-why'), answer.headers.get('retry-after')], ['said so', '7']);
                }
            } else {
                assert.ok(answer.error ?? answer.result.isError, answer.line);
            }
            const again = await client.call('append', args);
            assert.equal(web.calls(args.what).length, 2, 'it is asked again');
            if (front === 'gateway') assert.equal(again.status, status);
        });
    }

    test(`${front}: a session that the server has forgotten`, async () => {
        const client = await open();
        assertFresh(await client.call('append', { what: name('before') }));
        web.sessions.clear();
        const args = { what: name('forgotten') };
        const answer = await client.call('append', args);
        if (front === 'gateway') {
            assert.equal(answer.status, 404, answer.text); // the client starts over
            await client.initialize();
        }
        const again = front === 'gateway' || answer.result?.isError ? await client.call('append', args) : answer;
        assertDone(again, `${args.what}: 1`);
        assert.equal(web.effects(args.what), 1);
    });

    // ---- what is between

    test(`${front}: progress of a call, also for who waits for the same`, async () => {
        const [one, two] = [await open(), await open()];
        const args = { what: name('progress'), script: 'mark:p effect progress gate:p-go progress progress answer' };
        web.marks.delete('p');
        web.marks.delete('p-go');
        const first = one.call('append', args, { _meta: { progressToken: 'a' } });
        await web.passed('p');
        await eventually('the first hears of it', () => one.progress('a').length === 1);
        const second = two.call('append', args, { _meta: { progressToken: 'b' } });
        if (front === 'gateway') await eventually('the second waits', async () => (await gw.metric(/^semel_requests_parked$/)) > 0);
        web.mark('p-go');
        assertFresh(await first, `${args.what}: 1`);
        assertReplayed(await second, `${args.what}: 1`);
        assert.deepEqual(one.progress('a').map((note) => note.params.progress), [1, 2, 3]);
        if (front === 'gateway') assert.deepEqual(two.progress('b').map((note) => note.params.progress), [2, 3]);
        assert.equal(web.effects(args.what), 1);
    });

    test(`${front}: the server asks in the middle of a call, and is answered`, async () => {
        const client = await open({ capabilities: { elicitation: {} } });
        client.on('elicitation/create', () => ({ action: 'accept', content: { name: 'x' } }));
        const args = { what: name('asks'), script: 'elicit effect elicit answer' };
        const answer = await client.call('append', args);
        assertFresh(answer, `${args.what}: 1`);
        assert.match(textOf(answer), /"name":"x"/);
        assertReplayed(await client.call('append', args), `${args.what}: 1`);
    });

    test(`${front}: a cancel of a write is absorbed, one of a read is passed on`, async () => {
        const client = await open();
        const args = { what: name('cancel'), script: `mark:${name('c')} gate:${name('c-go')} effect answer` };
        client.nextId = 500 + (front === 'gateway' ? 0 : 100);
        const call = client.call('append', args);
        await web.passed(name('c'));
        await client.cancel(call.id);
        const retry = client.call('append', args);
        await sleep(100);
        web.mark(name('c-go'));
        assertDone(await retry, `${args.what}: 1`);
        assert.equal(web.effects(args.what), 1);
        assert.ok(!web.marks.has(`cancelled-${call.id}`), 'the server is not told');
        const read = client.call('look', { what: name('cr'), script: `mark:${name('cr')} never` });
        await web.passed(name('cr'));
        await client.cancel(read.id);
        await eventually('the server is told', () => web.marks.has(`cancelled-${read.id}`));
        const [told] = web.of('notifications/cancelled').slice(-1);
        assert.ok(web.sessions.has(told.headers['mcp-session-id']), 'in its session');
        for (const one of [call, read]) one.abort ? one.abort() : one.catch(() => {});
    });

    test(`${front}: the server gets its own credentials, and those of nobody else`, async () => {
        const client = await open();
        await client.call('append', { what: name('credentials') });
        const [one] = web.calls(name('credentials'));
        assert.equal(one.headers.authorization, front === 'gateway' ? 'Bearer upstream-secret' : undefined);
        for (const value of Object.values(one.headers)) assert.ok(!String(value).includes('smt_'), String(value));
    });
}

// ---- the gateway alone

test('gateway: what is no call of a tool passes as it is: status, headers and body', async () => {
    const client = await site.open({ name: 'web' });
    const odd = { date: 0, connection: 0, 'keep-alive': 0, 'x-content-type-options': 0, 'cache-control': 0, server: 0, 'transfer-encoding': 0, 'content-length': 0, traceparent: 0, 'x-request-id': 0 };
    const shown = (answer) => [answer.status, answer.text, Object.fromEntries([...answer.headers].filter(([name]) => !(name in odd)))];
    const direct = site.client({ name: 'web' });
    Object.assign(direct, { url: web.url, headers: {}, session: client.serverSession, agreed: client.agreed, place: null });
    for (const message of [
        { jsonrpc: '2.0', id: 'a', method: 'ping' },
        '{ "jsonrpc":"2.0","id": "\\u0061b" ,"method":"example/echo", "params":{"n":1.50e+2,"big":12345678901234567890}}',
        { jsonrpc: '2.0', id: 'b', method: 'example/status', params: { status: 418 } },
        { jsonrpc: '2.0', id: 'c', method: 'example/status', params: { status: 503 } },
        { jsonrpc: '2.0', id: 'd', method: 'tools/list' },
        { jsonrpc: '2.0', id: 'e', method: 'no/such/method' },
        { jsonrpc: '2.0', method: 'notifications/roots/list_changed' },
        { jsonrpc: '2.0', id: 99, result: {} },
    ]) {
        const [there, here] = [await direct.post(message), await client.post(message)];
        assert.deepEqual(shown(here), shown(there));
        const [one, two] = web.received.slice(-2);
        assert.equal(two.text, one.text, 'and the server got the same bytes');
        assert.equal(two.headers['mcp-session-id'], one.headers['mcp-session-id']);
    }
    const nobody = site.client({ name: 'web' });
    const wrong = await nobody.post({ jsonrpc: '2.0', id: 1, method: 'ping' });
    assert.equal(wrong.status, 400);
    assert.match(wrong.text, /a session is needed/, 'in the words of the server');
});

test('gateway: what only reads is asked each time, and passed on as it is', async () => {
    const client = await site.open({ name: 'web' });
    for (const [script, status] of [['effect answer', 200], ['effect answer', 200], ['status:418', 418], ['status:503', 503], ['refuse:404', 404]]) {
        const answer = await client.call('look', { what: 'looked', script });
        assert.equal(answer.status, status, answer.text);
        if (status === 200) assert.equal(answer.headers.get('x-server'), 'web');
        if (script.startsWith('status')) assert.deepEqual([answer.type, answer.text], ['text/plain', `the status is ${status}`]);
    }
    assert.equal(web.effects('looked'), 2);
});

test('gateway: what could be read in two ways reaches no server', async () => {
    const client = await site.open({ name: 'web' });
    const before = web.received.length;
    for (const text of [
        '{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"append","arguments":{"what":"twice"}}}',
        '[{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"append","arguments":{"what":"twice"}}}]',
        '[[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"append","arguments":{"what":"twice"}}}]]',
        '{"jsonrpc":"2.0","method":"tools/call","params":{"name":"append","arguments":{"what":"twice"}}}',
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"append","arguments":{"what":"twice"}}',
    ]) {
        const answer = await client.post(text);
        assert.ok([200, 202, 400].includes(answer.status), answer.text);
    }
    assert.equal(web.received.length, before);
    assert.equal(web.effects('twice'), 0);
});

test('gateway: the stream of a session, and its end, are the server\'s', async () => {
    const client = await site.open({ name: 'web' });
    client.listen();
    await eventually('the server has a stream', () => web.sessions.get(client.serverSession).stream);
    web.tell(client.serverSession, 'notifications/tools/list_changed');
    await eventually('it is told', () => client.notes.length === 1);
    assert.equal((await client.end()).status, 200);
    assert.ok(!web.sessions.has(client.serverSession));
    assert.equal((await client.request('ping')).status, 404);
});

test('gateway: clients without sessions that use the same ids at once do not mix', async () => {
    for (const modern of [true, false]) {
        const clients = [1, 2, 3].map(() => site.client({ name: 'plain', modern }));
        const names = clients.map((_, n) => `mixed-${modern}-${n}`);
        const begun = clients.map((client, n) => client.call(n === 2 ? 'look' : 'append', {
            what: names[n], script: `effect mark:${names[n]} gate:go-${modern} progress progress answer`,
        }, { _meta: { progressToken: 1 } }, { id: 1 }));
        await Promise.all(names.map((name) => plain.passed(name)));
        plain.mark(`go-${modern}`);
        (await Promise.all(begun)).forEach((answer, n) => {
            assertFresh(answer, `${names[n]}: 1`);
            const told = clients[n].notes.map((note) => [note.params.message, note.params.progressToken, note.params.progress]);
            assert.deepEqual(told, [[names[n], 1, 1], [names[n], 1, 2]], `what client ${n} was told`);
        });
    }
});

test('gateway: clients without sessions: a cancel of one is none of another', async () => {
    const [one, two] = [site.client({ name: 'plain' }), site.client({ name: 'plain' })];
    const call = one.call('append', { what: 'whose', script: 'effect mark:whose gate:whose-go answer' }, {}, { id: 1 });
    await plain.passed('whose');
    assert.equal((await two.cancel(1)).status, 202);
    await sleep(50);
    plain.mark('whose-go');
    assertFresh(await Promise.race([call, sleep(3000)]) ?? assert.fail('it got no answer'), 'whose: 1');
});

test('gateway: a client that hangs up: a write goes on, a modern read is given up', async () => {
    for (const modern of [false, true]) {
        const client = await site.open({ name: 'web', modern });
        const args = { what: `left-${modern}`, script: `effect stream mark:left-${modern} gate:left-${modern}-go answer` };
        const lost = client.call('append', args);
        await web.passed(`left-${modern}`);
        lost.abort();
        await sleep(700);
        assert.notEqual(web.calls(args.what)[0].hungUp, true, 'the exchange goes on');
        const retry = client.call('append', args);
        await sleep(50);
        web.mark(`left-${modern}-go`);
        assertReplayed(await retry, `${args.what}: 1`);
        assert.equal(web.effects(args.what), 1);
    }
    const young = await site.open({ name: 'web', modern: true });
    const read = young.call('look', { what: 'left-read', script: 'mark:left-read never' });
    await web.passed('left-read');
    read.abort();
    await eventually('the server sees it', () => web.calls('left-read')[0].hungUp);
});

test('gateway: a batch for a server over HTTP goes as it is, unless it calls a tool', async () => {
    const client = await site.open({ name: 'web' });
    const reply = await client.post([{ jsonrpc: '2.0', id: 9, result: {} }]);
    assert.equal(reply.status, 400, 'the server has no batches');
    assert.ok(web.received.at(-1).batch);
    const call = (id, name, what) => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: { what } } });
    const before = web.received.length;
    const answer = await client.post([call('a', 'append', 'in-batch'), call('b', 'append', 'in-batch'), { jsonrpc: '2.0', method: 'notifications/x' }]);
    assert.deepEqual(answer.messages.map((one) => one.id).sort(), ['a', 'b']);
    assert.equal(web.effects('in-batch'), 1);
    const notice = await eventually('the notice has come', () => web.received.slice(before).find((one) => one.message?.method === 'notifications/x'));
    assert.equal(notice.headers['mcp-session-id'], client.serverSession, 'in its session');
});

test('gateway: two of them on one ledger and server', async () => {
    const other = await site.gateway();
    const [one, two] = [await site.open({ name: 'web' }), await site.open({ name: 'web', gw: other })];
    const args = { what: 'both', script: 'effect mark:both gate:both-go answer' };
    const first = one.call('append', args);
    await web.passed('both');
    const second = two.call('append', args);
    await sleep(100);
    web.mark('both-go');
    assertFresh(await first, 'both: 1');
    assertReplayed(await second, 'both: 1');
    // One of them dies in the middle of a call.
    const lost = { what: 'killed', script: 'effect mark:killed never' };
    two.call('append', lost).catch(() => {});
    await web.passed('killed');
    await other.kill();
    assertVerdict(await one.call('append', lost), 'IN_DOUBT');
    assert.equal(web.effects('killed'), 1);
});

test('gateway: it is told to end in the middle of a write: that ends, is recorded and answered', async () => {
    const other = await site.gateway();
    const client = await site.open({ name: 'web', gw: other });
    const args = { what: 'drained', script: 'effect mark:drained wait:500 answer' };
    const call = client.call('append', args);
    const read = client.call('look', { what: 'drained-read', script: 'mark:drained-read wait:200 status:500' });
    await Promise.all([web.passed('drained'), web.passed('drained-read')]);
    const ended = other.stop();
    assertFresh(await call, 'drained: 1');
    assert.equal((await read).status, 500);
    assert.equal((await ended).code, 0);
});

test('gateway: it is told to end, and streams for what may happen end at once', async () => {
    const other = await site.gateway();
    const client = await site.open({ name: 'web', gw: other });
    const stream = client.listen();
    await eventually('the server has a stream', () => web.sessions.get(client.serverSession).stream);
    const young = site.client({ name: 'plain', modern: true, gw: other });
    const listening = young.request('subscriptions/listen', { notifications: { toolsListChanged: true } });
    await plain.passed('listening');
    const before = Date.now();
    assert.equal((await other.stop()).code, 0);
    await Promise.allSettled([stream, listening]);
    assert.ok(Date.now() - before < 25_000, 'it does not wait for `drain`');
});

test('gateway: modern headers go with the call, and the server\'s own key of arguments', async () => {
    const client = await site.open({ name: 'web', modern: true });
    const args = { what: 'headers', region: 'eu' };
    assertFresh(await client.call('region', args, {}, { headers: { 'mcp-param-region': 'eu' } }));
    const [one] = web.calls('headers');
    assert.equal(one.headers['mcp-method'], 'tools/call');
    assert.equal(one.headers['mcp-name'], 'region');
    assert.equal(one.headers['mcp-param-region'], 'eu');
    assert.equal(one.headers['mcp-session-id'], undefined);
});

// An answer that is streamed costs the connection and a replay does not: equal calls must not run by turns.
test('gateway: on_repeat run: equal calls to a server over HTTP run once, on whatever connection, unless one says that it is meant', async () => {
    const args = { what: 'again', script: 'stream effect answer' };
    for (const modern of [false, true]) {
        const client = await site.open({ name: 'web', modern });
        const before = web.effects('again');
        client.connection = new http.Agent({ keepAlive: true, maxSockets: 1 });
        for (let i = 0; i < 4; i++) {
            const answer = await client.call('put', args);
            if (i === 0 && !modern) assertFresh(answer, 'again: 1');
            else assertReplayed(answer, 'again: 1');
            await sleep(400);
        }
        assert.equal(web.effects('again'), modern ? before : before + 1);
    }
    const client = await site.open({ name: 'web' });
    const effect = effectOf(await client.call('put', args));
    assertFresh(await client.call('put', args, { _meta: { 'semel/after': effect } }), 'again: 2');
});

test('gateway: approvals of calls to a server over HTTP', async () => {
    const verdict = assertVerdict(await (await site.open({ name: 'web' })).call('secret', { what: 'approved' }), 'AWAITING_APPROVAL');
    const { request } = await gw.effect(verdict.effect);
    assert.equal((await gw.approver.post(`/v1/effects/${verdict.effect}/approve`, { request })).status, 200);
    assertFresh(await (await site.open({ name: 'web' })).call('secret', { what: 'approved' }), 'approved: 1');
    const young = site.client({ name: 'web', modern: true, capabilities: { elicitation: {} } });
    const asked = await young.call('secret', { what: 'own' });
    assert.equal(asked.result.resultType, 'input_required', asked.line);
    const [name] = Object.keys(asked.result.inputRequests);
    const more = { inputResponses: { [name]: { action: 'accept', content: { approve: true } } }, requestState: asked.result.requestState };
    assertFresh(await young.call('secret', { what: 'own' }, more), 'own: 1');
    assert.equal(web.calls('own')[0].message.params.requestState, undefined, 'what was ours is not the server\'s');
});

test('gateway: a session of a server over HTTP is of the token that began it', async () => {
    const client = await site.open({ name: 'web' });
    for (const token of ['agent2', 'stranger']) {
        const other = site.client({ name: 'web', token });
        other.session = client.session;
        assert.equal((await other.request('ping')).status, 404);
        assert.equal((await other.call('append', { what: 'stolen' })).status, 404);
        assert.equal((await other.listen()).status, 404);
        assert.equal((await other.end()).status, 404);
    }
    assert.equal(web.effects('stolen'), 0);
    assert.equal((await client.request('ping')).status, 200);
});

// Whether somebody with this token can use a session, in any way.
async function assertRefused(options, session) {
    const other = site.client({ name: 'web', ...options });
    other.session = session;
    assert.equal((await other.request('ping')).status, 404);
    assert.equal((await other.call('append', { what: 'taken' })).status, 404);
    assert.equal((await other.listen()).status, 404);
    assert.equal((await other.end()).status, 404);
    assert.equal(web.effects('taken'), 0);
}

test('gateway: a session stays its token\'s in a gateway that is started anew, and in another one', async () => {
    const begun = await site.gateway();
    const client = await site.open({ name: 'web', gw: begun, capabilities: { elicitation: {} } });
    const asked = [];
    client.on('elicitation/create', (params) => {
        asked.push(params);
        return { action: 'accept', content: { approve: true } };
    });
    await begun.kill();
    await begun.up();
    for (const gw of [begun, site.gw]) {
        for (const token of ['agent2', 'stranger']) {
            await assertRefused({ gw, token }, client.session);
            await assertRefused({ gw, token }, client.serverSession);
        }
        client.url = `http://127.0.0.1:${gw.port}/mcp/web`;
        assert.equal((await client.request('ping')).status, 200);
        assertFresh(await client.call('append', { what: `kept-${gw.port}` }));
        assertFresh(await client.call('secret', { what: `asked-${gw.port}` }), `asked-${gw.port}: 1`);
    }
    assert.equal(asked.length, 2, 'what its client can do is known too');
    assert.equal((await client.end()).status, 200);
    assert.ok(!web.sessions.has(client.serverSession));
});

test('gateway: a session that no gateway has given out is nobody\'s', async () => {
    const client = await site.open({ name: 'web' });
    const [proof, ...rest] = client.session.split('.');
    const forged = [
        client.serverSession, `.${client.serverSession}`, `${proof}.`, proof, rest.join('.'), `${proof}.another`,
        `${proof.replace(/^./, (c) => (c === 'e' ? 'n' : 'e'))}.${client.serverSession}`,
        `${proof.slice(0, -1)}${proof.endsWith('A') ? 'B' : 'A'}.${client.serverSession}`, `${proof}..${client.serverSession}`,
        `${proof.toLowerCase()}.${client.serverSession}`, `${proof}.${client.serverSession.toUpperCase()}`,
    ];
    for (const session of forged) if (session !== client.session) await assertRefused({}, session);
    assert.equal((await client.request('ping')).status, 200);
});

test('gateway: tokens without a key for sessions: nobody has those of before the restart', async () => {
    const gw = await site.gateway();
    const { session_key: key, ...rest } = JSON.parse(fs.readFileSync(gw.tokens, 'utf8'));
    assert.match(key, /^[\w-]{43}$/);
    fs.writeFileSync(gw.tokens, JSON.stringify(rest));
    await gw.stop();
    await gw.up();
    const client = await site.open({ name: 'web', gw });
    assertFresh(await client.call('append', { what: 'without' }));
    await gw.kill();
    await gw.up();
    for (const token of ['agent2', 'agent']) await assertRefused({ gw, token }, client.session);
    const again = await site.open({ name: 'web', gw });
    assertReplayed(await again.call('append', { what: 'without' }));
});

test('gateway: a server that cannot be reached: nothing was done, and it may be tried again', async () => {
    const gone = await WebServer.start();
    const away = await Site.start({ contract, servers: { gone: { url: gone.url } } });
    const client = away.client({ name: 'gone' });
    assertFresh(await client.call('append', { what: 'there' }), 'there: 1');
    gone.stop();
    const verdict = assertVerdict(await client.call('append', { what: 'not-there' }), 'UPSTREAM_FAILED', /nothing was done/i);
    assert.equal(verdict.retriable, true);
    const ping = await client.request('ping');
    assert.equal(ping.status, 502, ping.text);
});

test('gateway: tools that a contract hides are taken out of the list of a server over HTTP', async () => {
    const hidden = await Site.start({ contract: { unlisted: 'hide', tools: { append: { class: 'write' } } }, servers: { web: { url: web.url } } });
    for (const modern of [false, true]) {
        const client = await hidden.open({ name: 'web', modern });
        const { result } = await client.request('tools/list');
        assert.deepEqual(result.tools.map((tool) => tool.name), ['append']);
        assertVerdict(await client.call('secret', { what: 'hidden' }), 'UNKNOWN_TOOL');
    }
    assert.equal(web.effects('hidden'), 0);
});

test('gateway: headers that disagree are told on the stream too, if the client was told of progress', async () => {
    const slow = await WebServer.start();
    const own = await Site.start({ contract, servers: { slow: { url: slow.url } } });
    const client = await own.open({ name: 'slow', modern: true });
    const held = Promise.withResolvers();
    slow.options.holdList = held.promise;
    const args = { what: 'disagree', region: 'us' };
    const answer = client.call('region', args, { _meta: { progressToken: 't' } }, { headers: { 'mcp-param-region': 'eu' } });
    await eventually('it is told that the tools are listed', () => client.progress('t').length > 0);
    held.resolve();
    const { error } = await answer;
    assert.equal(error.code, -32020, JSON.stringify(error));
    assert.match(error.message, /disagree/);
    assert.equal(slow.effects('disagree'), 0);
});

// ---- the proxy on stdio alone

test('stdio: modern requests have the headers that the server wants', async () => {
    const client = await lines.open({ url: plain.url, modern: true });
    assertFresh(await client.call('region', { what: 'line-headers', region: 'größe' }));
    const [one] = plain.calls('line-headers');
    assert.equal(one.headers['mcp-method'], 'tools/call');
    assert.equal(one.headers['mcp-name'], 'region');
    assert.equal(one.headers['mcp-param-region'], `=?base64?${Buffer.from('größe').toString('base64')}?=`);
    await client.close();
});

test('stdio: what the server says of its own accord comes, and closing ends the session', async () => {
    const client = await lines.open();
    await client.request('ping');
    const before = web.of('ping').at(-1).headers['mcp-session-id'];
    await eventually('the server has a stream', () => web.sessions.get(before).stream);
    web.tell(before, 'notifications/tools/list_changed');
    await eventually('it is told', () => client.notes.length === 1);
    assert.deepEqual((await client.close()), { code: 0, signal: null });
    await eventually('the session has ended', () => !web.sessions.has(before));
});

test('stdio: a read that is cancelled before it had its turn is not sent', async () => {
    const client = await lines.open();
    const message = (id, name, what) => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: { what } } });
    const cancel = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 'r' } };
    await client.call('append', { what: 'turn-0' }); // the tools are known
    const answer = client.answer('w');
    // In one piece, so that the write is still being asked for when the others come.
    client.send([message('w', 'append', 'turn'), message('r', 'look', 'turned'), cancel].map((one) => JSON.stringify(one)).join('\n'));
    assertFresh(await answer, 'turn: 1');
    assert.deepEqual((await client.request('ping')).result, {});
    assert.equal(web.calls('turned').length, 0);
    await client.close();
});

test('stdio: standard input ends in the middle of a write: it ends, and is recorded', async () => {
    const client = await lines.open();
    const args = { what: 'input-ends', script: 'effect mark:input-ends wait:300 answer' };
    client.call('append', args).catch(() => {});
    await web.passed('input-ends');
    await client.close();
    const next = await lines.open();
    assertReplayed(await next.call('append', args), 'input-ends: 1');
    await next.close();
});

test('stdio: killed between forward and answer: in doubt, one effect', async () => {
    const client = await lines.open();
    const args = { what: 'line-killed', script: 'effect mark:line-killed never' };
    client.call('append', args).catch(() => {});
    await web.passed('line-killed');
    await client.kill();
    const next = await lines.open();
    assertVerdict(await next.call('append', args), 'IN_DOUBT');
    assert.equal(web.effects('line-killed'), 1);
    await next.close();
});

test('gateway: who may approve himself is asked on the stream of the call, also where the server has the session', async () => {
    const client = await site.open({ name: 'web', capabilities: { elicitation: {} } });
    const forms = [];
    client.on('elicitation/create', (params) => {
        forms.push(params);
        return { action: 'accept', content: { approve: true } };
    });
    assertFresh(await client.call('secret', { what: 'own-url' }), 'own-url: 1');
    assert.equal(forms.length, 1);
    assert.match(forms[0].message, /secret/);
    assert.ok(!web.received.some((one) => one.text.includes('semel-ask-')), 'the server hears nothing of it');
    assertVerdict(await (await site.open({ name: 'web' })).call('secret', { what: 'own-url-2' }), 'AWAITING_APPROVAL');
    assert.equal(web.effects('own-url-2'), 0);
});

test('stdio: a server that has forgotten the session, and takes no new one at first, is greeted by the next message', async () => {
    const client = await lines.open();
    assertFresh(await client.call('append', { what: 'greeted-before' }));
    web.sessions.clear();
    web.options.refuseInitialize = true;
    const args = { what: 'greeted' };
    assertVerdict(await client.call('append', args), 'UPSTREAM_FAILED');
    assert.equal((await client.call('append', args)).result.isError, true);
    delete web.options.refuseInitialize;
    await eventually('it is served again', async () => !(await client.call('append', args)).result.isError);
    assert.equal(web.effects('greeted'), 1);
    assert.deepEqual((await client.request('ping')).result, {});
    await client.close();
});

test('stdio: a read that is never answered holds the proxy up for a while only, after the end of the input', async () => {
    const client = await lines.open({ modern: true });
    client.call('look', { what: 'never-read', script: 'mark:never-read never' }).catch(() => {});
    const since = performance.now();
    client.child.stdin.end(); // at once, or it would have left
    await web.passed('never-read');
    assert.deepEqual(await client.exit, { code: 0, signal: null });
    const waited = performance.now() - since;
    assert.ok(waited > 9900, `it gave the read ${waited} ms only`);
});

test('stdio: the end of the input ends the proxy, also while somebody listens', async () => {
    const client = await lines.open({ modern: true });
    client.request('subscriptions/listen', { notifications: {} }).catch(() => {});
    await eventually('it listens', () => web.of('subscriptions/listen').length > 0);
    client.child.stdin.end();
    assert.ok(await Promise.race([client.exit, sleep(5000)]), 'it has ended');
});

await run();
