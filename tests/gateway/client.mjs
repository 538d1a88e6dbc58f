// HTTP clients: one that behaves, over TCP, TLS or a Unix socket, and one that writes bytes.

import http from 'node:http';
import https from 'node:https';
import net from 'node:net';

// A client of one server. `base` says where: { host, port } or { socketPath }, with { ca } for TLS.
export class Client {
    constructor(base, token = null) {
        this.base = base;
        this.token = token;
        this.module = base.ca ? https : http;
        this.agent = new this.module.Agent({ keepAlive: true, maxSockets: Infinity });
    }

    // The same connections with another token, or with none.
    as(token) {
        const other = Object.create(this);
        other.token = token;
        return other;
    }

    // An answer: { status, headers, body (bytes), text, json }. A body that is no text goes as JSON. It
    // has a type, unless options.typed is false.
    request(method, path, body = undefined, options = {}) {
        const headers = { ...options.headers };
        let bytes = null;
        if (body !== undefined) {
            const plain = typeof body === 'string' || Buffer.isBuffer(body);
            bytes = Buffer.from(plain ? body : JSON.stringify(body));
            if (options.typed !== false) headers['content-type'] ??= 'application/json';
            headers['content-length'] ??= bytes.length;
        }
        const token = options.token === undefined ? this.token : options.token;
        if (token) headers.authorization ??= `Bearer ${token}`;
        return new Promise((resolve, reject) => {
            const request = this.module.request(
                { ...this.base, agent: this.agent, method, path, headers, signal: options.signal },
                (response) => {
                    const pieces = [];
                    response.on('data', (piece) => pieces.push(piece));
                    response.on('error', reject);
                    response.on('end', () => resolve(answer(response, Buffer.concat(pieces))));
                },
            );
            request.on('error', reject);
            request.end(bytes);
        });
    }

    get(path, options) {
        return this.request('GET', path, undefined, options);
    }

    post(path, body, options) {
        return this.request('POST', path, body, options);
    }

    call(body, options) {
        return this.post('/v1/call', body, options);
    }

    close() {
        this.agent.destroy();
    }
}

function answer(response, body) {
    const result = { status: response.statusCode, headers: response.headers, body };
    result.text = body.toString();
    try {
        result.json = JSON.parse(result.text);
    } catch {
        result.json = undefined;
    }
    return result;
}

// A connection that is written to by hand.
export class Raw {
    static connect(port, host = '127.0.0.1') {
        return new Promise((resolve, reject) => {
            const socket = net.connect(port, host, () => resolve(new Raw(socket)));
            socket.on('error', reject);
        });
    }

    constructor(socket) {
        this.socket = socket;
        this.received = Buffer.alloc(0);
        this.began = Date.now();
        socket.removeAllListeners('error');
        socket.on('error', () => {}); // a reset is an end like another
        socket.on('data', (piece) => (this.received = Buffer.concat([this.received, piece])));
        this.closed = new Promise((resolve) => {
            socket.on('close', () => resolve(Date.now() - this.began));
        });
    }

    write(bytes) {
        this.socket.write(bytes);
        return this;
    }

    // Everything until the server ends it, as text; or what came so far when the time is up.
    async all(limitMs = 60_000) {
        let timer;
        const limit = new Promise((resolve) => (timer = setTimeout(resolve, limitMs)));
        await Promise.race([this.closed, limit]);
        clearTimeout(timer);
        return this.received.toString('latin1');
    }

    // The status of the first answer that comes.
    async status(limitMs = 60_000) {
        const end = Date.now() + limitMs;
        for (;;) {
            const found = /^HTTP\/1\.[01] (\d{3})/.exec(this.received.toString('latin1'));
            if (found) return Number(found[1]);
            if (Date.now() > end || this.socket.destroyed) return 0;
            await new Promise((resolve) => setTimeout(resolve, 5));
        }
    }

    // The head of the first answer that comes.
    async head(limitMs = 60_000) {
        const end = Date.now() + limitMs;
        for (;;) {
            const at = this.received.indexOf('\r\n\r\n');
            if (at >= 0) return this.received.toString('latin1', 0, at);
            if (Date.now() > end || this.socket.destroyed) return '';
            await new Promise((resolve) => setTimeout(resolve, 5));
        }
    }

    hangUp() {
        this.socket.destroy();
    }
}

// The bytes of a request, with a head that is as asked for.
export function bytesOf(method, path, headers, body = '') {
    const lines = Object.entries({ Host: '127.0.0.1', ...headers })
        .flatMap(([name, value]) => [value].flat().map((one) => `${name}: ${one}`))
        .map((line) => `${line}\r\n`);
    return `${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n${body}`;
}

// A stream of server-sent events. `events` grows: { id, event, data }.
export class Events {
    static open(client, path, headers = {}) {
        return new Promise((resolve, reject) => {
            const request = client.module.request(
                {
                    ...client.base,
                    agent: false,
                    path,
                    headers: { authorization: `Bearer ${client.token}`, ...headers },
                },
                (response) => resolve(new Events(request, response)),
            );
            request.on('error', reject);
            request.end();
        });
    }

    constructor(request, response) {
        this.request = request;
        this.status = response.statusCode;
        this.headers = response.headers;
        this.events = [];
        this.comments = 0;
        this.rest = '';
        request.on('error', () => {});
        response.setEncoding('utf8');
        response.on('data', (piece) => this.take(piece));
        response.on('error', () => {});
        this.ended = new Promise((resolve) => response.on('close', resolve));
    }

    take(piece) {
        const blocks = (this.rest + piece).split('\n\n');
        this.rest = blocks.pop();
        for (const block of blocks) {
            const event = {};
            for (const line of block.split('\n')) {
                if (line.startsWith(':')) this.comments++;
                const colon = line.indexOf(':');
                if (colon > 0) event[line.slice(0, colon)] = line.slice(colon + 1).trimStart();
            }
            if (event.data !== undefined) this.events.push({ ...event, json: JSON.parse(event.data) });
        }
    }

    close() {
        this.request.destroy();
    }
}
