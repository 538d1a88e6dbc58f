// What the tests of the MCP proxy share: a place with a ledger, a contract and a server; clients that
// speak to the server directly or through `semel mcp`, line by line or with the SDKs.
//
//     const place = new Place({ contract: {...} });
//     const client = await place.open();                  // through the proxy, initialized
//     const answer = await client.call('append', { what: 'a' });
//     assert.equal(place.effects('a'), 1);
//
// Whatever the tests went through: the last test of each program holds all proxies to what a proxy
// never does (print what is no protocol, show a key, crash).

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { newPath, run as runSemel, semel } from '../gateway/program.mjs';
import { eventually, lastTest, later, sleep } from '../gateway/tap.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));

// The Node.js that the packages brought, for the peers want a newer one than there may be.
const brought = path.join(here, `node_modules/node-linux-${process.arch}/bin/node`);
export const node = fs.existsSync(brought) ? brought : process.execPath;

export const modules = path.join(here, 'node_modules');
const peer = (name) => path.join(modules, '@modelcontextprotocol', name);

// Commands of servers.
export const everything = [node, `${peer('server-everything')}/dist/index.js`];
export const filesystem = (directory) => [node, `${peer('server-filesystem')}/dist/index.js`, directory];
export const memory = [node, `${peer('server-memory')}/dist/index.js`];
export const conformance = [node, `${peer('conformance')}/dist/index.js`];
export const inspector = [node, `${peer('inspector')}/clients/launcher/build/index.js`, '--cli'];

export const legacyVersion = '2025-11-25';
export const modernVersion = '2026-07-28';
const metaOf = (name) => `io.modelcontextprotocol/${name}`;

const places = [];
const clients = [];

export class Place {
    // Options: contract; server (a command; else the scripted one, with `options`); ledger; env; bare (no
    // other environment); args (more of them for `semel mcp`).
    constructor(options = {}) {
        this.options = options;
        this.directory = newPath('place');
        fs.mkdirSync(this.directory);
        this.name = `t${places.length}-${process.pid}`;
        this.ledger = options.ledger ?? (process.env.SEMEL_TEST_LEDGER || `sqlite:${this.directory}/l.db`);
        this.contractFile = `${this.directory}/contract.yaml`;
        this.server = options.server ?? [
            node, path.join(here, 'server.mjs'), this.directory, JSON.stringify(options.options ?? {}),
        ];
        if (options.contract) this.contract(options.contract);
        this.seen = []; // what clients of the proxy were given
        places.push(this);
    }

    contract(contract) {
        const text = typeof contract === 'string' ? contract : JSON.stringify({ version: 1, ...contract }, null, 1);
        fs.writeFileSync(this.contractFile, text);
    }

    // The command of the server with the proxy in front.
    command({ server = this.server, scope, name = this.name, args = [] } = {}) {
        return [
            semel, 'mcp', '--ledger', this.ledger, '--name', name,
            ...(fs.existsSync(this.contractFile) ? ['--contract', this.contractFile] : []),
            ...(scope === undefined ? [] : ['--scope', scope]),
            ...(this.options.args ?? []), ...args, ...(server.length > 0 ? ['--', ...server] : []),
        ];
    }

    // What the proxy runs in. It keeps what it must remember of servers in the place.
    get env() {
        const ours = this.options.bare ? { PATH: process.env.PATH } : process.env;
        return { ...ours, XDG_STATE_HOME: `${this.directory}/state`, ...this.options.env };
    }

    // A client behind the proxy that has not said anything yet; `open` has said who it is.
    start(options = {}) {
        return new LineClient(this.command(options), { env: this.env, place: this, ...options });
    }

    direct(options = {}) {
        return new LineClient(options.server ?? this.server, { env: this.env, ...options });
    }

    async open(options = {}) {
        const client = options.direct ? this.direct(options) : this.start(options);
        if (!client.modern) await client.initialize(options);
        return client;
    }

