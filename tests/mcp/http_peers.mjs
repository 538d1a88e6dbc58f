// Real clients and servers over HTTP, with the gateway between them: the SDK's clients of both
// generations in all of their modes; a server of the SDK, server-everything over HTTP, and
// server-filesystem; and the same servers behind `semel mcp --upstream`.

import { spawn } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import { Readable } from 'node:stream';
import { McpServer, createMcpHandler } from '@modelcontextprotocol/server';
import { z } from 'zod';
import { Site, UpstreamPlace, httpSdk1, httpSdk2 } from './http_harness.mjs';
import { Place, assert, assertCounted, everything, filesystem, modernVersion, node, noteProgress, sdk1, sdk2 } from './harness.mjs';
import { freePort } from '../gateway/program.mjs';
import { eventually, later, run, sleep, test } from '../gateway/tap.mjs';

// ---- a server of the SDK: modern, and legacy without sessions

const counts = new Map();
const gates = new Set();

function makeServer() {
    const server = new McpServer({ name: 'counting', version: '1.0.0' }, { capabilities: { tools: { listChanged: true } } });
    const tool = (name, annotations) => server.registerTool(name, {
        inputSchema: z.object({ what: z.string(), gate: z.string().optional() }), annotations,
    }, async ({ what, gate }, ctx) => {
        counts.set(what, (counts.get(what) ?? 0) + 1);
        const progressToken = ctx.mcpReq._meta?.progressToken;
        for (const progress of progressToken === undefined ? [] : [1, 2, 3])
            await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: 3 } });
        while (gate && !gates.has(gate)) await sleep(5);
        return { content: [{ type: 'text', text: `${what}: ${counts.get(what)}` }] };
    });
    tool('append', {});
    tool('look', { readOnlyHint: true });
    return server;
}

