// What the proxy does about calls in doubt where the contract says how a doubt is settled: the same
// call is sent again under the same key, or the server is asked what became of it. Only when somebody
// asks, and never so that something is done twice.

import fs from 'node:fs';
import http from 'node:http';
import {
    Place, assert, assertDone, assertFresh, assertReplayed, assertVerdict, effectOf, legacyVersion, modernVersion, textOf,
} from './harness.mjs';
import { Gateway } from '../gateway/harness.mjs';
import { eventually, later, run, sleep, test } from '../gateway/tap.mjs';

const probe = {
    tool: 'look',
    args: { '/of': '/what', '/script': '/probe', '/what': '/probing' },
    applied: { when: [{ field: '/count', over: 0 }], outcome: '/receipt' },
    absent: { when: [{ field: '/count', equals: 0 }] },
    settle: '0s',
};
const whole = {
    ...probe, applied: { when: [{ field: '/found/count', over: 0 }] }, absent: { when: [{ field: '/found/count', equals: 0 }] },
};
const key = { fields: ['/what'] }; // what else differs is drift
const brief = (window) => ({
    class: 'write', idempotency: { meta: 'example.org/key', window }, lease: '1s', on_in_doubt: ['resend', 'hold'],
});
const tools = {
    keyed: { class: 'write', key, idempotency: { argument: 'key' }, on_in_doubt: ['resend', 'probe', 'hold'], probe },
    put: { class: 'write', idempotency: { meta: 'example.org/key', window: '1h' }, on_in_doubt: ['resend', 'hold'] },
    fill: brief('30s'), // less than a server may need to come back
    more_2: brief('1s'),
    append: { class: 'write', key, on_in_doubt: ['probe', 'hold'], probe },
    wipe: { class: 'irreversible', key, barrier: false, on_in_doubt: ['probe', 'hold'], probe: { ...whole, authoritative: true } },
    secret: { class: 'write', key, on_in_doubt: ['probe', 'hold'], probe: { ...probe, settle: '1s' } },
    more_0: { class: 'write', key, on_in_doubt: ['probe', 'hold'], probe: { ...probe, tool: 'more_1' } },
};
const place = new Place({ contract: { tools }, options: { more: 3 } });
// A call that probes waits for the server. One that has died may take longer to come back, on a busy machine,
// than the proxy waits for a client that does not hear of that.
const open = (options) => place.open({ patient: true, ...options });

// The calls of a tool that reached the server: of this `what`, or as a probe about it.
const sent = (what) => place.received('tools/call').map((one) => one.params)
    .filter((params) => params.arguments.what === what || params.arguments.of === what);
const keyOf = (params) => params._meta?.['example.org/key'] ?? params.arguments.key;

// A first call whose answer is lost: whoever asks again is told that this may help.
async function lose(client, tool, args) {
    const verdict = assertVerdict(await client.call(tool, args), 'UPSTREAM_TIMEOUT', /may or may not/);
    assert.equal(verdict.retriable, true);
    assert.equal(verdict.state, 'in_doubt');
    return verdict;
}

// The proxy is killed with the call under way.
async function kill(tool, args, mark) {
    const client = await open();
    const lost = client.call(tool, args).catch(() => {});
    await place.passed(mark);
    await client.kill();
    await lost;
}

// ---- resend

for (const [tool, modern] of [['keyed', false], ['put', true]]) {
    test(`a server that dies is sent the call again (${tool}), under the same key: one effect`, async () => {
        const client = await open({ modern });
        const args = { what: `resent-${tool}`, script: 'once exit:3 | once answer' };
        await lose(client, tool, args);
        assertFresh(await client.call(tool, args), `${args.what}: 1`);
        assert.equal(place.effects(args.what), 1);
        const [one, two, ...more] = sent(args.what);
        assert.match(keyOf(one), /^[A-Za-z0-9_-]{43}$/);
        assert.equal(keyOf(two), keyOf(one));
        assert.deepEqual(two.arguments, one.arguments);
        assertReplayed(await client.call(tool, args), `${args.what}: 1`);
        assert.deepEqual(more, []);
        await client.close();
    });
}