    // What the scripted server has counted.
    file(name) {
        const file = path.join(this.directory, name);
        return fs.existsSync(file) ? fs.readFileSync(file, 'utf8').split('\n').slice(0, -1) : [];
    }
    effects(what) {
        return this.file('effects').filter((line) => line === what).length;
    }
    received(method) {
        return this.file('received').map((line) => JSON.parse(line)).filter((one) => one.method === method);
    }

    // The files by which scripts and tests wait for each other.
    mark(name) {
        fs.writeFileSync(path.join(this.directory, name), '');
    }
    passed(name) {
        return eventually(`the server has come to ${name}`, () => fs.existsSync(path.join(this.directory, name)));
    }
    // The server's process that began this.
    serverOf(what) {
        return Number(this.file('starts').find((line) => line.endsWith(` ${what}`)).split(' ')[0]);
    }

    semel(...args) {
        const contract = fs.existsSync(this.contractFile) ? { SEMEL_CONTRACT: this.contractFile } : {};
        const env = { ...this.env, ...contract, SEMEL_LEDGER: this.ledger };
        return runSemel(args, { env });
    }
    json(...args) {
        const done = this.semel(...args, '--json');
        assert.ok([0, 1, 73, 75, 76].includes(done.status), done.stderr);
        return JSON.parse(done.stdout);
    }
    // The effects of this place's server, the newest first.
    list() {
        return this.json('list', '--scope', this.name).items;
    }
    show(effect) {
        return this.json('show', effect);
    }
    state(effect, ...states) {
        return eventually(`${effect} is ${states}`, () => {
            const shown = this.show(effect);
            return states.includes(shown.state) && shown;
        }, 20_000);
    }
}

// A client that writes lines and reads lines.
export class LineClient {
    constructor(command, options = {}) {
        this.modern = options.modern ?? false;
        this.place = options.place ?? null;
        this.patient = options.patient ?? false; // it asks for progress, so that the proxy waits for longer
        this.capabilities = options.capabilities ?? {};
        this.lines = []; // as they came
        this.messages = []; // what they say
        this.notes = []; // notifications
        this.junk = []; // what is no message
        this.stderr = '';
        this.answers = new Map();
        this.handlers = new Map(); // of the server's requests
        this.nextId = 0;
        // The kernel ends it when we are gone, however we went.
        this.child = spawn('setpriv', ['--pdeathsig', 'KILL', ...command], {
            env: options.env ?? process.env, cwd: options.cwd, stdio: ['pipe', 'pipe', 'pipe'],
            detached: options.detached ?? false, // in a process group of its own
        });
        this.pid = this.child.pid;
        this.ended = null;
        this.exit = new Promise((resolve) => {
            const over = (code, signal) => {
                if (this.ended) return;
                this.ended = { code, signal };
                resolve(this.ended);
                for (const waiter of this.answers.values()) {
                    waiter.reject(this.trouble(`ended with ${signal ?? code} and without an answer`));
                }
            };
            this.child.on('close', over);
            // Somebody may hold on to its output after it has ended.
            this.child.on('exit', (code, signal) => setTimeout(over, 1000, code, signal));
        });
        this.child.stdin.on('error', () => {}); // it may have ended
        this.pieces = [];
        this.child.stdout.on('data', (piece) => this.take(piece));
        this.child.stderr.on('data', (piece) => (this.stderr += piece));
        later(() => this.kill());
        clients.push(this);
    }

    trouble(text) {
        const error = new Error(text);
        error.note = this.stderr.slice(-4000);
        return error;
    }

    take(piece) {
        for (let end = piece.indexOf(10); end >= 0; end = piece.indexOf(10)) {
            this.pieces.push(piece.subarray(0, end));
            const line = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(Buffer.concat(this.pieces));
            this.pieces = [];
            piece = piece.subarray(end + 1);
            this.line(line);
        }
        if (piece.length > 0) this.pieces.push(piece);
    }

    line(line) {
        this.lines.push(line);
        if (this.place) this.place.seen.push(line);
        let message;
        try {
            message = JSON.parse(line);
        } catch {
            this.junk.push(line);
            return;
        }
        for (const one of Array.isArray(message) ? message : [message]) this.message(one, line);
    }

