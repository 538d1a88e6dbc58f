// A wire between two programs: a reverse proxy that passes requests on as they come, keeps a list of
// them, and can make trouble with one of them.
//
//     const wire = await Wire.start(port);
//     wire.trouble('drop', (entry) => entry.text.includes('o-1'));   // the next such request
//     wire.of('o-1')                                                  // the requests that name it
//
// Troubles: `cut` hangs up before the request is passed on, `drop` passes it on and hangs up instead
// of answering, `fail` passes it on and answers 500, `hold` answers when `release` is called.

import http from 'node:http';
import { later } from '../gateway/tap.mjs';

const hopByHop = ['connection', 'keep-alive', 'transfer-encoding'];

export class Wire {
    // Options: stamp, a function of the entry that gives headers to add to its answer.
    static async start(port, options = {}) {
        const wire = new Wire(port, options);
        await new Promise((resolve) => wire.server.listen(0, '127.0.0.1', resolve));
        wire.port = wire.server.address().port;
        wire.url = `http://127.0.0.1:${wire.port}`;
        return wire;
    }

    constructor(port, { stamp = () => ({}) }) {
        Object.assign(this, { target: port, stamp, seen: [], troubles: [] });
        this.agent = new http.Agent({ keepAlive: true, maxSockets: Infinity });
        this.server = http.createServer((request, response) => this.take(request, response));
        this.server.requestTimeout = 0;
        later(() => {
            this.server.closeAllConnections();
            this.server.close();
            this.agent.destroy();
        });
    }

    of(text, more = () => true) {
        return this.seen.filter((entry) => (entry.path.includes(text) || entry.text.includes(text)) && more(entry));
    }

    // The different actions among requests: those with one downstream key are one to the API.
    actions(text) {
        return new Set(this.of(text).map((entry) => entry.headers['idempotency-key'] ?? entry.serial)).size;
    }

    trouble(kind, match, times = 1) {
        const trouble = { kind, match, times, release: () => {} };
        trouble.released = new Promise((resolve) => (trouble.release = resolve));
        this.troubles.push(trouble);
        return trouble;
    }

    troubleOf(entry) {
        const found = this.troubles.find((one) => one.times > 0 && one.match(entry));
        if (found) found.times--;
        return found ?? { kind: 'none' };
    }

    async take(request, response) {
        const pieces = [];
        response.on('error', () => {});
        request.on('error', () => {});
        for await (const piece of request) pieces.push(piece);
        const body = Buffer.concat(pieces);
        const entry = {
            serial: this.seen.length + 1, method: request.method, path: request.url, headers: request.headers,
            rawHeaders: request.rawHeaders, body, text: body.toString('latin1'),
        };
        this.seen.push(entry);
        const trouble = this.troubleOf(entry);
        if (trouble.kind === 'cut') return request.socket.destroy();
        this.pass(entry, body, request, response, trouble);
    }

    pass(entry, body, request, response, trouble) {
        const names = request.rawHeaders;
        const headers = names.filter((_, i) => !hopByHop.includes(names[i - (i % 2)].toLowerCase()));
        if (body.length > 0 && request.headers['content-length'] === undefined) headers.push('Content-Length', String(body.length));
        const passed = http.request({
            host: '127.0.0.1', port: this.target, agent: this.agent, method: request.method, path: request.url, headers,
        }, async (answer) => {
            entry.status = answer.statusCode;
            if (trouble.kind === 'hold') await trouble.released;
            if (trouble.kind === 'drop' || trouble.kind === 'fail') {
                answer.resume();
                await new Promise((resolve) => answer.on('end', resolve));
                if (trouble.kind === 'drop') return request.socket.destroy();
                response.writeHead(500, { 'content-type': 'application/json' });
                return response.end('{"error":{"message":"the test fails this","type":"api_error"}}');
            }
            const own = Object.entries(this.stamp(entry));
            const kept = Object.entries(answer.headers).filter(([name]) => !hopByHop.includes(name) && !own.some(([mine]) => mine === name));
            response.writeHead(answer.statusCode, Object.fromEntries([...kept, ...own]));
            answer.on('error', () => request.socket.destroy());
            answer.pipe(response);
        });
        passed.on('error', () => request.socket.destroy());
        response.on('close', () => passed.destroy());
        passed.end(body);
    }
}
