// An MCP server over Streamable HTTP that does as its caller says, also wrongly, and counts what it
// does. It runs inside of the test, so that every moment can be waited for.
//
//     const web = await WebServer.start({ sessions: true });
//     web.url, web.effects('a'), web.received (what came: { method, headers, message })
//
// A call's arguments are { what, script }: words that are done one after the other, "effect answer" if
// there is none. An answer is JSON unless something was said before it on a stream of events. The words
// are the functions of `words` below. It speaks both eras: with sessions in the old one, if so asked.

import { randomUUID } from 'node:crypto';
import http from 'node:http';
import { eventually, later, sleep } from '../gateway/tap.mjs';

const versionKey = 'io.modelcontextprotocol/protocolVersion';
const modernVersion = '2026-07-28';
const info = { name: 'web', version: '1.0.0' };
const capabilities = { tools: { listChanged: true } };
const anything = { type: 'object', properties: { what: { type: 'string' }, script: { type: 'string' } } };
const marked = {
    type: 'object',
    properties: { ...anything.properties, region: { type: 'string', 'x-mcp-header': 'Region' } },
};

export class WebServer {
    static async start(options = {}) {
        const web = new WebServer(options);
        await new Promise((resolve) => web.server.listen(0, '127.0.0.1', resolve));
        web.url = `http://127.0.0.1:${web.server.address().port}/mcp`;
        later(() => web.stop());
        return web;
    }

    constructor(options) {
        this.options = options;
        this.received = [];
        this.counts = new Map();
        this.marks = new Set();
        this.sessions = new Map(); // id -> { stream }
        this.asked = new Map(); // requests of ours that wait for an answer
        this.streams = new Map(); // by the name that their events' ids begin with
        this.connections = new Set();
        this.nextId = 0;
        this.states = 0;
        this.server = http.createServer((request, response) => this.take(request, response));
        this.server.on('connection', (socket) => {
            this.connections.add(socket);
            socket.on('close', () => this.connections.delete(socket));
        });
    }

    stop() {
        for (const socket of this.connections) socket.destroy();
        this.server.close();
    }

    effects(what) {
        return this.counts.get(what) ?? 0;
    }
    passed(mark) {
        return eventually(`the server has come to ${mark}`, () => this.marks.has(mark));
    }
    mark(name) {
        this.marks.add(name);
    }
    calls(what) {
        return this.received.filter((one) => one.message?.params?.arguments?.what === what);
    }
    of(method) {
        return this.received.filter((one) => one.message?.method === method);
    }

    async take(request, response) {
        const pieces = [];
        for await (const piece of request) pieces.push(piece);
        const text = Buffer.concat(pieces).toString();
        // Of a header that is there twice servers of Go and Python take the first.
        const session = request.headersDistinct['mcp-session-id']?.[0];
        const headers = { ...request.headers, 'mcp-session-id': session };
        const entry = { verb: request.method, url: request.url, headers, raw: request.rawHeaders, text, message: text === '' ? null : JSON.parse(text) };
        this.received.push(entry);
        response.on('close', () => (entry.hungUp = !response.writableFinished));
        const modern = request.headers['mcp-protocol-version'] === modernVersion;
        const begins = entry.message?.method === 'initialize';
        if (this.options.sessions && !modern && !begins) {
            if (session === undefined) return refuse(response, 400, 'a session is needed');
            if (!this.sessions.has(session)) return refuse(response, 404, 'Session not found');
        }
        if (request.method === 'POST') return this.post(entry, response, modern);
        if (modern || !this.options.sessions) return refuse(response, 405, 'Method not allowed.');
        if (request.method === 'DELETE') {
            await this.options.holdDelete;
            this.sessions.delete(session);
            return response.writeHead(200).end();
        }
        return this.get(entry, response);
    }

    // The session's own stream, or the rest of one that broke.
    get(entry, response) {
        const last = entry.headers['last-event-id'];
        if (last === undefined) {
            response.writeHead(200, { 'content-type': 'text/event-stream' });
            response.flushHeaders();
            this.sessions.get(entry.headers['mcp-session-id']).stream = response;
            return;
        }
        if (this.options.refuseResume) return refuse(response, this.options.refuseResume, 'no');
        const [name, number] = last.split('/');
        const stream = this.streams.get(name);
        if (!stream) return refuse(response, 400, 'no such event');
        stream.attach(response, Number(number) + 1);
    }