    message(message, line) {
        if (message.jsonrpc !== '2.0') this.junk.push(line);
        this.messages.push(message);
        if (message.method === undefined) {
            const key = JSON.stringify(message.id);
            this.answers.get(key)?.resolve({ ...message, line });
            this.answers.delete(key);
        } else if (message.id === undefined) {
            this.notes.push(message);
        } else {
            this.serve(message);
        }
    }

    // The server's requests are answered by who was named for them.
    async serve(message) {
        const handler = this.handlers.get(message.method);
        const body = handler
            ? { result: await handler(message.params, message) }
            : { error: { code: -32601, message: 'Method not found' } };
        if (body.result !== undefined || body.error) this.send({ jsonrpc: '2.0', id: message.id, ...body });
    }
    on(method, handler) {
        this.handlers.set(method, handler);
    }

    // A message, or a line as it stands.
    send(what) {
        this.child.stdin.write(`${typeof what === 'string' ? what : JSON.stringify(what)}\n`);
    }
    notify(method, params) {
        this.send({ jsonrpc: '2.0', method, params });
    }

    // The answer to an id that is, or will be, sent.
    answer(id) {
        return new Promise((resolve, reject) => {
            if (this.ended) reject(this.trouble('has ended'));
            this.answers.set(JSON.stringify(id), { resolve, reject });
        });
    }

    request(method, params = {}, id = this.nextId++) {
        const meta = this.modern ? {
            [metaOf('protocolVersion')]: modernVersion,
            [metaOf('clientCapabilities')]: this.capabilities,
            [metaOf('clientInfo')]: { name: 'lines', version: '1' },
        } : {};
        const _meta = { ...meta, ...params._meta };
        const all = Object.keys(_meta).length > 0 ? { ...params, _meta } : params;
        const answer = this.answer(id);
        this.send({ jsonrpc: '2.0', id, method, params: all });
        answer.id = id;
        return answer;
    }

    async initialize({ version = legacyVersion, capabilities = this.capabilities } = {}) {
        const answer = await this.request('initialize', {
            protocolVersion: version, capabilities, clientInfo: { name: 'lines', version: '1' },
        });
        assert.ok(answer.result, answer.line);
        this.notify('notifications/initialized');
        return answer.result;
    }

    // `more`: other parameters, such as _meta.
    call(name, args = {}, more = {}) {
        const asks = this.patient ? { _meta: { progressToken: `of-${this.nextId}`, ...more._meta } } : {};
        return this.request('tools/call', { name, arguments: args, ...more, ...asks });
    }
    cancel(id, reason = 'timeout') {
        this.notify('notifications/cancelled', { requestId: id, reason });
    }

    progress(token) {
        return this.notes.filter((one) => one.method === 'notifications/progress' && one.params.progressToken === token);
    }

    // As the SDK's clients end: standard input closes, and who is still there 2 s later is sent signals.
    // How it ended.
    async close() {
        this.child.stdin.end();
        for (const signal of ['SIGTERM', 'SIGKILL']) {
            if (await Promise.race([this.exit, sleep(2000)])) break;
            this.child.kill(signal);
        }
        return this.exit;
    }
    async kill() {
        if (this.ended) return this.ended;
        this.child.kill('SIGKILL');
        return this.exit;
    }
}

// ---- what is said

// Notes in a list what an SDK client hands on of the server's progress 1, 2, 3, and says when it has come.
// It drops what arrives together with the answer, so the server answers after that. On a busy machine the
// proxy adds progress of its own, between the numbers.
export function noteProgress(progress, come) {
    return ({ progress: value }) => {
        progress.push(value);
        if (Number.isInteger(value)) come();
    };
}

export function assertCounted(progress) {
    const own = progress.filter(Number.isInteger);
    assert.ok(own.length > 0, `${progress}`);
    assert.deepEqual(own, [1, 2, 3].slice(0, own.length), `${progress}`);
}

export const textOf = (answer) => answer.result.content?.map((one) => one.text ?? '').join('\n');
export const effectOf = (answer) => answer.result._meta?.['semel/effect'];

