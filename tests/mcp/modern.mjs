// The era without sessions through the gateway's /mcp/NAME, where headers repeat the body: what does not
// agree is turned down before the ledger is asked, whoever the server is; where the server is a child, the
// gateway says what a server over HTTP would say; and what belongs to a request reaches whoever made it.

import { spawn } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Gateway, freePort, newPath } from '../gateway/harness.mjs';
import { eventually, later, run, test } from '../gateway/tap.mjs';
import { assert, modernVersion, node } from './harness.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const target = [node, path.join(here, 'target.mjs')];
const metaOf = (name) => `io.modelcontextprotocol/${name}`;
const base64 = (text) => `=?base64?${Buffer.from(text).toString('base64')}?=`;

// ---- servers

const port = await freePort();
const remote = spawn('setpriv', ['--pdeathsig', 'KILL', ...target, 'http', String(port)], { stdio: 'ignore' });
later(() => remote.kill('SIGKILL'));
await eventually('the server listens', () => new Promise((resolve) => {
    net.connect(port, '127.0.0.1', function () {
        resolve(this.destroy());
    }).on('error', () => resolve(false));
}));

// One that counts, with an argument of each kind that headers repeat.
const counted = newPath('counted');
fs.mkdirSync(counted);
const marked = (type, header) => ({ type, 'x-mcp-header': header });
fs.writeFileSync(path.join(counted, 'hints'), JSON.stringify({
    append: {
        inputSchema: {
            type: 'object',
            properties: {
                what: { type: 'string' }, region: marked('string', 'Region'), count: marked('integer', 'Count'),
                sure: marked('boolean', 'Sure'),
                inner: { type: 'object', properties: { deep: marked('string', 'Deep') } },
            },
        },
    },
}));
const counting = [node, path.join(here, 'server.mjs'), counted, JSON.stringify({ hints: path.join(counted, 'hints') })];
const effects = () => {
    const file = path.join(counted, 'effects');
    return fs.existsSync(file) ? fs.readFileSync(file, 'utf8').split('\n').length - 1 : 0;
};

const triggers = ['test_trigger_tool_change', 'test_trigger_prompt_change'];
const gw = await Gateway.start({
    contract: { version: 1, tools: Object.fromEntries(triggers.map((tool) => [tool, { class: 'read' }])) },
    config: {
        mcp: {
            http: { url: `http://127.0.0.1:${port}/mcp` }, stdio: { command: [...target, 'stdio'] },
            counting: { command: counting },
        },
    },
});

// ---- a client

const envelope = { [metaOf('protocolVersion')]: modernVersion, [metaOf('clientCapabilities')]: {} };
const names = { 'tools/call': 'name', 'prompts/get': 'name', 'resources/read': 'uri' };

// Sends a request with the headers that it should have, but for those that are given; null: without it.
// `each` is told every message of a stream, and ends it by returning true.
function send(site, method, params, { headers = {}, id = 1, meta = envelope, raw, each } = {}) {
    const body = raw ?? JSON.stringify({ jsonrpc: '2.0', id, method, params: { ...params, ...(meta && { _meta: { ...meta, ...params?._meta } }) } });
    const all = {
        authorization: `Bearer ${gw.texts.agent}`, 'content-type': 'application/json',
        accept: 'application/json, text/event-stream', 'mcp-protocol-version': modernVersion, 'mcp-method': method,
        ...(names[method] && params?.[names[method]] !== undefined && { 'mcp-name': params[names[method]] }),
    };
    for (const [name, value] of Object.entries(headers)) {
        if (value === null) delete all[name.toLowerCase()];
        else all[name.toLowerCase()] = value;
    }
    return new Promise((resolve, reject) => {
        const request = http.request({ host: '127.0.0.1', port: gw.port, path: `/mcp/${site}`, method: 'POST', headers: all }, (answer) => {
            const events = (answer.headers['content-type'] ?? '').includes('event-stream');
            const messages = [];
            let text = '';
            answer.setEncoding('utf8');
            answer.on('data', (piece) => {
                text += piece;
                for (let end = text.indexOf('\n\n'); events && end >= 0; end = text.indexOf('\n\n')) {
                    const message = JSON.parse(/^data: (.*)$/m.exec(text.slice(0, end))[1]);
                    text = text.slice(end + 2);
                    messages.push(message);
                    if (each?.(message)) request.destroy();
                }
            });
            answer.on('close', () => resolve({
                status: answer.statusCode, messages, text, body: events ? messages.at(-1) : text && JSON.parse(text),
            }));
        });
        request.on('error', (error) => (each ? resolve({ status: 0, messages: [] }) : reject(error)));
        request.end(body);
    });
}
const call = (site, name, args, options) => send(site, 'tools/call', { name, arguments: args }, options);