async function serve(handler) {
    const server = http.createServer(async (incoming, outgoing) => {
        const gone = new AbortController();
        outgoing.on('close', () => gone.abort());
        const body = incoming.method === 'POST' ? { body: Readable.toWeb(incoming), duplex: 'half' } : {};
        const request = new Request(`http://${incoming.headers.host}${incoming.url}`, {
            method: incoming.method, headers: incoming.headers, signal: gone.signal, ...body,
        });
        const response = await handler.fetch(request);
        outgoing.writeHead(response.status, Object.fromEntries(response.headers));
        if (response.body) Readable.fromWeb(response.body).on('error', () => outgoing.destroy()).pipe(outgoing);
        else outgoing.end();
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    later(() => server.closeAllConnections());
    return `http://127.0.0.1:${server.address().port}/mcp`;
}

async function startEverything() {
    const port = await freePort();
    const child = spawn('setpriv', ['--pdeathsig', 'KILL', ...everything, 'streamableHttp'], {
        env: { PATH: process.env.PATH, PORT: String(port) }, stdio: ['ignore', 'ignore', 'pipe'],
    });
    later(() => child.kill('SIGKILL'));
    await new Promise((resolve) => child.stderr.on('data', (text) => /listening/.test(text) && resolve()));
    return `http://127.0.0.1:${port}/mcp`;
}

const files = fs.mkdtempSync(`${process.env.TMPDIR ?? '/tmp'}/semel-files-`);
later(() => fs.rmSync(files, { recursive: true, force: true }));
const tools = { append: { class: 'write' }, edit_file: { class: 'write' }, move_file: { class: 'write' } };
const [sdkUrl, everythingUrl] = await Promise.all([serve(createMcpHandler(makeServer)), startEverything()]);
const scripted = new Place();
const site = await Site.start({
    contract: { tools },
    servers: {
        scripted: { command: scripted.server }, sdk: { url: sdkUrl }, everything: { url: everythingUrl },
        files: { command: filesystem(files) }, target: { command: [node, `${import.meta.dirname}/target.mjs`, 'stdio'] },
    },
});
const url = (name) => `http://127.0.0.1:${site.gw.port}/mcp/${name}`;
const headers = { authorization: `Bearer ${site.gw.texts.agent}` };

const upstream = new UpstreamPlace(sdkUrl, { contract: { tools } });

// ---- every client with every kind of server

const kinds = {
    'SDK 1': { http: httpSdk1, stdio: sdk1, era: undefined },
    'SDK 2': { http: httpSdk2, stdio: sdk2, era: 'legacy' },
    'SDK 2 auto': { http: httpSdk2, stdio: sdk2, mode: 'auto', era: 'modern' },
    'SDK 2 modern': { http: httpSdk2, stdio: sdk2, mode: { pin: modernVersion }, era: 'modern' },
};
const servers = {
    'stdio server': { open: (kind) => kind.http(url('scripted'), { headers, mode: kind.mode, place: site.place }), counted: (what) => scripted.effects(what) },
    'SDK server': { open: (kind) => kind.http(url('sdk'), { headers, mode: kind.mode, place: site.place }), counted: (what) => counts.get(what) },
    'SDK server, client on stdio': { open: (kind) => kind.stdio(upstream, { mode: kind.mode }), counted: (what) => counts.get(what) },
};

function call(client, name, tool, args, options) {
    const request = { name: tool, arguments: args };
    return name === 'SDK 1' ? client.callTool(request, undefined, options) : client.callTool(request, options);
}

for (const [name, kind] of Object.entries(kinds)) {
    for (const [where, { open, counted }] of Object.entries(servers)) {
        const what = `${name} ${where}`.replaceAll(/[ ,]+/g, '-');
        const gated = (gate) => (where === 'stdio server' ? { script: `effect gate:${gate} answer` } : { gate });
        const openGate = (gate) => (where === 'stdio server' ? scripted.mark(gate) : gates.add(gate));

        test(`${name}, ${where}: lists, calls, progress, replays; a timeout and its retry are one effect`, async () => {
            const client = await open(kind);
            if (kind.era) assert.equal(client.getProtocolEra(), kind.era);
            assert.ok((await client.listTools()).tools.some((tool) => tool.name === 'append'));
            const progress = [];
            const seen = `seen-${what}`;
            const args = { what, ...(where === 'stdio server' ? { script: `effect progress:3 gate:${seen} answer` } : { gate: seen }) };
            const first = await call(client, name, 'append', args, { onprogress: noteProgress(progress, () => openGate(seen)) });
            assert.equal(first.content[0].text, `${what}: 1`);
            assertCounted(progress);
            const second = await call(client, name, 'append', args);
            assert.deepEqual(second.content, first.content);
            assert.equal(second._meta['semel/replayed'], true);
            assert.equal(counted(what), 1);

            const late = `late-${what}`;
            await assert.rejects(call(client, name, 'append', { what: late, ...gated(late) }, { timeout: 300 }));
            await eventually('it has begun', () => counted(late) === 1);
            const retry = call(client, name, 'append', { what: late, ...gated(late) }, { timeout: 20_000 });
            await sleep(50);
            openGate(late);
            assert.equal((await retry).content[0].text, `${late}: 1`);
            assert.equal(counted(late), 1);
            await client.close();
        });
    }
}

test('many SDK clients at once, of one token: none gets what is another one\'s', async () => {
    const clients = await Promise.all(Array.from({ length: 6 }, (_, n) => httpSdk2(url(n % 2 ? 'scripted' : 'sdk'), { headers, mode: { pin: modernVersion } })));
    await Promise.all(clients.map(async (client, n) => {
        for (let i = 0; i < 10; i++) {
            const progress = [];
            const what = `many-${n}-${i}`;
            const args = n % 2 ? { what, script: `effect progress:3 gate:${what} answer` } : { what, gate: what };
            const go = () => (n % 2 ? scripted.mark(what) : gates.add(what));
            const result = await call(client, 'SDK 2', 'append', args, { onprogress: noteProgress(progress, go) });
            assert.equal(result.content[0].text, `${what}: 1`);
            assertCounted(progress);
        }
    }));
    await Promise.all(clients.map((client) => client.close()));
});

test('modern: clients that share a server listen for changes, each under its own id', async () => {
    const clients = [1, 2].map(() => site.client({ name: 'target', modern: true }));
    const ids = [1, 'one'];
    const name = 'io.modelcontextprotocol/subscriptionId';
    const listening = clients.map((client, n) => client.request('subscriptions/listen', {
        notifications: { toolsListChanged: true },
    }, { id: ids[n] }));
    await eventually('both listen', () => clients.every((client) => client.notes.length === 1));
    await clients[0].call('test_trigger_tool_change', {}, {}, { id: 2 });
    await eventually('both hear of it', () => clients.every((client) => client.notes.length === 2));
    clients.forEach((client, n) => {
        assert.deepEqual(client.notes.map((note) => note.method), ['notifications/subscriptions/acknowledged', 'notifications/tools/list_changed']);
        for (const note of client.notes) assert.equal(note.params._meta[name], ids[n]);
    });
    listening.forEach((one) => one.abort());
});

// ---- server-everything, directly and through the gateway

test('server-everything over HTTP gives the same through the gateway, and through the proxy on stdio', async () => {
    const all = async (client, streams = true) => {
        const said = [];
        const keep = (value) => said.push(JSON.parse(JSON.stringify(value)));
        keep(client.getServerCapabilities());
        keep(client.getInstructions());
        for (const list of ['listTools', 'listPrompts', 'listResources', 'listResourceTemplates']) keep(await client[list]());
        keep(await client.getPrompt({ name: 'simple-prompt' }));
        for (const [name, args] of [['echo', { message: 'hällo' }], ['get-sum', { a: 1, b: 2 }], ['get-tiny-image', {}], ['get-structured-content', { location: 'Chicago' }]])
            keep(await client.callTool({ name, arguments: args }));
        const progress = [];
        keep(await client.callTool({ name: 'trigger-long-running-operation', arguments: { duration: 0.2, steps: 2 } }, undefined, { onprogress: (one) => progress.push(one) }));
        if (streams) keep(progress); // SDK 1 drops what comes together with the answer
        await client.close();
        return said;
    };
    const direct = await all(await httpSdk1(everythingUrl));
    assert.deepEqual(await all(await httpSdk1(url('everything'), { headers, place: site.place })), direct);
    assert.deepEqual(await all(await sdk1(new UpstreamPlace(everythingUrl)), false), direct.slice(0, -1));
});

test('server-everything asks its client, over HTTP and through the gateway', async () => {
    const { ElicitRequestSchema, CreateMessageRequestSchema } = await import('@modelcontextprotocol/sdk/types.js');
    const asked = [];
    const client = await httpSdk1(url('everything'), {
        headers,
        capabilities: { elicitation: {}, sampling: {} },
        prepare: (one) => {
            one.setRequestHandler(ElicitRequestSchema, (request) => (asked.push(request.method), { action: 'decline' }));
            one.setRequestHandler(CreateMessageRequestSchema, (request) => {
                asked.push(request.method);
                return { model: 'm', role: 'assistant', content: { type: 'text', text: 'said by the model' } };
            });
        },
    });
    // It names these tools only to clients that can be asked.
    await eventually('its tools are there', async () => (await client.listTools()).tools.some((tool) => /sampling/.test(tool.name)));
    const { tools: listed } = await client.listTools();
    const named = (pattern) => listed.find((tool) => pattern.test(tool.name)).name;
    const sampled = await client.callTool({ name: named(/^trigger-sampling/), arguments: { prompt: 'x', maxTokens: 5 } });
    assert.match(JSON.stringify(sampled.content), /said by the model/);
    await client.callTool({ name: named(/^trigger-elicitation/), arguments: {} });
    assert.deepEqual(asked, ['sampling/createMessage', 'elicitation/create']);
    await client.close();
});

// ---- server-filesystem

test('server-filesystem: edits and moves are made once, through sessions that come and go', async () => {
    const [one, two] = [`${files}/a.txt`, `${files}/b.txt`];
    fs.writeFileSync(one, 'x\n');
    const edit = { path: one, edits: [{ oldText: 'x', newText: 'xx' }] };
    const move = { source: one, destination: two };
    const texts = [];
    for (const open of [httpSdk1, httpSdk2, httpSdk1]) {
        const client = await open(url('files'), { headers, place: site.place });
        texts.push((await client.callTool({ name: 'edit_file', arguments: edit })).content[0].text);
        await client.close();
    }
    assert.equal(fs.readFileSync(one, 'utf8'), 'xx\n');
    assert.equal(new Set(texts).size, 1);
    for (let i = 0; i < 2; i++) {
        const client = await httpSdk1(url('files'), { headers, place: site.place });
        const moved = await client.callTool({ name: 'move_file', arguments: move });
        assert.ok(!moved.isError, JSON.stringify(moved));
        await client.close();
    }
    assert.ok(fs.existsSync(two));
});

await run();
