// Published MCP clients of Python and Go for tests. Each is a process that takes commands
// (python/driver.py, go/drive), on a server whose tools count their calls.
//
//     const client = await start('pydantic-ai');
//     await client.open(target);                            // see `targets`
//     const seen = await client.call('pay', { to: 'me' });  // what its model gets
//     assert.equal(counts.of('pay me'), 1);

import { spawn } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import process from 'node:process';
import { newPath } from '../gateway/program.mjs';
import { eventually, later } from '../gateway/tap.mjs';

const build = path.join(process.env.SEMEL_ROOT ?? process.cwd(), 'build');
const here = path.join(process.env.SEMEL_ROOT ?? process.cwd(), 'tests/clients');
const python = (name) => path.join(build, 'python', name, 'bin/python');

// Of the kinds of clients: the environment or the program that has them; the timeout that they have by
// themselves; whether they open a session for each call; whether their timeout ends their session over
// HTTP, as it does without a gateway too; another server over HTTP, for who does not get on with it.
export const kinds = {
    mcp1: { python: 'mcp1' },
    mcp2: { python: 'mcp2' },
    fastmcp: { python: 'mcp2', breaks: true },
    'openai-agents': { python: 'mcp1', timeoutMs: 5000 },
    langchain: { python: 'mcp1', perCall: true },
    'pydantic-ai': { python: 'mcp1', breaks: true },
    'go-sdk': { go: 'gosdk_client' },
    'mcp-go': { go: 'mcpgo_client', far: 'far-mcp-go' },
    'openai-agents-structured': { python: 'mcp1', timeoutMs: 5000 },
};

export const goServer = [path.join(build, 'go/go/gosdk_server')];
export const otherGoServer = [path.join(build, 'go/go/mcpgo_server')];
export const pythonServer = [python('mcp1'), path.join(here, 'python/server.py')];

// The counts of the servers' tools.
export const counts = {
    file: newPath('count'),
    read(suffix = '') {
        const file = this.file + suffix;
        return fs.existsSync(file) ? fs.readFileSync(file, 'utf8').split('\n').slice(0, -1) : [];
    },
    of(line) {
        return this.read().filter((one) => one === line).length;
    },
    // The process of the server that was called so.
    pid(line) {
        return Number(this.read('.pids').find((one) => one.endsWith(` ${line}`)).split(' ')[0]);
    },
    over(line) {
        return eventually(`${line} is over`, () => this.read('.over').includes(line));
    },
    begun(line) {
        return eventually(`${line} has begun`, () => this.of(line) > 0);
    },
};

// A program whose lines are objects.
function lines(stream, take) {
    let rest = '';
    stream.setEncoding('utf8');
    stream.on('data', (piece) => {
        const all = (rest + piece).split('\n');
        rest = all.pop();
        for (const line of all) take(JSON.parse(line));
    });
}

// The processes that have imported the packages of an environment, each started once.
const drivers = new Map();
function driver(name) {
    if (!drivers.has(name)) {
        const socket = newPath(`driver-${name}`);
        const wanted = Object.keys(kinds).filter((kind) => kinds[kind].python === name);
        const args = ['--pdeathsig', 'KILL', python(name), path.join(here, 'python/driver.py'), socket, ...wanted];
        const log = fs.openSync(`${socket}.log`, 'w');
        const child = spawn('setpriv', args, { stdio: ['ignore', log, log] });
        later(() => child.kill('SIGKILL'));
        const up = eventually(`${name} is imported`, () => {
            if (child.exitCode !== null) throw new Error(fs.readFileSync(`${socket}.log`, 'utf8'));
            return fs.existsSync(socket) && socket;
        }, 120_000);
        drivers.set(name, up);
    }
    return drivers.get(name);
}

async function pythonStreams(kind) {
    const connection = net.connect(await driver(kinds[kind].python));
    connection.on('error', () => {}); // it may be killed
    connection.write(`${kind}\n`);
    return { input: connection, output: connection };
}

function goStreams(kind) {
    const child = spawn('setpriv', ['--pdeathsig', 'KILL', path.join(build, 'go/go', kinds[kind].go)], {
        stdio: ['pipe', 'pipe', 'ignore'], detached: true,
    });
    child.stdin.on('error', () => {});
    return { input: child.stdin, output: child.stdout };
}

export class Client {
    constructor(kind, { input, output }) {
        Object.assign(this, { kind, input, waiting: new Map(), next: 1, over: false });
        const first = Promise.withResolvers();
        this.pidKnown = first.promise;
        lines(output, (answer) => {
            if (answer.pid) first.resolve(answer.pid);
            else this.waiting.get(answer.id)?.(answer);
        });
        output.on('close', () => {
            this.over = true;
            first.resolve(null);
            for (const [id, resolve] of this.waiting) resolve({ id, error: 'the client has ended' });
        });
        later(() => this.kill());
    }

    ask(command) {
        const id = this.next++;
        const answer = new Promise((resolve) => {
            if (this.over) resolve({ error: 'the client has ended' });
            this.waiting.set(id, resolve);
        });
        this.input.write(`${JSON.stringify({ id, ...command })}\n`);
        answer.id = id;
        return answer;
    }

    async open(target, timeout = null) {
        const { error } = await this.ask({ do: 'open', target, timeout });
        if (error) throw new Error(`${this.kind} does not open: ${error}`);
        return this;
    }

    // The answer: what its model saw, or the error that it raised; as one text, since frameworks differ
    // in which of the two they make of a failure.
    call(tool, args) {
        const answer = this.ask({ do: 'call', tool, arguments: args });
        const seen = answer.then((one) => one.seen ?? `raised: ${one.error}`);
        seen.cancel = () => this.ask({ do: 'cancel', call: answer.id });
        return seen;
    }

    // The errors that a user would see when the client leaves.
    async close() {
        return (await this.ask({ do: 'close' })).troubles;
    }

    kill() {
        if (!this.over && this.pid) process.kill(this.pid, 'SIGKILL');
    }
}

// A new process.
export async function start(kind) {
    const streams = kinds[kind].python ? await pythonStreams(kind) : goStreams(kind);
    const client = new Client(kind, streams);
    client.pid = await client.pidKnown;
    return client;
}

// Whether a process runs: one that has ended, and was not waited for, does not.
export function isAlive(pid) {
    try {
        return !/^\d+ \(.*\) Z/.test(fs.readFileSync(`/proc/${pid}/stat`, 'utf8'));
    } catch {
        return false;
    }
}

// The child of a process whose command has this word.
export function childOf(pid, word) {
    const threads = fs.readdirSync(`/proc/${pid}/task`);
    const children = threads.flatMap((one) => fs.readFileSync(`/proc/${pid}/task/${one}/children`, 'utf8').match(/\d+/g) ?? []);
    for (const child of children.map(Number)) {
        const command = fs.readFileSync(`/proc/${child}/cmdline`, 'utf8').split('\0');
        if (command[0].endsWith(word)) return child;
    }
    throw new Error(`${pid} has no child ${word}`);
}