function assertRefused(answer, status, code, id = 1) {
    assert.equal(answer.body?.error?.code, code, JSON.stringify(answer));
    assert.equal(answer.status, status, JSON.stringify(answer));
    assert.deepEqual(answer.body.id, id);
    return answer.body.error;
}
const assertText = (answer, text) => {
    assert.equal(answer.status, 200, JSON.stringify(answer));
    assert.equal(answer.body.result?.content[0].text, text, JSON.stringify(answer));
};

// ---- headers and the body

const right = { 'Mcp-Param-Region': 'north' };

for (const site of ['http', 'stdio']) {
    // The first request starts a server in Node, which may take longer than the gateway waits.
    await eventually(`the server of ${site} is there`, async () => (await send(site, 'tools/list')).body?.result?.tools);

    test(`${site}: a call whose headers do not agree with it is not answered from the record`, async () => {
        assertText(await call(site, 'test_headers', { region: 'north' }, { headers: right }), 'region north');
        const again = await call(site, 'test_headers', { region: 'north' }, { headers: right, id: 'again' });
        assertText(again, 'region north');
        assert.equal(again.body.result._meta['semel/replayed'], true);
        for (const [id, headers] of [
            { 'Mcp-Param-Region': 'south' }, { 'Mcp-Param-Region': null }, { 'Mcp-Param-Region': '' },
            { 'Mcp-Param-Region': '=?base64?not base64?=' },
            { 'Mcp-Param-Region': '=?base64?bm9ydGg?=' }, { 'Mcp-Param-Region': '=?base64?/w==?=' },
            { 'Mcp-Name': 'test_simple_text' }, { 'Mcp-Name': null }, { 'Mcp-Name': '=?base64?!?=' },
            { 'Mcp-Method': 'tools/list' }, { 'Mcp-Method': null }, { 'MCP-Protocol-Version': '2027-01-01' },
            { 'MCP-Protocol-Version': null }, { 'MCP-Protocol-Version': '2025-11-25' },
        ].entries()) {
            const answer = await call(site, 'test_headers', { region: 'north' }, { headers: { ...right, ...headers }, id });
            assertRefused(answer, 400, -32020, id);
        }
        const twice = await call(site, 'test_headers', { region: 'north' }, { headers: { 'Mcp-Param-Region': ['north', 'north'] } });
        assert.deepEqual([twice.status, twice.body.code], [400, 'BAD_ARGUMENTS']);
        assert.match(twice.body.message, /more than one mcp-param-region/i);
    });

    test(`${site}: headers that say the same in another form are as good`, async () => {
        for (const headers of [
            { 'Mcp-Param-Region': base64('north') }, { 'mcp-param-REGION': 'north' }, { 'Mcp-Name': base64('test_headers') },
            { 'Mcp-Param-Other': 'not declared' },
        ]) {
            const all = headers['mcp-param-REGION'] ? headers : { ...right, ...headers };
            assertText(await call(site, 'test_headers', { region: 'north' }, { headers: all }), 'region north');
        }
        const strange = 'n\u00f6rd \ud83d\ude80 ';
        const headers = { 'Mcp-Param-Region': base64(strange) };
        assertText(await call(site, 'test_headers', { region: strange }, { headers }), `region ${strange}`);
    });

    test(`${site}: what is said in _meta is looked at before the ledger is asked`, async () => {
        for (const meta of [
            null, {}, { [metaOf('protocolVersion')]: modernVersion }, { [metaOf('clientCapabilities')]: {} },
            { ...envelope, [metaOf('protocolVersion')]: 7 }, { ...envelope, [metaOf('clientCapabilities')]: 'none' },
        ])
            assertRefused(await call(site, 'test_headers', { region: 'north' }, { headers: right, meta }), 400, -32602);
        const item = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'test_simple_text', _meta: envelope } };
        const batch = await send(site, 'tools/call', {}, { raw: JSON.stringify([item]) });
        assert.equal(batch.status, 400, JSON.stringify(batch));
        assert.equal(batch.body.error.code, -32600);
    });
}