    post(entry, response, modern) {
        const { message } = entry;
        if (Array.isArray(message)) {
            entry.batch = true;
            return refuse(response, 400, 'no batches');
        }
        if (message.method === undefined) {
            this.asked.get(message.id)?.(message);
            this.asked.delete(message.id);
            return response.writeHead(202).end();
        }
        if (message.id === undefined) {
            if (message.method === 'notifications/cancelled') this.mark(`cancelled-${message.params.requestId}`);
            return response.writeHead(202, { 'x-notice': 'taken' }).end();
        }
        const call = { web: this, entry, response, modern, id: message.id, params: message.params ?? {}, result: { content: [] } };
        call.stream = new Stream(this, response);
        const method = methods[message.method];
        if (message.method === 'tools/list' && this.options.holdList) return this.options.holdList.then(() => method(call));
        if (!method) return answer(call, { error: { code: -32601, message: 'Method not found' } });
        return method(call);
    }

    // Something that belongs to no request.
    tell(session, method) {
        this.sessions.get(session).stream.write(`event: message\ndata: ${JSON.stringify({ jsonrpc: '2.0', method })}\n\n`);
    }
}

function refuse(response, status, message) {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ jsonrpc: '2.0', id: null, error: { code: -32000, message } }));
}

// The events of one answer, of which those that have ids can be asked for again.
class Stream {
    constructor(web, response) {
        this.web = web;
        this.response = response;
        this.name = randomUUID();
        this.events = [];
        this.begun = false;
        this.over = false;
        this.asked = 0; // how often for the rest
    }

    begin(ids) {
        if (this.begun) return;
        this.begun = true;
        this.ids = ids;
        this.response.writeHead(200, { 'content-type': 'text/event-stream' });
        this.response.flushHeaders();
        if (ids) this.web.streams.set(this.name, this);
    }

    attach(response, from) {
        this.asked++;
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.flushHeaders();
        this.response = response;
        for (const event of this.events.slice(from)) response.write(event);
        if (this.over) response.end();
    }

    say(message, retry = null) {
        const data = message === null ? '' : JSON.stringify(message);
        const id = this.ids ? `id: ${this.name}/${this.events.length}\n` : '';
        const event = `${id}${retry === null ? '' : `retry: ${retry}\n`}event: message\ndata: ${data}\n\n`;
        this.events.push(event);
        this.response.write(event);
    }
    end() {
        this.over = true;
        this.response.end();
    }
}

function answer(call, body) {
    const message = { jsonrpc: '2.0', id: call.id, ...body };
    if (call.stream.begun) {
        call.stream.say(message);
        call.stream.end();
    } else {
        call.response.writeHead(200, { 'content-type': 'application/json', 'x-server': 'web' });
        call.response.end(JSON.stringify(message));
    }
}

function complete(call, result) {
    answer(call, { result: call.modern ? { resultType: 'complete', ...result } : result });
}

const question = { message: 'Which one?', requestedSchema: { type: 'object', properties: { name: { type: 'string' } } } };

