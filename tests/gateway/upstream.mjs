// An upstream server in the test's own process: it counts what it did and misbehaves as it is told.
//
// `work` has one entry for each request that did its work: { method, path, query, headers, body,
// key, order }. What a request does is decided by the first segment of its path, see `habits`; a
// test may add its own with `habit`.

import http from 'node:http';
import { later, sleep } from './tap.mjs';

export class Upstream {
    static async start(options = {}) {
        const upstream = new Upstream(options);
        await upstream.listen(0);
        later(() => upstream.stop());
        return upstream;
    }

    constructor(options) {
        this.options = options;
        this.work = [];
        this.seen = []; // every request whose head arrived, whether it did its work or not
        this.orders = new Map(); // of each order: { asked, times }
        this.saved = new Map(); // answers by key, of the habits that honour keys
        this.habits = new Map(Object.entries(habits));
        this.sockets = new Set();
    }

    listen(port) {
        const answer = (request, response) => this.handle(request, response);
        this.server = http.createServer({ keepAliveTimeout: 60_000, ...this.options }, answer);
        this.server.on('connection', (socket) => {
            this.sockets.add(socket);
            socket.on('close', () => this.sockets.delete(socket));
            socket.on('error', () => {});
            if (this.onConnection) this.onConnection(socket);
        });
        return new Promise((resolve) => {
            this.server.listen(port, '127.0.0.1', () => {
                this.port = this.server.address().port;
                this.url = `http://127.0.0.1:${this.port}`;
                resolve();
            });
        });
    }

    stop() {
        for (const socket of this.sockets) socket.destroy();
        return new Promise((resolve) => this.server.close(resolve));
    }

    habit(name, body) {
        this.habits.set(name, body);
    }

    async handle(request, response) {
        const url = new URL(request.url, this.url);
        const entry = {
            method: request.method,
            path: url.pathname,
            raw: request.url,
            query: url.searchParams,
            headers: request.headers,
            rawHeaders: request.rawHeaders,
            key: request.headers['idempotency-key'],
            at: Date.now(),
        };
        this.seen.push(entry);
        const name = url.pathname.split('/')[1];
        const habit = this.habits.get(name) ?? habits.ok;
        if (habit.early && habit(this, entry, response)) return;
        const pieces = [];
        try {
            for await (const piece of request) pieces.push(piece);
        } catch {
            return; // the client went away in the middle
        }
        entry.body = Buffer.concat(pieces).toString();
        try {
            entry.args = JSON.parse(entry.body);
        } catch {
            entry.args = null;
        }
        entry.order = entry.args?.order_id ?? url.searchParams.get('order_id');
        this.about(entry.order).asked.push(entry);
        await habit(this, entry, response);
    }

    about(order) {
        if (!this.orders.has(order)) this.orders.set(order, { asked: [], times: 0 });
        return this.orders.get(order);
    }

    did(entry) {
        this.work.push(entry);
        this.about(entry.order).times++;
        entry.serial = this.work.length;
        return entry.serial;
    }

    // How often the work was done for an order.
    times(order) {
        return this.about(order).times;
    }

    // The requests that came whole about an order.
    asked(order) {
        return this.about(order).asked;
    }
}

export function reply(response, status, value, headers = {}) {
    const body = Buffer.isBuffer(value) ? value : Buffer.from(JSON.stringify(value));
    response.writeHead(status, {
        'content-type': 'application/json',
        'content-length': body.length,
        ...headers,
    });
    response.end(body);
}

const done = (up, entry) => ({ serial: up.did(entry), order: entry.order ?? null });

// A habit that decides before the body is read.
const early = (body) => Object.assign(body, { early: true });

