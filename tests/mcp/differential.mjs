// No message is a call for a server that is not a call for us.
//
// A corpus of messages that readers read differently (corpus.mjs) is given to servers of four SDKs, two of
// them in two versions, over stdio and over HTTP: once directly, which tells which of them are calls for that server, and once
// through the proxy or the gateway. There the tool `pay` needs an approval that nobody gives. So whatever
// the servers make of a message, `pay` runs only if a call got past the ledger.

import { spawn } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import corpus from './corpus.mjs';
import { Site } from './http_harness.mjs';
import { Place, assert, node } from './harness.mjs';
import { newPath } from '../gateway/program.mjs';
import { later, run, test } from '../gateway/tap.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const built = (name) => path.join(process.env.SEMEL_ROOT, 'build', name);
const python = (version) => [built(`python/${version}/bin/python`), path.join(here, '../clients/python/server.py')];
const servers = {
    'Python SDK 1': python('mcp1'),
    'Python SDK 2': python('mcp2'),
    'TypeScript SDK 1': [node, path.join(here, 'sdk_server.mjs'), '1'],
    'TypeScript SDK 2': [node, path.join(here, 'sdk_server.mjs'), '2'],
    'Go SDK': [built('go/go/gosdk_server')],
    'mcp-go': [built('go/go/mcpgo_server')],
};

const contract = { tools: { pay: { class: 'irreversible', approval: { quorum: 1 } }, look: { class: 'read' } } };
const hello = {
    jsonrpc: '2.0', id: 'hello', method: 'initialize',
    params: { protocolVersion: '2025-03-26', capabilities: {}, clientInfo: { name: 'corpus', version: '1' } },
};
const greeted = { jsonrpc: '2.0', method: 'notifications/initialized' };
const patience = 300_000; // ms, for a server that does not answer at all

// The file that a server counts in, and the cases for which `pay` ran.
class Count {
    constructor() {
        this.file = newPath('count');
        fs.writeFileSync(this.file, '');
    }
    get env() {
        return { ...process.env, SEMEL_COUNT: this.file };
    }
    paid() {
        const lines = fs.readFileSync(this.file, 'utf8').split('\n');
        return lines.filter((line) => line.startsWith('pay')).map((line) => line.slice(4));
    }
}

// ---- stdio: one process gets them all, and another one goes on where it ends over one

class Lines {
    constructor(command, env) {
        Object.assign(this, { command, env, text: '' });
    }

    async start() {
        this.text = '';
        this.child = spawn('setpriv', ['--pdeathsig', 'KILL', ...this.command], { env: this.env, stdio: ['pipe', 'pipe', 'ignore'] });
        this.child.stdin.on('error', () => {});
        this.over = false;
        this.child.on('exit', () => {
            this.over = true;
            this.wake?.();
        });
        this.child.stdout.on('data', (piece) => {
            this.text += piece;
            this.wake?.();
        });
        const { child } = this;
        later(() => child.kill('SIGKILL'));
        this.write(JSON.stringify(hello));
        assert.ok(await this.said('"hello"'), `${this.command[0]} does not answer`);
        this.write(JSON.stringify(greeted));
    }

    write(line) {
        this.child.stdin.write(line);
        this.child.stdin.write('\n');
    }

    // Whether it says this before it ends.
    async said(text) {
        const deadline = setTimeout(() => {
            this.late = true;
            this.wake?.();
        }, patience);
        this.late = false;
        while (!this.text.includes(text) && !this.over && !this.late) await new Promise((resolve) => (this.wake = resolve));
        clearTimeout(deadline);
        return this.text.includes(text);
    }

    async give(cases) {
        const answers = new Map();
        await this.start();
        for (const { tag, body } of cases) {
            this.text = '';
            this.write(body);
            this.write(`{"jsonrpc":"2.0","id":"behind-${tag}","method":"ping"}`);
            if (!(await this.said(`"behind-${tag}"`))) {
                this.child.kill('SIGKILL');
                await this.start();
            }
            answers.set(tag, this.text);
        }
        this.child.stdin.end();
        await this.ended();
        return answers;
    }
    async ended() {
        if (!this.over) await new Promise((resolve) => this.child.on('exit', resolve));
    }
}

// ---- HTTP

class Web {
    constructor(url, headers = {}) {
        Object.assign(this, { url, headers, agent: new http.Agent({ keepAlive: true }), late: 0 });
        later(() => this.agent.destroy());
    }