export function assertDone(answer, text) {
    assert.ok(answer.result, answer.line);
    assert.ok(!answer.result.isError, answer.line);
    if (text !== undefined) assert.equal(answer.result.content[0].text, text, answer.line);
    return answer.result;
}

export function assertReplayed(answer, text) {
    assertDone(answer, text);
    assert.equal(answer.result._meta?.['semel/replayed'], true, answer.line);
    assert.match(effectOf(answer), /^ef_/);
    return answer.result;
}

export function assertFresh(answer, text) {
    assertDone(answer, text);
    assert.notEqual(answer.result._meta?.['semel/replayed'], true, answer.line);
    return answer.result;
}

// A refusal that a model can act on: sentences, once, then one line of JSON. `_meta` has both.
export function assertVerdict(answer, code, words = null) {
    assert.ok(answer.result, answer.line);
    assert.equal(answer.result.isError, true, answer.line);
    const text = textOf(answer);
    const lines = answer.result.content[0].text.trimEnd().split('\n'); // what was recorded may follow
    const verdict = answer.result._meta['semel/verdict'];
    const { message, corrective_action: action, ...short } = verdict;
    assert.equal(verdict.code, code, text);
    assert.equal(typeof verdict.retriable, 'boolean', text);
    assert.ok(message.length > 10 && action.length > 10, text);
    assert.deepEqual(JSON.parse(lines.at(-1)), short);
    assert.equal(lines[0], `${message}${/[.!?]$/.test(message) ? '' : '.'} ${action}`, 'sentences come first');
    if (words) assert.match(text, words);
    return verdict;
}

// ---- the SDKs' clients

// What comes to it is kept, if it comes through a proxy.
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

// Options: place (whose env, and through whose proxy), direct, capabilities, mode (2.x: legacy, auto or
// a pinned revision), and those of Place.command.
function commandOf(place, options) {
    const [command, ...args] = options.direct ? options.server ?? place.server : place.command(options);
    return { command, args, env: place.env, stderr: options.stderr ?? 'ignore' };
}

export async function sdk1(place, options = {}) {
    const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
    const { StdioClientTransport } = await import('@modelcontextprotocol/sdk/client/stdio.js');
    const client = new Client({ name: 'one', version: '1' }, { capabilities: options.capabilities ?? {} });
    options.prepare?.(client);
    return connect(client, new StdioClientTransport(commandOf(place, options)), options.direct ? null : place);
}

export async function sdk2(place, options = {}) {
    const { Client } = await import('@modelcontextprotocol/client');
    const { StdioClientTransport } = await import('@modelcontextprotocol/client/stdio');
    const client = new Client({ name: 'two', version: '1' }, {
        capabilities: options.capabilities ?? {},
        ...(options.mode ? { versionNegotiation: { mode: options.mode } } : {}),
    });
    options.prepare?.(client);
    return connect(client, new StdioClientTransport(commandOf(place, options)), options.direct ? null : place);
}

// ---- what always holds

lastTest('nothing but protocol was printed, and nothing crashed', () => {
    for (const client of clients.filter((one) => one.place)) {
        assert.deepEqual(client.junk, []);
        if (client.ended === null) continue;
        const { code, signal } = client.ended;
        const crash = signal ? !['SIGKILL', 'SIGTERM', 'SIGINT', 'SIGHUP'].includes(signal) : [66, 99].includes(code);
        assert.ok(!crash, `${code} ${signal}\n${client.stderr.slice(-4000)}`);
    }
});

lastTest('no client has seen a key', () => {
    for (const place of places.filter((one) => one.seen.length > 0)) {
        const exported = place.semel('export');
        assert.equal(exported.status, 0, exported.stderr);
        const all = place.seen.join('\n');
        for (const line of exported.stdout.split('\n').filter((one) => one !== '')) {
            const { key } = JSON.parse(line);
            if (key === undefined) continue;
            for (const form of [key, Buffer.from(key, 'hex').toString('base64url')])
                assert.ok(!all.includes(form), `${form} was seen`);
        }
    }
});

export { assert };