test('the proxy was killed between forward and answer: the next one sends it again, once', async () => {
    const args = { what: 'killed', script: 'once mark:killed never | once answer' };
    await kill('keyed', args, 'killed');
    const next = await open();
    assertFresh(await next.call('keyed', args), 'killed: 1');
    assertReplayed(await next.call('keyed', args), 'killed: 1');
    assert.equal(place.effects('killed'), 1);
    assert.equal(sent('killed').length, 2);
    await next.close();
});

test('two proxies at once send it again once', async () => {
    const args = { what: 'both', script: 'once mark:both never | once wait:200 answer' };
    await kill('keyed', args, 'both');
    const [one, two] = await Promise.all([open(), open()]);
    const answers = await Promise.all([one, two].map((client) => client.call('keyed', args)));
    for (const answer of answers) assert.equal(textOf(answer), 'both: 1', answer.line);
    assert.equal(sent('both').length, 2);
    assert.equal(place.effects('both'), 1);
    await Promise.all([one.close(), two.close()]);
});

test('a call with other arguments than the recorded ones is not sent again', async () => {
    const client = await open();
    const args = { what: 'drifted', script: 'once exit:1 | once answer', note: 'a' };
    await lose(client, 'keyed', args);
    const verdict = assertVerdict(await client.call('keyed', { ...args, note: 'b' }), 'IN_DOUBT', /other arguments/);
    assert.deepEqual(verdict.drift, ['/note']);
    assert.equal(verdict.retriable, false);
    assert.equal(sent('drifted').length, 1);
    assertFresh(await client.call('keyed', args), 'drifted: 1');
    await client.close();
});

test('when the server has forgotten its key, or may be about to, nothing is sent', async () => {
    const client = await open();
    const script = 'once exit:1 | once answer';
    await lose(client, 'fill', { what: 'fading', script });
    assertVerdict(await client.call('fill', { what: 'fading', script }), 'UPSTREAM_TIMEOUT', /forget/);
    await client.call('more_2', { what: 'forgotten', script });
    await sleep(1100);
    assertVerdict(await client.call('more_2', { what: 'forgotten', script }), 'IN_DOUBT');
    for (const what of ['fading', 'forgotten']) assert.equal(sent(what).length, 1);
    await client.close();
});

test('a contract that puts the key elsewhere: nothing is sent under it', async () => {
    const other = new Place({ contract: { tools: { put: tools.put } } });
    const args = { what: 'moved', script: 'once mark:moved never | once answer' };
    const client = await other.open();
    const lost = client.call('put', args).catch(() => {});
    await other.passed('moved');
    await client.kill();
    await lost;
    other.contract({ tools: { put: { ...tools.put, idempotency: { argument: 'key', window: '1h' } } } });
    const next = await other.open();
    assertVerdict(await next.call('put', args), 'IN_DOUBT', /key/);
    await eventually('people are told', () => /cannot be settled/.test(next.stderr));
    assert.equal(other.effects('moved'), 1);
    assert.equal(other.received('tools/call').length, 1);
    await next.close();
});

test('lost again, it is in doubt as before; nothing is sent twice in one call; then the next step', async () => {
    const client = await open();
    const args = { what: 'again', script: 'once exit:1 | once exit:1', probe: 'knows answer' };
    await lose(client, 'keyed', args);
    await lose(client, 'keyed', args);
    assert.equal(sent('again').length, 2);
    const told = assertReplayed(await client.call('keyed', args));
    assert.equal(told.structuredContent.of, 'again');
    assert.equal(place.effects('again'), 1);
    await client.close();
});

test('what is sent again and fails says nothing of the first time', async () => {
    const client = await open();
    const args = { what: 'refails', script: 'once exit:1 | fail answer', probe: 'knows answer' };
    await lose(client, 'keyed', args);
    const verdict = assertVerdict(await client.call('keyed', args), 'UPSTREAM_TIMEOUT', /answered that this failed/);
    assert.equal(verdict.state, 'in_doubt');
    assertReplayed(await client.call('keyed', args));
    assert.equal(place.effects('refails'), 1);
    await client.close();
});

