// MCP over HTTP for tests: a gateway with servers behind /mcp/NAME, and clients that write their own
// requests, so that every moment and every mistake can be chosen; and those of the SDKs.
//
//     const site = await Site.start({ contract: { tools } });      // the scripted server, over stdio
//     const client = await site.open();                            // initialized
//     assertFresh(await client.call('append', { what: 'a' }));
//
// What clients get is held to what always holds by the harness of the proxy.

import http from 'node:http';
import { spawnSync } from 'node:child_process';
import { Gateway } from '../gateway/harness.mjs';
import { Place, assert, legacyVersion, modernVersion } from './harness.mjs';
import { later } from '../gateway/tap.mjs';

const metaOf = (name) => `io.modelcontextprotocol/${name}`;

// A place and a gateway on its ledger.
// As fetch, but over the connection of that agent, which is always the same one.
function overOne(agent, url, method, { body, headers }) {
    return new Promise((resolve, reject) => {
        const request = http.request(url, { method, headers, agent }, (answer) => resolve({
            status: answer.statusCode, headers: new Headers(answer.headers), body: answer,
            text: async () => Buffer.concat(await answer.toArray()).toString(),
        }));
        request.on('error', reject);
        request.end(body);
    });
}

export class Site {
    // Options: those of a Place; servers (of the gateway's configuration, else the place's own as `s`);
    // config (more of it).
    static async start(options = {}) {
        const site = new Site();
        site.place = new Place(options);
        site.options = options;
        site.gw = await site.gateway();
        return site;
    }

    // One more of the same configuration on the same ledger.
    gateway() {
        const { contract = { tools: {} }, servers, config } = this.options;
        return Gateway.start({
            contract: { version: 1, ...contract },
            ledger: this.place.ledger,
            env: this.place.env,
            config: { mcp: servers ?? { s: { command: this.place.server } }, ...config },
        });
    }

    // A client of the server `name`; `open` has said who it is. Options: gw, token (the name of one), and
    // those of HttpClient.
    client({ gw = this.gw, name = 's', token = 'agent', ...options } = {}) {
        return new HttpClient(`http://127.0.0.1:${gw.port}/mcp/${name}`, {
            headers: token ? { authorization: `Bearer ${gw.texts[token]}` } : {}, place: this.place, ...options,
        });
    }
    async open(options = {}) {
        const client = this.client(options);
        if (!client.modern) await client.initialize();
        return client;
    }
}

// A place whose server is reached over HTTP: `semel mcp --upstream URL`.
export class UpstreamPlace extends Place {
    constructor(url, options = {}) {
        super(options);
        this.url = url;
    }
    command({ url = this.url, ...options } = {}) {
        return super.command({ ...options, server: [], args: ['--upstream', url] });
    }
}

// A client of Streamable HTTP.
export class HttpClient {
    constructor(url, { headers = {}, modern = false, capabilities = {}, version = legacyVersion, place = null } = {}) {
        Object.assign(this, { url, headers, modern, capabilities, version, place });
        this.session = null;
        this.notes = []; // notifications, from wherever they came
        this.handlers = new Map(); // of the server's requests
        this.nextId = 0;
        this.agreed = null;
    }

    on(method, handler) {
        this.handlers.set(method, handler);
    }

    // The server's own name of the session, where a gateway is in front of a server over HTTP.
    get serverSession() {
        return this.session.slice(this.session.indexOf('.') + 1);
    }

    headersOf(message) {
        const own = { ...this.headers };
        if (this.session) own['mcp-session-id'] = this.session;
        if (this.agreed) own['mcp-protocol-version'] = this.agreed;
        if (this.modern) {
            own['mcp-protocol-version'] = modernVersion;
            if (message?.method) own['mcp-method'] = message.method;
            const name = message?.params?.name ?? message?.params?.uri;
            if (name !== undefined) own['mcp-name'] = name;
        }
        return own;
    }

    // What comes back: { status, headers, type, text, messages } once it has ended; with the message that
    // answers the request, if there is one, spread into it. `abort` hangs up.
    post(message, options = {}) {
        const gone = new AbortController();
        const body = typeof message === 'string' ? message : JSON.stringify(message);
        const headers = {
            'content-type': 'application/json', accept: 'application/json, text/event-stream',
            ...this.headersOf(message), ...options.headers,
        };
        for (const name of Object.keys(headers)) if (headers[name] === null) delete headers[name];
        const answer = this.exchange('POST', { body, headers, signal: gone.signal }, message.id);
        answer.catch(() => {}); // whoever waits for it is told
        answer.abort = () => gone.abort();
        return answer;
    }