export const habits = {
    ok: (up, entry, response) => reply(response, 200, done(up, entry)),

    created: (up, entry, response) =>
        reply(response, 201, done(up, entry), {
            location: '/orders/1',
            'x-request-id': 'r-1',
            'set-cookie': 'session=never-replayed',
            authorization: 'never-replayed',
        }),

    // /status/418: that, after the work.
    status: (up, entry, response) =>
        reply(response, Number(entry.path.split('/')[2]), done(up, entry)),

    // /refuse/429: that, without any work.
    refuse: (up, entry, response) =>
        reply(response, Number(entry.path.split('/')[2]), { refused: true }),

    // /slow/300: does the work, then takes its time.
    slow: async (up, entry, response) => {
        const value = done(up, entry);
        await sleep(Number(entry.path.split('/')[2]));
        reply(response, 200, value);
    },

    // Does the work and never answers.
    hang: (up, entry) => void up.did(entry),

    // Never reads the body; resets at once.
    'reset-before': early((up, entry, response) => {
        response.socket.resetAndDestroy();
        return true;
    }),

    'reset-after': (up, entry, response) => {
        up.did(entry);
        response.socket.resetAndDestroy();
    },

    'close-after': (up, entry, response) => {
        up.did(entry);
        response.socket.end();
    },

    // The head at once and then a byte at a time.
    'slow-body': async (up, entry, response) => {
        const body = JSON.stringify(done(up, entry));
        response.writeHead(200, { 'content-type': 'application/json', 'content-length': body.length });
        for (const byte of body) {
            response.write(byte);
            await sleep(15);
        }
        response.end();
    },

    // The head at once and then nothing.
    'stuck-body': (up, entry, response) => {
        up.did(entry);
        response.writeHead(200, { 'content-type': 'application/json', 'content-length': 1000 });
        response.write('{"serial":');
    },

    'half-body': (up, entry, response) => {
        up.did(entry);
        response.writeHead(200, { 'content-type': 'application/json', 'content-length': 1000 });
        response.write('{"serial":', () => response.socket.end());
    },

    // /huge/3000000: so many bytes.
    huge: (up, entry, response) => {
        up.did(entry);
        const body = Buffer.alloc(Number(entry.path.split('/')[2]), 'x');
        reply(response, 200, body, { 'content-type': 'text/plain' });
    },

    redirect: (up, entry, response) => {
        up.did(entry);
        reply(response, 302, { moved: true }, { location: `${up.url}/ok/elsewhere` });
    },

    // Refuses twice with Retry-After, then works: /busy/429 or /busy/503.
    busy: (up, entry, response) => {
        const before = up.seen.filter((e) => e.path === entry.path && e.order === entry.order).length;
        if (before >= 3) return habits.ok(up, entry, response);
        reply(response, Number(entry.path.split('/')[2]), { busy: true }, { 'retry-after': '1' });
    },

    // Honours the key as a payment API does: a repeat gets the saved answer and does nothing.
    once: (up, entry, response) => {
        if (!up.saved.has(entry.key)) up.saved.set(entry.key, done(up, entry));
        reply(response, 200, up.saved.get(entry.key));
    },

    // The same, but the first time the answer is lost.
    'once-lost': (up, entry, response) => {
        if (!up.saved.has(entry.key)) {
            up.saved.set(entry.key, done(up, entry));
            response.socket.resetAndDestroy();
            return;
        }
        reply(response, 200, up.saved.get(entry.key));
    },

    'once-hang': (up, entry, response) => {
        if (!up.saved.has(entry.key)) {
            up.saved.set(entry.key, done(up, entry));
            return;
        }
        reply(response, 200, up.saved.get(entry.key));
    },

    // A read: what was done for an order. It is not work. /find-never cannot tell.
    find: (up, entry, response) => {
        const data = up.work
            .filter((one) => one.order === entry.order)
            .map((one) => ({ id: `ch_${one.serial}`, serial: one.serial, order: one.order }));
        reply(response, 200, { data });
    },

    'find-never': (up, entry, response) => reply(response, 200, { data: [{}] }),

    'find-broken': (up, entry, response) => reply(response, 500, { broken: true }),

    echo: (up, entry, response) => {
        up.did(entry);
        reply(response, 200, {
            method: entry.method,
            raw: entry.raw,
            headers: entry.headers,
            body: entry.body,
        });
    },
};