// ---- probe

for (const [form, tool, modern] of [['structured', 'append', false], ['text', 'append', true], ['whole', 'wipe', false]]) {
    test(`what a probe finds (${form}) settles it, and is the answer from then on`, async () => {
        const what = `found-${form}`;
        const client = await open({ modern });
        await lose(client, tool, { what, script: 'effect exit:1', probe: `knows:${form} tell` });
        for (const n of [1, 2]) {
            const answer = await client.call(tool, { what, script: 'effect exit:1', probe: `knows:${form} tell` });
            const told = assertReplayed(answer);
            assert.equal(told.resultType, modern ? 'complete' : undefined, `answer ${n}`);
            if (form === 'whole') assert.equal(told.found.count, 1);
            else assert.deepEqual(JSON.parse(textOf(answer)), { number: 12345678901234, of: what });
        }
        const asked = sent(what).filter((params) => params.name === 'look');
        assert.equal(asked.length, 1);
        const carried = Object.keys(asked[0]._meta ?? {}).filter((name) => name.startsWith('io.modelcontextprotocol/'));
        assert.equal(carried.length, modern ? 3 : 0, 'it speaks in the era of the client');
        assert.equal(place.effects(what), 1);
        await client.close();
    });
}

test('a probe that finds nothing: it runs once more', async () => {
    const client = await open();
    const args = { what: 'absent', script: 'exit:1 | effect answer', probe: 'knows answer' };
    await lose(client, 'append', args);
    const done = await client.call('append', args);
    assertFresh(done, 'absent: 1');
    const again = await client.call('append', args);
    assertReplayed(again, 'absent: 1');
    assert.deepEqual(sent('absent').map((params) => params.name), ['append', 'look', 'append']);
    assert.equal(place.show(effectOf(again)).state, 'succeeded');
    await client.close();
});

test('it is asked about what was recorded, and whoever asks now runs its own', async () => {
    const client = await open();
    const args = { what: 'recorded', script: 'exit:1 | effect answer', probe: 'knows answer' };
    await lose(client, 'append', args);
    assertFresh(await client.call('append', { ...args, probe: 'fail answer' }), 'recorded: 1');
    assert.equal(sent('recorded').find((params) => params.name === 'look').arguments.script, 'knows answer');
    await client.close();
});

for (const says of ['fail knows answer', 'error', 'answer', 'knows:whole answer', 'extra:,"structuredContent":{"count":0},"StructuredContent":{"count":1}']) {
    test(`a probe that does not know ("${says}") leaves it to a person`, async () => {
        const client = await open();
        const args = { what: `unknown ${says}`, script: 'effect exit:1 | effect answer', probe: says };
        const { effect } = await lose(client, 'append', args);
        for (const n of [1, 2])
            assertVerdict(await client.call('append', args), 'IN_DOUBT', new RegExp(`effect ${effect} is in doubt`), `call ${n}`);
        assert.deepEqual(sent(args.what).map((params) => params.name), ['append', 'look']);
        assert.equal(place.effects(args.what), 1);
        await client.close();
    });
}

test('"absent" counts only after a while, for which the call waits', async () => {
    const client = await open();
    const args = { what: 'settle', script: 'exit:1 | effect answer', probe: 'knows answer' };
    const before = Date.now();
    await lose(client, 'secret', args);
    assertFresh(await client.call('secret', args), 'settle: 1');
    assert.ok(Date.now() - before >= 1000, 'it ran no sooner');
    // On a busy machine the while may be over before the first look.
    assert.match(sent('settle').map((params) => params.name).join(' '), /^secret look (look )?secret$/);
    await client.close();
});

test('two proxies at once, and many calls of each, find it absent: it runs once', async () => {
    const args = { what: 'crowd', script: 'mark:crowd never | effect answer', probe: 'wait:100 knows answer' };
    await kill('append', args, 'crowd');
    const both = await Promise.all([open(), open()]);
    const calls = both.flatMap((client) => Array.from({ length: 10 }, () => client.call('append', args)));
    for (const answer of await Promise.all(calls)) assert.equal(textOf(answer), 'crowd: 1', answer.line);
    assert.equal(place.effects('crowd'), 1);
    const asked = sent('crowd').filter((params) => params.name === 'look');
    assert.ok(asked.length <= 2, `${asked.length} probes`);
    await Promise.all(both.map((client) => client.close()));
});

