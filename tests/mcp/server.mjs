#!/usr/bin/env node
// An MCP server over stdio that does as its caller says, also wrongly, and counts what it does. It
// speaks both eras and uses no library, so that nothing keeps it from misbehaving.
//
//     node server.mjs DIRECTORY [OPTIONS as JSON]
//
// A call's arguments are { what, script }. The script is words that are done one after the other,
// "effect answer" if there is none; a bar separates what is done the first time from what is done
// the next: "effect exit:3 | answer" dies once. The words are the functions of `words` below.
//
// In the directory it keeps
//     effects    one line for each effect: its `what`
//     received   every line that came in, as it came
//     starts     one line for each beginning: "PID what"
//     pid        one line for each process
//     keys       one line for each key under which something was done (once)
//     signals    one line for each SIGTERM, if it is stubborn
//     and the files by which scripts and tests wait for each other (mark:NAME, gate:NAME)
//
// Options:
//     hints      a file: { TOOL: { annotations?, inputSchema?, outputSchema?, gone? } }, read whenever tools are
//                listed, so that a list can change
//     page       tools on a page of tools/list
//     more       so many more tools of no use
//     ttl        ms that a list of tools is good for; an hour if absent
//     eras       which it speaks: "both" (also if absent), "legacy", "modern"
//     first      a line to print before anything else
//     exit       the status to exit with when standard input ends
//     linger     goes on for so many ms when standard input ends
//     stubborn   ignores SIGTERM
//     shut       closes its standard input when it has said who it is
//     full       reads nothing more when it has said who it is
//     quiet      keeps no `received`
//     deaf       answers nothing, ever
//     volatile   the tool fill has a default that is another one in each process

import fs from 'node:fs';
import path from 'node:path';
import process from 'node:process';

const directory = process.argv[2];
const options = JSON.parse(process.argv[3] ?? '{}');
const at = (name) => path.join(directory, name);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const versionKey = 'io.modelcontextprotocol/protocolVersion';
const modern = '2026-07-28';
const legacy = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'];
const info = { name: 'scripted', version: '1.0.0' };
const capabilities = { tools: { listChanged: true }, logging: {} };

const calls = new Map(); // under way, by the id as it was written
const asked = new Map(); // requests of ours that wait for an answer
let nextId = 0;

function append(name, line) {
    fs.appendFileSync(at(name), `${line}\n`);
}

// How often each `what` was begun, and done, by this process and those before it.
const starts = countLines('starts');
const effects = countLines('effects');

function countLines(name) {
    const counts = new Map();
    for (const line of linesOf(name))
        countOne(counts, name === 'starts' ? line.slice(line.indexOf(' ') + 1) : line);
    return counts;
}

// The lines of a file as it is now, whoever wrote them.
function linesOf(name) {
    return fs.existsSync(at(name)) ? fs.readFileSync(at(name), 'utf8').split('\n').slice(0, -1) : [];
}

function countOne(counts, what) {
    counts.set(what, (counts.get(what) ?? 0) + 1);
}

// ---- writing

function put(text) {
    fs.writeSync(1, text);
}

// All of it, although the other end may be slow: standard output is a pipe.
function send(text) {
    const bytes = Buffer.from(`${text}\n`);
    for (let done = 0; done < bytes.length; ) {
        try {
            done += fs.writeSync(1, bytes, done);
        } catch (error) {
            if (error.code !== 'EAGAIN') throw error;
            Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2);
        }
    }
}

function notify(method, params) {
    send(JSON.stringify({ jsonrpc: '2.0', method, params }));
}

// The id goes back as it came: 1.0 is not 1.
function reply(id, body) {
    const text = JSON.stringify({ jsonrpc: '2.0', ...body });
    send(`${text.slice(0, -1)},"id":${id}}`);
}

function complete(call, result) {
    const typed = call.modern ? { resultType: 'complete', ...result } : result;
    reply(call.id, { result: typed });
}