    async exchange(method, init, id) {
        const response = await (this.connection ? overOne(this.connection, this.url, method, init) : fetch(this.url, { method, ...init }));
        const type = (response.headers.get('content-type') ?? '').split(';')[0];
        const reply = { status: response.status, headers: response.headers, type, text: '', messages: [], line: '' };
        const take = (line) => {
            if (line.trim() === '') return;
            this.place?.seen.push(line);
            const said = JSON.parse(line);
            for (const one of Array.isArray(said) ? said : [said]) this.take(one, line, reply, id);
        };
        if (type === 'text/event-stream') {
            await this.events(response, reply, take);
        } else {
            reply.text = await response.text();
            if (type === 'application/json') take(reply.text);
        }
        return reply;
    }

    take(message, line, reply, id) {
        reply.messages.push(message);
        if (message.method === undefined) {
            if (id === undefined || message.id === id || message.id === null) Object.assign(reply, message, { line });
        } else if (message.id === undefined) {
            this.notes.push(message);
        } else {
            this.serve(message);
        }
    }

    async events(response, reply, take) {
        let rest = '';
        const decoder = new TextDecoder();
        for await (const piece of response.body) {
            const all = (rest + decoder.decode(piece, { stream: true })).split('\n\n');
            rest = all.pop();
            for (const event of all) {
                reply.text += `${event}\n\n`;
                const data = event.split('\n').filter((one) => one.startsWith('data:')).map((one) => one.slice(5).trimStart());
                take(data.join('\n'));
            }
        }
    }

    // The server's requests are answered by another POST.
    async serve(message) {
        const handler = this.handlers.get(message.method);
        const body = handler
            ? { result: await handler(message.params, message) }
            : { error: { code: -32601, message: 'Method not found' } };
        const taken = await this.post({ jsonrpc: '2.0', id: message.id, ...body });
        assert.equal(taken.status, 202, taken.text);
    }

    request(method, params = {}, { id = this.nextId++, ...options } = {}) {
        const meta = this.modern ? {
            [metaOf('protocolVersion')]: modernVersion,
            [metaOf('clientCapabilities')]: this.capabilities,
            [metaOf('clientInfo')]: { name: 'raw', version: '1' },
        } : {};
        const _meta = { ...meta, ...params._meta };
        const all = Object.keys(_meta).length > 0 ? { ...params, _meta } : params;
        const answer = this.post({ jsonrpc: '2.0', id, method, params: all }, options);
        answer.id = id;
        return answer;
    }
    notify(method, params) {
        return this.post({ jsonrpc: '2.0', method, params });
    }

    async initialize() {
        const answer = await this.request('initialize', {
            protocolVersion: this.version, capabilities: this.capabilities, clientInfo: { name: 'raw', version: '1' },
        });
        assert.equal(answer.status, 200, answer.text);
        this.session = answer.headers.get('mcp-session-id');
        this.agreed = answer.result.protocolVersion;
        assert.equal((await this.notify('notifications/initialized')).status, 202);
        return answer;
    }

    call(name, args = {}, more = {}, options = {}) {
        return this.request('tools/call', { name, arguments: args, ...more }, options);
    }
    cancel(id) {
        return this.notify('notifications/cancelled', { requestId: id, reason: 'timeout' });
    }
    progress(token) {
        return this.notes.filter((one) => one.method === 'notifications/progress' && one.params.progressToken === token);
    }

    // The stream of the session; `abort` hangs up.
    listen(headers = {}) {
        const gone = new AbortController();
        const init = { headers: { accept: 'text/event-stream', ...this.headersOf(), ...headers }, signal: gone.signal };
        const ended = this.exchange('GET', init);
        ended.catch(() => {});
        ended.abort = () => gone.abort();
        later(() => gone.abort());
        return ended;
    }
    end() {
        return this.exchange('DELETE', { headers: this.headersOf() });
    }
}

// ---- the SDKs' clients

async function connect(client, transport, place) {
    await client.connect(transport);
    const inner = transport.onmessage;
    transport.onmessage = (message, extra) => {
        place?.seen.push(JSON.stringify(message));
        inner(message, extra);
    };
    later(() => client.close());
    return client;
}

// Options: headers, capabilities, prepare, mode (2.x: legacy, auto or a pinned revision), place.
export async function httpSdk1(url, options = {}) {
    const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
    const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
    const client = new Client({ name: 'one', version: '1' }, { capabilities: options.capabilities ?? {} });
    await options.prepare?.(client);
    const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: options.headers ?? {} } });
    return connect(client, transport, options.place);
}

export async function httpSdk2(url, options = {}) {
    const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
    const client = new Client({ name: 'two', version: '1' }, {
        capabilities: options.capabilities ?? {},
        ...(options.mode ? { versionNegotiation: { mode: options.mode } } : {}),
    });
    await options.prepare?.(client);
    const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: options.headers ?? {} } });
    return connect(client, transport, options.place);
}

export const alive = (pid) => spawnSync('ps', ['-p', String(pid)]).status === 0;