    post(body, { type = 'application/json', coding, headers: own = this.session } = {}) {
        const headers = {
            ...this.headers, ...own, 'content-type': type, accept: 'application/json, text/event-stream', 'content-length': body.length,
            ...(coding && { 'content-encoding': coding }),
        };
        return new Promise((resolve) => {
            const request = http.request(this.url, { method: 'POST', headers, agent: this.agent, timeout: patience }, async (answer) => {
                const pieces = [];
                answer.on('data', (piece) => pieces.push(piece));
                answer.on('error', () => {});
                answer.on('close', () => resolve({ status: answer.statusCode, headers: answer.headers, text: Buffer.concat(pieces).toString() }));
            });
            request.on('timeout', () => {
                this.late++;
                request.destroy();
            });
            request.on('error', () => resolve({ status: 0, headers: {}, text: '' }));
            request.end(body);
        });
    }

    async start() {
        const answer = await this.post(Buffer.from(JSON.stringify(hello)));
        assert.equal(answer.status, 200, answer.text);
        const id = answer.headers['mcp-session-id'];
        this.session = { 'mcp-protocol-version': '2025-03-26', ...(id && { 'mcp-session-id': id }) };
        await this.post(Buffer.from(JSON.stringify(greeted)));
    }

    async give(cases) {
        const answers = new Map();
        await this.start();
        const left = [...cases];
        await Promise.all(Array.from({ length: 8 }, async () => {
            for (let one = left.shift(); one; one = left.shift()) answers.set(one.tag, (await this.post(one.body, one)).text);
        }));
        await this.post(Buffer.from('{"jsonrpc":"2.0","id":"last","method":"ping"}'));
        return answers;
    }
}

// A server over HTTP, and where it is.
function listen(command, env) {
    const child = spawn('setpriv', ['--pdeathsig', 'KILL', ...command, '--http'], { env, stdio: ['ignore', 'pipe', 'ignore'] });
    later(() => child.kill('SIGKILL'));
    return new Promise((resolve, reject) => {
        let text = '';
        child.stdout.on('data', (piece) => {
            text += piece;
            if (text.includes('\n')) resolve(text.split('\n')[0]);
        });
        child.on('exit', () => reject(new Error(`${command[0]} has ended`)));
    });
}

// ---- the same for all

const named = (tags) => tags.map((tag) => corpus.find((one) => one.tag === tag)?.name ?? tag);
const plain = corpus.filter((one) => one.plain).map((one) => one.tag);

// Nothing has run, and what is plainly a call was one for us.
function assertGuarded(count, answers) {
    assert.deepEqual(named(count.paid()), [], 'these got past the ledger');
    for (const tag of plain) assert.match(answers.get(tag), /AWAITING_APPROVAL/);
}

// The server counts; how many of them are calls for it.
function countedDirectly(count) {
    const paid = new Set(count.paid());
    for (const tag of plain) assert.ok(paid.has(tag), 'a plain call is a call for the server');
    return [...paid].filter((tag) => tag.startsWith('case-')).length;
}

assert.ok(corpus.length >= 300);
const onLines = corpus.filter((one) => !one.http);

async function overStdio(command) {
    const count = new Count();
    const place = new Place({ contract, server: command, env: { SEMEL_COUNT: count.file } });
    assertGuarded(count, await new Lines(place.command(), place.env).give(onLines));
    await new Lines(command, count.env).give(onLines);
    return `${countedDirectly(count)} of ${onLines.length} messages are calls for it`;
}

async function overHttp(command) {
    const count = new Count();
    const url = await listen(command, count.env);
    const site = await Site.start({ contract, servers: { s: { url } } });
    const { url: door, headers } = site.client();
    const [proxied, direct] = [new Web(door, headers), new Web(url)];
    assertGuarded(count, await proxied.give(corpus));
    await direct.give(corpus);
    assert.deepEqual([proxied.late, direct.late], [0, 0], 'everything was answered in time');
    return `${countedDirectly(count)} of ${corpus.length} messages are calls for it`;
}

// They mostly wait for one another: three at a time.
const work = Object.entries(servers).flatMap(([name, command]) => [
    { title: `${name}, stdio`, go: () => overStdio(command) }, { title: `${name}, HTTP`, go: () => overHttp(command) },
]);
for (const one of work) {
    one.over = new Promise((resolve, reject) => Object.assign(one, { resolve, reject }));
    one.over.catch(() => {}); // its test tells
    test(`${one.title}: no message is a call that is not one for us`, async () => {
        console.log(`# ${one.title}: ${await one.over}`);
    }, { limitMs: 400_000 });
}
const left = [...work];
for (let i = 0; i < 3; i++)
    (async () => {
        for (let one = left.shift(); one; one = left.shift()) await one.go().then(one.resolve, one.reject);
    })();

await run();