test('a tool that may write is no probe', async () => {
    const client = await open();
    const args = { what: 'writes', script: 'effect exit:1', probe: 'knows answer' };
    await lose(client, 'more_0', args);
    assertVerdict(await client.call('more_0', args), 'IN_DOUBT', /more_1 is no tool that only reads/);
    await eventually('people are told', () => /cannot be settled/.test(client.stderr));
    assert.deepEqual(sent('writes').map((params) => params.name), ['more_0']);
    await client.close();
});

test('a server that dies while it is asked: nothing is concluded, and the next call asks again', async () => {
    const client = await open();
    const args = { what: 'deaf', script: 'effect exit:1', probe: 'exit:1 | knows answer', probing: 'deaf-probe' };
    await lose(client, 'append', args);
    assertVerdict(await client.call('append', args), 'UPSTREAM_TIMEOUT', /went away/);
    assertReplayed(await client.call('append', args));
    assert.equal(place.effects('deaf'), 1);
    await client.close();
});

test('a cancel in the middle of a probe changes nothing, and what follows is not held up', async () => {
    const client = await open();
    const args = { what: 'cancel', script: 'effect exit:1', probe: 'mark:cancel gate:cancel-go knows answer' };
    await lose(client, 'append', args);
    const id = client.nextId;
    client.call('append', args).catch(() => {});
    await place.passed('cancel');
    assertFresh(await client.call('append', { what: 'meanwhile' }), 'meanwhile: 1');
    client.cancel(id);
    const next = client.call('append', args);
    place.mark('cancel-go');
    assertReplayed(await next);
    assert.ok(!client.messages.some((one) => one.id === id), 'what was cancelled is not answered');
    assert.equal(place.effects('cancel'), 1);
    await client.close();
});

test('a client that goes in the middle of a probe, and one that is killed', async () => {
    const args = { what: 'leaves', script: 'effect exit:1', probe: 'mark:leaves gate:leaves-go knows answer' };
    const first = await open();
    await lose(first, 'append', args);
    first.call('append', args).catch(() => {});
    await place.passed('leaves');
    await first.close();
    const second = await open();
    second.call('append', args).catch(() => {});
    await eventually('it is asked again', () => sent('leaves').length === 3);
    await second.kill();
    place.mark('leaves-go');
    const third = await open();
    assertReplayed(await third.call('append', args));
    assert.equal(place.effects('leaves'), 1);
    await third.close();
});

// ---- over HTTP

test('an answer that can be read in two ways is none: a doubt', async () => {
    const place = new Place({ contract: { tools: { append: { class: 'write' }, look: { class: 'read' } } } });
    const client = await place.open();
    let n = 0;
    for (const script of [
        'unclear:,"Result":{"content":[]}', 'unclear:,"Error":{"code":1,"message":""}', 'unclear:,"result":{}', 'unclear:,"RESULT":null',
        'unsure:,"IsError":false', 'unsure:,"is_error":false', 'unsure:,"isError":false', 'unsure:,"ResultType":"complete"',
        'mistaken:,"Code":-32603', 'mistaken:,"code":-32603',
    ]) {
        const args = { what: `unclear-${n++}`, script: `effect ${script}` };
        assertVerdict(await client.call('append', args), 'IN_DOUBT', /two ways/);
        assertVerdict(await client.call('append', args), 'IN_DOUBT');
        assert.equal(place.effects(args.what), 1);
    }
    // Other names than those that decide something are the server's.
    assertFresh(await client.call('append', { what: 'clear', script: 'effect extra:,"meta":{},"Note":1' }));
    // The request for a read gets an error, and does not wait for ever.
    const { error } = await client.call('look', { what: 'l', script: 'unclear:,"Result":{}' });
    assert.match(error.message, /two ways/);
    await client.close();
});