// A request of ours, with an id that clients use too: id spaces are each sender's own.
function ask(method, params) {
    const id = nextId++;
    return new Promise((resolve) => {
        asked.set(id, resolve);
        send(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
    });
}

// ---- tools

const anything = {
    type: 'object',
    properties: { what: { type: 'string' }, script: { type: 'string' } },
};

const withDefaults = {
    type: 'object',
    properties: {
        ...anything.properties,
        currency: { type: 'string', default: 'eur' },
        options: { type: 'object', properties: { fast: { type: 'boolean', default: false } } },
    },
};

// A default that every process of the server has another one of.
const withTime = {
    type: 'object',
    properties: { ...anything.properties, when: { type: 'string', default: `${process.pid} ${Date.now()}` } },
};

function toolList() {
    const list = [
        { name: 'append', description: 'Does it, and says nothing of itself.', inputSchema: anything },
        { name: 'look', inputSchema: anything, annotations: { readOnlyHint: true } },
        { name: 'put', inputSchema: anything, annotations: { idempotentHint: true, destructiveHint: false } },
        { name: 'wipe', inputSchema: anything, annotations: { destructiveHint: true } },
        { name: 'fill', inputSchema: options.volatile ? withTime : withDefaults },
        { name: 'keyed', inputSchema: anything },
        { name: 'secret', inputSchema: anything },
    ];
    for (let i = 0; i < (options.more ?? 0); i++) list.push({ name: `more_${i}`, inputSchema: anything });
    const changes = options.hints && fs.existsSync(options.hints)
        ? JSON.parse(fs.readFileSync(options.hints, 'utf8')) : {};
    return list.map((tool) => ({ ...tool, ...changes[tool.name] })).filter((tool) => !tool.gone);
}

function listTools(params) {
    const list = toolList();
    const from = Number(params?.cursor ?? 0);
    const size = options.page ?? list.length;
    const tools = list.slice(from, from + size);
    const next = from + size < list.length ? { nextCursor: String(from + size) } : {};
    return { tools, ...next, ttlMs: options.ttl ?? 3_600_000, cacheScope: 'private' };
}

// ---- the words of a script

const question = {
    mode: 'form',
    message: 'Which one?',
    requestedSchema: { type: 'object', properties: { name: { type: 'string' } } },
};

const words = {
    effect(call) {
        append('effects', call.what);
        countOne(effects, call.what);
    },
    // The same for each key that it is given, as a server does that takes one.
    once(call) {
        const key = call.params._meta?.['example.org/key'] ?? call.params.arguments.key;
        if (linesOf('keys').includes(key)) return;
        append('keys', key);
        words.effect(call);
    },
    wait: (call, ms) => sleep(Number(ms)),
    mark: (call, name) => fs.writeFileSync(at(name), ''),
    async gate(call, name) {
        while (!fs.existsSync(at(name))) await sleep(5);
    },
    never: () => new Promise(() => {}),

    // What it says beside its answer.
    progress(call, count = '1') {
        for (let i = 0; i < Number(count); i++) {
            if (call.token === undefined) return;
            notify('notifications/progress', {
                progressToken: call.token, progress: ++call.progress, total: 10, message: call.what,
            });
        }
    },
    // The largest number that there is, or a larger one: no value can grow after it.
    leap: (call, value) => send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${JSON.stringify(call.token)},"progress":${value}}}`),
    log: (call) => notify('notifications/message', { level: 'info', data: call.what }),
    changed: () => notify('notifications/tools/list_changed'),
    stderr: (call, text) => fs.writeSync(2, `${text}\n`),
    junk: () => put('this is no JSON\n{"jsonrpc":"2.0","id":\n\u0000\u0001\n'),
    stray: () => send('{"jsonrpc":"2.0","id":"nobody asked","result":{}}'),

    // How it dies.
    exit: (call, status) => process.exit(Number(status)),
    kill: (call, signal = 'SIGKILL') => process.kill(process.pid, signal) && words.never(),

    // What its answer holds.
    structured: (call) => (call.result.structuredContent = { what: call.what, exact: 12345 }),
    meta: (call) => (call.result._meta = { 'example.org/trace': call.what }),
    // What it says that the call cost: "cost:0.05" or "cost:x/7", with the tokens.
    cost(call, text) {
        const [cost, tokens] = text.split('/');
        call.result._meta = { 'semel/cost': cost, ...(tokens ? { 'semel/tokens': Number(tokens) } : {}) };
    },
    // What it knows of the effect that `of` names: how often it was done.
    knows(call, form = 'structured') {
        const { of } = call.params.arguments;
        const count = linesOf('effects').filter((line) => line === of).length;
        const said = { count, ...(count > 0 ? { receipt: { of, number: 12345678901234 } } : {}) };
        if (form === 'structured') call.result.structuredContent = said;
        else if (form === 'text') call.result.content.push({ type: 'text', text: JSON.stringify(said) });
        else call.result.found = said;
    },
    odd: (call) => (call.odd = true), // blanks, escapes and numbers that no writer of ours would choose
    fail: (call) => (call.result.isError = true),
    many: (call, count) => (call.result.many = new Array(Number(count)).fill(0)),
    big: (call, bytes) => call.result.content.push({ type: 'text', text: 'x'.repeat(Number(bytes)) }),

    // It asks the client, in the way of the client's era.
    async elicit(call) {
        const { mode, ...params } = question;
        const answer = await ask('elicitation/create', call.modern ? question : params);
        call.result.content.push({ type: 'text', text: JSON.stringify(answer.result ?? answer.error) });
    },
    async sample(call) {
        const messages = [{ role: 'user', content: { type: 'text', text: 'say something' } }];
        const answer = await ask('sampling/createMessage', { messages, maxTokens: 10 });
        call.result.content.push({ type: 'text', text: JSON.stringify(answer.result ?? answer.error) });
    },
    input(call) {
        if (call.params.inputResponses) {
            const text = JSON.stringify([call.params.inputResponses, call.params.requestState]);
            call.result.content.push({ type: 'text', text });
            return;
        }
        reply(call.id, {
            result: {
                resultType: 'input_required',
                inputRequests: { which: { method: 'elicitation/create', params: question } },
                requestState: `state ${starts.get(call.what)} of ${call.what}`, // another one each time
            },
        });
        call.over = true;
    },

    // How it answers.
    answer(call) {
        if (call.odd) {
            const text = `{ "content" :[ {"type":"text","text":"\\u0041\\/${call.what}"} ],  "n":1.50e+2,`;
            const typed = call.modern ? ' "resultType":"complete",' : '';
            send(`{"result": ${text}${typed} "big":12345678901234567890 }, "jsonrpc":"2.0","id":${call.id}}`);
        } else {
            complete(call, call.result);
        }
        call.over = true;
    },
    // A response, a result, or an error, that readers who ignore case read differently; TEXT is more of it.
    unclear: (call, text) => send(`{"jsonrpc":"2.0","id":${call.id},"result":{"content":[],"isError":false}${text}}`),
    unsure: (call, text) => send(`{"jsonrpc":"2.0","id":${call.id},"result":{"content":[],"isError":true${text}}}`),
    mistaken: (call, text) => send(`{"jsonrpc":"2.0","id":${call.id},"error":{"code":-32600,"message":"no"${text}}}`),
    extra: (call, text) => send(`{"jsonrpc":"2.0","id":${call.id},"result":{"content":[],"isError":false${text}}}`), // plain
    // A response that says neither what came of it nor that it failed.
    mute: (call, text = '') => send(`{"jsonrpc":"2.0","id":${call.id}${text}}`),
    again: (call) => complete(call, call.result), // a second time
    tell(call) { // with nothing but what was put in
        complete(call, call.result);
        call.over = true;
    },
    error(call, code = '-32603') {
        reply(call.id, { error: { code: Number(code), message: `no ${call.what}`, data: { why: 'said so' } } });
        call.over = true;
    },
    task(call) {
        const time = '2026-11-16T00:00:00Z';
        const task = { taskId: `task-${call.what}`, status: 'working', createdAt: time, lastUpdatedAt: time };
        reply(call.id, {
            result: call.modern ? { resultType: 'task', ...task, ttlMs: 60000 } : { task: { ...task, ttl: 60000 } },
        });
        call.over = true;
    },
};

async function runTool(call) {
    const args = call.params.arguments ?? {};
    call.what = String(args.what ?? call.params.name);
    const before = starts.get(call.what) ?? 0;
    if (!call.params.inputResponses) {
        append('starts', `${process.pid} ${call.what}`);
        countOne(starts, call.what);
    }
    const scripts = (args.script ?? 'effect answer').split('|');
    const script = scripts[Math.min(before, scripts.length - 1)];
    call.result = { content: [] };
    for (const step of script.trim().split(/\s+/)) {
        const [, word, value] = /^([a-z]+)(?::(.*))?$/.exec(step);
        if (word === 'answer')
            call.result.content.unshift({ type: 'text', text: `${call.what}: ${effects.get(call.what) ?? 0}` });
        await words[word](call, value);
        if (call.over || call.cancelled) break;
    }
    calls.delete(call.id);
}

// ---- reading

const methods = {
    initialize(call) {
        const wanted = call.params.protocolVersion;
        const protocolVersion = legacy.includes(wanted) ? wanted : legacy[0];
        complete(call, { protocolVersion, capabilities, serverInfo: info });
        if (options.full) process.stdin.pause();
        if (options.shut) fs.closeSync(0);
    },
    'server/discover': (call) => complete(call, {
        supportedVersions: [modern], capabilities, ttlMs: 0, cacheScope: 'private',
        _meta: { 'io.modelcontextprotocol/serverInfo': info },
    }),
    ping: (call) => complete(call, {}),
    'logging/setLevel': (call) => complete(call, {}),
    'tools/list': (call) => complete(call, listTools(call.params)),
    'tools/call': runTool,
    'tasks/get': (call) => complete(call, { taskId: call.params.taskId, status: 'completed' }),
    // Whatever the proxy does not know: the parameters as they came.
    'example/echo': (call) => complete(call, { params: call.params }),
};

function missing(call) {
    const unspoken = { initialize: 'modern', 'server/discover': 'legacy' }[call.method];
    return !methods[call.method] || (unspoken && options.eras === unspoken);
}

function rawId(line, message) {
    for (const [, token] of line.matchAll(/"id"\s*:\s*("(?:[^"\\]|\\.)*"|[-+.\deE]+)/g))
        if (JSON.parse(token) === message.id) return token;
    return JSON.stringify(message.id);
}

function take(message, line) {
    if (Array.isArray(message)) return message.forEach((one) => take(one, JSON.stringify(one)));
    if (message.method === undefined) {
        asked.get(message.id)?.(message);
        asked.delete(message.id);
        return;
    }
    if (message.id === undefined) {
        if (message.method !== 'notifications/cancelled') return;
        const call = calls.get(JSON.stringify(message.params.requestId));
        if (call) call.cancelled = true;
        append('cancelled', call?.what ?? '?');
        return;
    }
    const id = rawId(line, message);
    const params = message.params ?? {};
    const call = {
        id, method: message.method, params, progress: 0,
        modern: params._meta?.[versionKey] === modern, token: params._meta?.progressToken,
    };
    if (missing(call)) return reply(id, { error: { code: -32601, message: 'Method not found' } });
    if (call.method === 'tools/call') calls.set(id, call);
    methods[call.method](call);
}

append('pid', process.pid);
if (options.stubborn) process.on('SIGTERM', () => append('signals', 'SIGTERM'));
if (options.shut || options.full) setInterval(() => {}, 3_600_000);
if (options.first) put(`${options.first}\n`);
let rest = '';
process.stdin.setEncoding('utf8');
process.stdin.on('data', (piece) => {
    const all = (rest + piece).split('\n');
    rest = all.pop();
    for (const line of all) {
        if (!options.quiet) append('received', line);
        if (options.deaf) continue;
        let message;
        try {
            message = JSON.parse(line);
        } catch {
            send('{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}');
            continue;
        }
        take(message, line);
    }
});
process.stdin.on('end', async () => {
    await sleep(options.linger ?? 0);
    process.exit(options.exit ?? 0);
});
