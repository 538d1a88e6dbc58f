// Published SDKs, a gateway, and the APIs that they are for. Between all of them are wires (wire.mjs):
//
//     SDK - front - gateway - api - server
//
//     const site = await Site.start({ stripe: { port, config: { preset: 'stripe' } } });
//     const seen = await python.call('stripe', { base: site.stripe.base, ... }, 'v1.charges.create', [...]);
//     assert.equal(site.stripe.api.of('o-1').length, 1);

import { spawn } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import path from 'node:path';
import process from 'node:process';
import readline from 'node:readline';
import { Gateway, assert } from '../gateway/harness.mjs';
import { freePort, newPath } from '../gateway/program.mjs';
import { eventually, later } from '../gateway/tap.mjs';
import { Wire } from './wire.mjs';

const root = process.env.SEMEL_ROOT ?? process.cwd();
export const pythonPath = (name) => path.join(root, 'build/python/sdks/bin', name);
export const goPath = (name) => path.join(root, 'build/go/servers', name);

let orders = 0;
export const newOrder = () => `o${process.pid}x${++orders}x`;

// Is this request the one with the order?
export const here = (order) => (entry) => entry.text.includes(order) || entry.path.includes(order);

// A server that listens on a free port: { port, child }. `args` is a function of the port.
export async function server(program, args, options = {}) {
    const port = await freePort();
    const log = newPath(`${path.basename(program)}.log`);
    const file = fs.openSync(log, 'w');
    const child = spawn('setpriv', ['--pdeathsig', 'KILL', program, ...args(port)], { ...options, stdio: ['ignore', file, file] });
    later(() => child.kill('SIGKILL'));
    await eventually(`${program} listens`, async () => {
        if (child.exitCode !== null) throw new Error(fs.readFileSync(log, 'utf8'));
        const socket = net.connect(port, '127.0.0.1');
        const up = await new Promise((resolve) => {
            socket.on('connect', () => resolve(true));
            socket.on('error', () => resolve(false));
        });
        socket.destroy();
        return up;
    }, 60_000);
    return { port, child, log: () => fs.readFileSync(log, 'utf8') };
}

// An API of the test's own: `answer` gets the request, its body as text, and the response. Its port.
export async function ownServer(answer) {
    const own = http.createServer(async (request, response) => {
        const pieces = [];
        response.on('error', () => {});
        for await (const piece of request) pieces.push(piece);
        answer(request, Buffer.concat(pieces).toString(), response);
    });
    await new Promise((resolve) => own.listen(0, '127.0.0.1', resolve));
    later(() => {
        own.closeAllConnections();
        own.close();
    });
    return own.address().port;
}

// As a server of the test's own answers.
export function answerJson(response, value, status = 200) {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(value));
}

// 100 requests at once, which `start` makes: the API answers the first one when all have asked.
export async function atOnce(place, order, start) {
    const held = place.api.trouble('hold', here(order));
    const all = start();
    await eventually('all have asked', () => place.front.of(order).length >= 100);
    held.release();
    return all;
}

// 100 callers at once: what they saw.
export const hundred = (place, order, call) => atOnce(place, order, () => Promise.all(Array.from({ length: 100 }, () => call())));

export class Site {
    // proxies: { NAME: { port, config, stamp, path } }; options: contract, env, limits. A proxy is at an address of
    // its own, or with `path` below /proxy/NAME of the gateway's.
    static async start(proxies, { limits = {}, ...options } = {}) {
        const site = new Site();
        const config = {};
        const shared = await freePort();
        for (const [name, { port, stamp, path: below, config: more }] of Object.entries(proxies)) {
            const api = await Wire.start(port, { stamp });
            const own = below ? shared : await freePort();
            const front = await Wire.start(own);
            const address = { listen: `127.0.0.1:${own}`, client: { name: `sdk-${name}`, scope: 'shop' } };
            config[name] = { url: api.url, ...(below ? {} : address), ...more };
            site[name] = { api, front, base: front.url + (below ? `/proxy/${name}` : ''), port: front.port };
        }
        site.gw = await Gateway.start({ ...options, port: shared, config: { proxies: config, limits } });
        return site;
    }

    // Is this text in the ledger's files?
    ledgerHas(text) {
        const files = fs.readdirSync(this.gw.directory).filter((name) => name.startsWith('ledger.db'));
        assert.ok(files.length > 0);
        return files.some((name) => fs.readFileSync(path.join(this.gw.directory, name)).includes(text));
    }

    // The request for approval whose arguments have this text.
    request(text) {
        return eventually(`${text} waits for approval`, async () => {
            const { json } = await this.gw.approver.get('/v1/approvals');
            return json.items.find((one) => JSON.stringify(one.args).includes(text));
        });
    }

    // Approves it: what the approver saw.
    async approve(text) {
        const item = await this.request(text);
        const { status, text: said } = await this.gw.approver.post(`/v1/effects/${item.effect}/approve`, { request: item.request });
        assert.equal(status, 200, said);
        return item;
    }
}

// SDKs of Python (driver.py), imported once.
class Python {
    constructor(modules) {
        const log = newPath('python.log');
        const file = fs.openSync(log, 'w');
        const args = ['--pdeathsig', 'KILL', pythonPath('python'), path.join(root, 'tests/apis/driver.py'), ...modules];
        this.child = spawn('setpriv', args, { stdio: ['pipe', 'pipe', file] });
        this.waiting = new Map();
        this.next = 1;
        this.up = new Promise((resolve, reject) => {
            this.waiting.set(0, { answer: resolve });
            this.child.on('close', () => reject(new Error(fs.readFileSync(log, 'utf8'))));
        });
        readline.createInterface({ input: this.child.stdout }).on('line', (line) => {
            const answer = JSON.parse(line);
            const { answer: resolve, piece } = this.waiting.get(answer.id);
            if ('piece' in answer) piece(answer.piece);
            else resolve(answer);
        });
        later(() => this.end());
    }

    // As when the agent dies; its calls are never answered.
    end() {
        this.child.kill('SIGKILL');
    }

    // { value } or { raised: { type, message, status, code } }.
    call(sdk, client, call, args, piece = () => {}) {
        const id = this.next++;
        const answer = new Promise((resolve) => this.waiting.set(id, { answer: resolve, piece }));
        this.child.stdin.write(`${JSON.stringify({ id, sdk, client, call, args })}\n`);
        return answer;
    }
}

export async function python(...modules) {
    const sdk = new Python(modules);
    await sdk.up;
    return sdk;
}

// The value of a call that must have succeeded.
export function good(seen) {
    assert.equal(seen.raised, undefined, JSON.stringify(seen.raised));
    return seen.value;
}

// What an SDK has raised.
export function bad(seen) {
    assert.ok(seen.raised, `nothing was raised: ${JSON.stringify(seen.value)}`);
    return seen.raised;
}

export { assert };