test('an answer that has neither a result nor a proper error is no failure: a doubt, at once', async () => {
    const place = new Place({ contract: { tools: { append: { class: 'write' }, look: { class: 'read' } } } });
    const client = await place.open();
    let n = 0;
    for (const script of ['mute', 'mute:,"error":null', 'mute:,"error":"no"', 'mute:,"error":[]']) {
        const args = { what: `mute-${n++}`, script: `effect ${script}` };
        assertVerdict(await client.call('append', args), 'IN_DOUBT', /not at all/);
        assertVerdict(await client.call('append', args), 'IN_DOUBT');
        assert.equal(place.effects(args.what), 1);
    }
    const { error } = await client.call('look', { what: 'l', script: 'mute' });
    assert.match(error.message, /not at all/);
    await client.close();
});

// A server of both eras that does what it is told, and hangs up on the first call of each `what`. One of
// the later era compares what the headers repeat.
const web = { done: [], heads: [] };
const mark = (name) => ({ type: 'object', properties: { [name]: { type: 'string', 'x-mcp-header': name } } });
const answers = {
    initialize: () => ({
        protocolVersion: legacyVersion, capabilities: { tools: {} }, serverInfo: { name: 'web', version: '1' },
    }),
    'tools/list': () => ({
        tools: [
            { name: 'pay', inputSchema: mark('what') },
            { name: 'find', inputSchema: mark('of'), annotations: { readOnlyHint: true } },
        ],
    }),
    'tools/call'({ name, arguments: args }) {
        if (name === 'find') {
            const count = web.done.filter((one) => one === args.of).length;
            return { content: [], structuredContent: { count, receipt: { of: args.of } } };
        }
        web.done.push(args.what);
        return web.done.filter((one) => one === args.what).length === 1 ? null : { content: [] };
    },
};
const webServer = http.createServer((incoming, outgoing) => {
    let body = '';
    incoming.on('data', (piece) => (body += piece));
    incoming.on('end', () => {
        if (incoming.method !== 'POST') return outgoing.writeHead(405).end();
        const { id, method, params = {} } = JSON.parse(body);
        const head = incoming.headers;
        const modern = params._meta?.['io.modelcontextprotocol/protocolVersion'] !== undefined;
        web.heads.push({ method, name: params.name, modern, head });
        const same = head['mcp-method'] === method && head['mcp-name'] === params.name &&
            ['what', 'of'].every((name) => head[`mcp-param-${name}`] === params.arguments?.[name]);
        if (modern ? !same : method !== 'initialize' && head['mcp-session-id'] !== 'session-1')
            return outgoing.writeHead(400).end();
        if (id === undefined) return outgoing.writeHead(202).end();
        const result = answers[method](params);
        if (result === null) return incoming.socket.destroy();
        const typed = modern ? { resultType: 'complete', ...result } : result;
        outgoing.setHeader('Content-Type', 'application/json');
        if (method === 'initialize') outgoing.setHeader('Mcp-Session-Id', 'session-1');
        outgoing.end(JSON.stringify({ jsonrpc: '2.0', id, result: typed }));
    });
});
await new Promise((resolve) => webServer.listen(0, '127.0.0.1', resolve));
later(() => webServer.close());
const url = `http://127.0.0.1:${webServer.address().port}/mcp`;
const webTools = {
    pay: { class: 'write', on_in_doubt: ['probe', 'hold'], probe: { ...probe, tool: 'find', args: { '/of': '/what' } } },
};