test('nothing runs under headers that say something else; numbers and booleans are compared as such', async () => {
    const args = { what: 'a', region: 'r', count: 42, sure: true, inner: { deep: 'd' } };
    const headers = {
        'Mcp-Param-Region': 'r', 'Mcp-Param-Count': '42', 'Mcp-Param-Sure': 'true', 'Mcp-Param-Deep': 'd',
    };
    for (const wrong of [
        { 'Mcp-Param-Count': '43' }, { 'Mcp-Param-Count': '42x' }, { 'Mcp-Param-Count': null }, { 'Mcp-Param-Sure': 'True' },
        { 'Mcp-Param-Sure': '1' }, { 'Mcp-Param-Deep': 'D' }, { 'Mcp-Param-Deep': null },
    ]) {
        const answer = await call('counting', 'append', args, { headers: { ...headers, ...wrong } });
        assert.match(assertRefused(answer, 400, -32020).message, new RegExp(Object.keys(wrong)[0]));
    }
    assert.equal(effects(), 0);
    assert.equal((await call('counting', 'append', args, { headers: { ...headers, 'Mcp-Param-Count': '42.0' } })).status, 200);
    // What is not given is not repeated, nor is what readers would round.
    assert.equal((await call('counting', 'append', { what: 'b', region: null, inner: {} }, { headers: {} })).status, 200);
    const large = JSON.stringify({
        jsonrpc: '2.0', id: 1, method: 'tools/call',
        params: { name: 'append', arguments: { what: 'c' }, _meta: envelope },
    }).replace('"what":"c"', '"what":"c","count":1e21');
    const answer = await send('counting', 'tools/call', { name: 'append' }, { raw: large });
    assert.equal(answer.status, 200, JSON.stringify(answer));
    assert.equal(effects(), 3);
});

// ---- a child behind HTTP

test('a child: methods that there are not are 404, versions that are not spoken 400', async () => {
    for (const [id, method] of Object.entries(['initialize', 'ping', 'logging/setLevel', 'resources/subscribe', 'no/such']))
        assertRefused(await send('stdio', method, {}, { id }), 404, -32601, id);
    const requested = 'v999.0.0';
    const answer = await send('stdio', 'server/discover', {}, {
        headers: { 'MCP-Protocol-Version': requested }, meta: { ...envelope, [metaOf('protocolVersion')]: requested }, id: 'v',
    });
    assert.deepEqual(assertRefused(answer, 400, -32022, 'v').data, { supported: [modernVersion], requested });
    assertRefused(await call('stdio', 'test_missing_capability', {}, { id: 9 }), 400, -32021, 9);
    assertRefused(await send('stdio', 'prompts/get', { name: 'none' }, { id: 10 }), 200, -32602, 10);
    assertRefused(await send('stdio', 'initialize', {}, { meta: null, id: 11 }), 400, -32020, 11);
});

test('a child: errors carry the id as it was written, or null', async () => {
    for (const id of [0, -7, '', '\u2713', 9007199254740991])
        assertRefused(await send('stdio', 'no/such', {}, { id }), 404, -32601, id);
    assertRefused(await send('stdio', 'no/such', {}, { raw: '{"jsonrpc":"2.0"' }), 400, -32700, null);
    assertRefused(await send('stdio', 'no/such', {}, { raw: '{"jsonrpc":"2.0","id":3,"method":7}' }), 400, -32600, 3);
});

// ---- what belongs to a request

test('a child: every subscription hears what it asked for, under its own id', async () => {
    const heard = { a: [], 7: [] };
    const listen = (id, notifications, change) => new Promise((resolve) => {
        const done = send('stdio', 'subscriptions/listen', { notifications }, {
            id, each: (message) => {
                heard[id].push(message);
                if (message.method === 'notifications/subscriptions/acknowledged') resolve({ done });
                return message.method === change;
            },
        });
    });
    const tools = await listen('a', { toolsListChanged: true }, 'notifications/tools/list_changed');
    const prompts = await listen(7, { promptsListChanged: true }, 'notifications/prompts/list_changed');
    const logged = await call('stdio', 'test_logging_tool', {}, { meta: { ...envelope, [metaOf('logLevel')]: 'info' } });
    assert.deepEqual(logged.messages.slice(0, -1).map((one) => one.method), ['notifications/message']);
    assertText(await call('stdio', 'test_trigger_tool_change', {}), 'changed');
    assertText(await call('stdio', 'test_trigger_prompt_change', {}), 'changed');
    await tools.done;
    await prompts.done;
    for (const id of ['a', 7]) {
        assert.deepEqual(heard[id].map((one) => one.params._meta[metaOf('subscriptionId')]), [id, id], JSON.stringify(heard[id]));
        assert.equal(heard[id][1].method, `notifications/${id === 'a' ? 'tools' : 'prompts'}/list_changed`);
    }
});

test('a child: progress goes to whoever made the call, though others use the same token', async () => {
    const all = await Promise.all(['x', 'y', 'z'].map((step) => call('stdio', 'test_tool_with_progress', {}, {
        id: step, meta: { ...envelope, progressToken: 1, 'semel/step': step },
    })));
    for (const { messages } of all) {
        const progress = messages.slice(0, -1).map((one) => [one.params.progressToken, one.params.progress]);
        assert.deepEqual(progress, [[1, 0], [1, 50], [1, 100]]);
        assert.equal(messages.at(-1).result.content[0].text, 'done');
    }
    assert.deepEqual(all.map(({ body }) => body.id), ['x', 'y', 'z']);
});

await run();