const words = {
    effect: (call) => call.web.counts.set(call.what, call.web.effects(call.what) + 1),
    wait: (call, ms) => sleep(Number(ms)),
    mark: (call, name) => call.web.mark(name),
    async gate(call, name) {
        while (!call.web.marks.has(name)) await sleep(5);
    },
    never: () => new Promise(() => {}),

    // Streams: begun, with ids or without; broken, or ended as a server may that wants to be asked again.
    stream: (call) => call.stream.begin(false),
    ids(call, retry = '30') {
        call.stream.begin(true);
        call.stream.say(null, Number(retry));
    },
    break: (call) => call.stream.response.destroy(),
    close: (call) => call.stream.response.end(),
    async asked(call, times) {
        while (call.stream.asked < Number(times)) await sleep(5);
    },

    progress(call) {
        const progressToken = call.params._meta?.progressToken;
        call.progressed = (call.progressed ?? 0) + 1;
        call.stream.begin(false);
        call.stream.say({ jsonrpc: '2.0', method: 'notifications/progress', params: { progressToken, progress: call.progressed, message: call.what } });
    },
    async elicit(call) {
        const id = call.web.nextId++;
        call.stream.begin(false);
        const reply = new Promise((resolve) => call.web.asked.set(id, resolve));
        call.stream.say({ jsonrpc: '2.0', id, method: 'elicitation/create', params: question });
        const { result, error } = await reply;
        call.result.content.push({ type: 'text', text: JSON.stringify(result ?? error) });
    },

    // It asks for input, with another state each time.
    input(call) {
        if (call.params.inputResponses) return;
        call.over = true;
        answer(call, {
            result: {
                resultType: 'input_required', requestState: `state ${++call.web.states} of ${call.what}`,
                inputRequests: { which: { method: 'elicitation/create', params: { mode: 'form', ...question } } },
            },
        });
    },

    // What is no answer.
    status(call, status) {
        call.response.writeHead(Number(status), { 'content-type': 'text/plain', 'x-why': 'said so', 'retry-after': '7' });
        call.response.end(`the status is ${status}`);
    },
    refuse: (call, status) => refuse(call.response, Number(status), 'turned down'),
    forget: (call) => call.web.sessions.clear(),
    taken: (call) => call.response.writeHead(202).end(),
    junk(call) {
        call.response.writeHead(200, { 'content-type': 'application/json' });
        call.response.end('{"jsonrpc":');
    },
    half(call) {
        call.response.writeHead(200, { 'content-type': 'application/json', 'content-length': '1000' });
        call.response.write('{"jsonrpc":"2.0",');
        call.response.destroy();
    },
    hang: (call) => call.response.destroy(),
    empty: (call) => call.stream.end(),
    fail: (call) => (call.result.isError = true),
    error: (call, code = '-32603') => answer(call, { error: { code: Number(code), message: `no ${call.what}` } }),
    answer(call) {
        call.result.content.unshift({ type: 'text', text: `${call.what}: ${call.web.effects(call.what)}` });
        complete(call, call.result);
    },
};

const methods = {
    initialize(call) {
        if (call.web.options.refuseInitialize) return refuse(call.response, 503, 'later');
        const id = randomUUID();
        if (call.web.options.sessions) {
            call.web.sessions.set(id, {});
            call.response.setHeader('mcp-session-id', id);
        }
        complete(call, { protocolVersion: call.params.protocolVersion, capabilities, serverInfo: info });
    },
    'server/discover': (call) => complete(call, {
        supportedVersions: [modernVersion], capabilities, ttlMs: 0, cacheScope: 'private',
        _meta: { 'io.modelcontextprotocol/serverInfo': info },
    }),
    ping: (call) => complete(call, {}),
    'subscriptions/listen': (call) => call.stream.begin(false), // and that is all
    'tools/list': (call) => complete(call, {
        tools: [
            { name: 'append', inputSchema: anything }, { name: 'look', inputSchema: anything, annotations: { readOnlyHint: true } },
            { name: 'put', inputSchema: anything }, { name: 'region', inputSchema: marked }, { name: 'secret', inputSchema: anything },
            ...(call.web.options.changes ?? []),
        ],
        ttlMs: 60000, cacheScope: 'private',
    }),
    async 'tools/call'(call) {
        const args = call.params.arguments ?? {};
        call.what = String(args.what ?? call.params.name);
        call.modern = call.params._meta?.[versionKey] === modernVersion;
        for (const step of (args.script ?? 'effect answer').trim().split(/\s+/)) {
            const [, word, value] = /^([a-z]+)(?::(.*))?$/.exec(step);
            await words[word](call, value);
            if (call.over) break;
        }
    },
    'subscriptions/listen'(call) {
        call.stream.begin(false);
        call.web.mark('listening');
    },
    'example/echo': (call) => complete(call, { params: call.params }),
    'example/status'(call) {
        words.status(call, call.params.status);
    },
};