// A client of the gateway, over HTTP.
class WebClient {
    constructor(gw, modern) {
        Object.assign(this, { gw, modern, nextId: 1, session: null });
    }
    async request(method, params = {}) {
        const meta = { 'io.modelcontextprotocol/protocolVersion': modernVersion, 'io.modelcontextprotocol/clientCapabilities': {} };
        const all = this.modern ? { ...params, _meta: meta } : params;
        const repeated = {
            'Mcp-Method': method, 'Mcp-Name': params.name ?? '', 'Mcp-Param-what': params.arguments?.what ?? '',
            'MCP-Protocol-Version': modernVersion,
        };
        const response = await fetch(`http://127.0.0.1:${this.gw.port}/mcp/web`, {
            method: 'POST',
            headers: {
                Authorization: `Bearer ${this.gw.texts.agent}`, 'Content-Type': 'application/json',
                Accept: 'application/json, text/event-stream', ...(this.modern ? repeated : {}),
                ...(this.session ? { 'Mcp-Session-Id': this.session, 'MCP-Protocol-Version': legacyVersion } : {}),
            },
            body: JSON.stringify({ jsonrpc: '2.0', id: this.nextId++, method, params: all }),
        });
        const text = await response.text();
        const line = text.startsWith('{') ? text : text.split('\n').filter((one) => one.startsWith('data: {')).at(-1)?.slice(6);
        assert.ok(line, `${response.status} ${text}`);
        this.session ??= response.headers.get('mcp-session-id');
        return { ...JSON.parse(line), line };
    }
    call(name, args) {
        return this.request('tools/call', { name, arguments: args });
    }
}

// What was told, and that the probe was a request in its own right.
async function settleOverHttp(client, what, modern) {
    await lose(client, 'pay', { what });
    const told = assertReplayed(await client.call('pay', { what }));
    assert.deepEqual(told.structuredContent, { of: what });
    assert.equal(web.done.filter((one) => one === what).length, 1);
    const asked = web.heads.filter((one) => one.name === 'find' && one.modern === modern).at(-1);
    assert.equal(asked.head['mcp-param-of'], modern ? what : undefined);
}

for (const modern of [false, true]) {
    const era = modern ? 'modern' : 'legacy';
    test(`a server over HTTP is asked what became of a call (${era}, semel mcp --upstream)`, async () => {
        const remote = new Place({ contract: { tools: webTools }, server: [] });
        const client = await remote.open({ modern, args: ['--upstream', url] });
        await settleOverHttp(client, `direct-${era}`, modern);
        await client.close();
    });
    test(`a server over HTTP is asked what became of a call (${era}, semel serve)`, async () => {
        const gw = await Gateway.start({ contract: { version: 1, tools: webTools }, config: { mcp: { web: { url } } } });
        const client = new WebClient(gw, modern);
        if (!modern) await client.request('initialize', { protocolVersion: legacyVersion, capabilities: {}, clientInfo: {} });
        await settleOverHttp(client, `served-${era}`, modern);
        await gw.stop();
    });
}

test('the audit trail verifies', () => {
    assert.equal(place.semel('audit', 'verify').status, 0);
});

// ---- the ledger is out of reach

test('a ledger that is away when a call ends: the caller gets the answer with a doubt, and it runs once', async () => {
    const own = new Place({ contract: { tools: { append: { class: 'write' } } } });
    const file = own.ledger.slice('sqlite:'.length);
    const client = await own.open();
    const args = { what: 'away', script: 'effect mark:began gate:end answer' };
    const calling = client.call('append', args);
    await own.passed('began');
    fs.renameSync(file, `${file}.x`);
    assertVerdict(await client.call('append', args), 'RETRY_IN_FLIGHT', /is running/);
    own.mark('end');
    const first = await calling;
    assertDone(first);
    assert.equal(first.result._meta['semel/doubt'], 'unrecorded', first.line);
    assert.match(client.stderr, /the ledger cannot be used/);
    assert.equal(client.stderr.match(/its outcome could not be recorded yet/g).length, 1, client.stderr);
    const again = await client.call('append', args);
    assertReplayed(again, first.result.content[0].text);
    assert.equal(again.result._meta['semel/doubt'], 'unrecorded', again.line);
    assertVerdict(await client.call('append', { what: 'other' }), 'LEDGER_UNAVAILABLE', /nothing was done/);
    assert.equal(client.stderr.match(/the ledger cannot be used/g).length, 1, client.stderr); // until it works
    fs.renameSync(`${file}.x`, file);
    await own.state(effectOf(again), 'succeeded');
    const recorded = await client.call('append', args);
    assertReplayed(recorded, first.result.content[0].text);
    assert.equal(recorded.result._meta['semel/doubt'], undefined, recorded.line);
    assert.equal(own.effects('away'), 1);
    await client.close();
});

await run();
