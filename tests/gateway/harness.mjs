// A real gateway for a test: configuration, contract and tokens in a directory of its own, started
// as a process of its own on a free port, and killed at the end whatever happens.
//
//     const gw = await Gateway.start({ contract: {...}, config: {...}, env: {...} });
//     const answer = await gw.agent.call({ scope: 'shop/1', tool: 'charge', args: {} });
//
// The standard tokens are made once for all gateways of a process.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { Client } from './client.mjs';
import { freePort, newPath, run, semel } from './program.mjs';
import { eventually, lastTest, later } from './tap.mjs';

export function makeToken(file, role, scope, name, more = []) {
    const bound = scope === '' ? ['--all-scopes'] : ['--scope', scope];
    const made = run([
        'token', 'create', '--role', role, ...bound, '--name', name, '--tokens', file, ...more,
    ]);
    assert.equal(made.status, 0, made.stderr);
    return made.stdout.trim();
}

// Who there is. The scope `shop` has its people, and `other` is somebody else's.
const people = {
    agent: ['agent', 'shop'],
    agent2: ['agent', 'shop'],
    approver: ['approver', 'shop'],
    operator: ['operator', 'shop'],
    admin: ['admin', ''],
    stranger: ['agent', 'other'],
    strangerOperator: ['operator', 'other'],
};

let standard = null;
function standardTokens() {
    if (standard === null) {
        const file = newPath('tokens.json');
        const texts = {};
        for (const [name, [role, scope]] of Object.entries(people))
            texts[name] = makeToken(file, role, scope, name);
        standard = { file, texts };
    }
    return standard;
}

const gateways = [];

// Whatever they went through: none has crashed, and those that still run can end.
lastTest('every gateway ends in good order', async () => {
    for (const gw of gateways) {
        if (gw.child !== null && !gw.ended) assert.equal((await gw.stop()).code, 0, gw.log.slice(-4000));
        assert.deepEqual(gw.troubles, [], gw.log.slice(-4000));
    }
});

export class Gateway {
    // Options: contract, config (more of it), env, ledger, tokens (a file), port, args.
    static async start(options = {}) {
        const gw = new Gateway(options);
        await gw.up();
        return gw;
    }

    constructor(options) {
        this.options = options;
        this.directory = newPath('gateway');
        fs.mkdirSync(this.directory);
        this.tokens = options.tokens ?? path.join(this.directory, 'tokens.json');
        this.texts = {};
        if (!options.tokens) {
            fs.copyFileSync(standardTokens().file, this.tokens);
            fs.chmodSync(this.tokens, 0o600);
            this.texts = { ...standardTokens().texts };
        }
        this.ledger = options.ledger ?? `sqlite:${path.join(this.directory, 'ledger.db')}`;
        this.contractFile = path.join(this.directory, 'contract.yaml');
        this.configFile = path.join(this.directory, 'config.yaml');
        this.log = '';
        this.troubles = []; // ends that nobody asked for
        this.child = null;
        gateways.push(this);
        if (options.contract) this.writeContract(options.contract);
        later(() => this.kill());
    }

    writeContract(contract) {
        const text = typeof contract === 'string' ? contract : JSON.stringify(contract, null, 1);
        fs.writeFileSync(this.contractFile, text);
    }

    // JSON is YAML too.
    writeConfig() {
        const config = {
            version: 1,
            listen: `127.0.0.1:${this.port}`,
            ledger: this.ledger.includes('@') ? '${TEST_LEDGER}' : this.ledger,
            tokens: this.tokens,
            log: { format: 'json', level: 'info', requests: 'all' },
            ...(this.options.contract ? { contract: this.contractFile } : {}),
            ...this.options.config,
        };
        fs.writeFileSync(this.configFile, JSON.stringify(config, null, 1));
    }

    // Starts it, again after an end, on the same port and ledger.
    async up() {
        this.port ??= this.options.port ?? (await freePort());
        this.writeConfig();
        const env = { ...process.env, TEST_LEDGER: this.ledger, ...this.options.env };
        // The kernel ends it when we are gone, however we went.
        const args = ['--pdeathsig', 'KILL', semel, 'serve', '--config', this.configFile];
        this.child = spawn('setpriv', [...args, ...(this.options.args ?? [])], {
            env,
            stdio: ['ignore', 'pipe', 'pipe'],
        });
        this.pid = this.child.pid;
        this.exit = new Promise((resolve) => {
            this.child.on('close', (code, signal) => resolve({ code, signal }));
        });
        this.ended = false;
        this.exit.then(({ code, signal }) => {
            this.ended = true;
            // 66 and 99 are the sanitizers'.
            if (signal ? signal !== 'SIGKILL' : [66, 99].includes(code)) this.troubles.push({ code, signal });
        });
        for (const stream of [this.child.stdout, this.child.stderr])
            stream.on('data', (piece) => (this.log += piece));
        this.client?.close();
        const place = this.options.socketPath
            ? { socketPath: this.options.socketPath }
            : { host: '127.0.0.1', port: this.port };
        this.client = new Client({ ...place, ...this.options.tls });
        for (const [name, text] of Object.entries(this.texts)) this[name] = this.client.as(text);
        try {
            await eventually('the gateway is ready', async () => this.ended || (await this.ready()), 60_000);
            // A test that expects it to end has a ready() of its own.
            if (this.ended && !(await this.ready())) throw new Error(`the gateway has ended: ${this.log}`);
        } catch (error) {
            error.note = this.log.slice(-4000);
            throw error;
        }
    }

    async ready() {
        try {
            return (await this.client.get('/readyz')).status === 200;
        } catch (error) {
            if (/ECONN|ENOENT|socket hang up/.test(String(error.code ?? error.message))) return false;
            throw error;
        }
    }

    // Makes another token while the gateway runs, and waits until it counts.
    async token(name, role, scope, more = []) {
        this.texts[name] = makeToken(this.tokens, role, scope, name, more);
        this[name] = this.client.as(this.texts[name]);
        await eventually('the new token counts', async () => {
            return (await this[name].get('/v1/effects')).status === 200;
        });
        return this[name];
    }

    signal(signal) {
        this.child.kill(signal);
    }

    // In good order: how it ended.
    async stop() {
        if (!this.ended) this.signal('SIGTERM');
        return this.exit;
    }

    // As when the machine dies.
    async kill() {
        this.client?.close();
        if (this.child === null || this.ended) return;
        this.child.kill('SIGKILL');
        await this.exit;
    }

    // One figure of /metrics, summed over its labels; NaN if there is none.
    async metric(pattern) {
        const answer = await this.admin.get('/metrics');
        assert.equal(answer.status, 200, answer.text);
        const values = parseMetrics(answer.text).filter((one) => pattern.test(one.name));
        return values.length === 0 ? NaN : values.reduce((sum, one) => sum + one.value, 0);
    }

    memory() {
        return this.metric(/process_resident_memory_bytes$/);
    }

    // It has not grown by more than this. A sanitizer keeps what was freed, and tells nothing about it.
    async assertGrown(before, most, about = '') {
        if (process.env.ASAN_OPTIONS || process.env.TSAN_OPTIONS) return;
        const grown = (await this.memory()) - before;
        assert.ok(grown < most, `${about} ${grown} bytes more`);
    }

    async effect(id, who = this.admin) {
        const answer = await who.get(`/v1/effects/${id}`);
        assert.equal(answer.status, 200, answer.text);
        return answer.json;
    }

    // Until an effect is in one of these states.
    state(id, ...states) {
        let last = null;
        return eventually(`${id} is ${states.join(' or ')}`, async () => {
            const effect = await this.effect(id);
            last = effect.state;
            if (states.includes(last)) return effect;
            throw new Error(`${id} is ${last}, not ${states.join(' or ')}`);
        });
    }
}

// How often an effect, as it is shown, was begun.
export function starts(shown) {
    return shown.attempts.filter((one) => one.what === 'started').length;
}

// Another handle of the same form, of nothing.
export function absentHandle(handle) {
    return handle.slice(0, -1) + (handle.endsWith('0') ? '1' : '0');
}

// Prometheus' text format: every line must be right. [{ name, labels, value }]
export function parseMetrics(text) {
    const samples = [];
    const types = new Map();
    const helps = new Set();
    assert.ok(text.endsWith('\n'), 'metrics end with a line feed');
    for (const line of text.slice(0, -1).split('\n')) {
        const comment = /^# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)$/.exec(line);
        if (comment) {
            const [, kind, name, rest] = comment;
            if (kind === 'HELP') helps.add(name);
            else {
                assert.match(rest, /^(counter|gauge|histogram|summary|untyped)$/, line);
                assert.ok(!types.has(name), `${name} has two types`);
                types.set(name, rest);
            }
            continue;
        }
        const sample =
            /^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*",?)*\})? (\S+)$/.exec(line);
        assert.ok(sample, `not a line of metrics: ${line}`);
        const [, name, labels, value] = sample;
        const base = name.replace(/_(bucket|sum|count)$/, '');
        assert.ok(types.has(name) || types.has(base), `${name} has no type`);
        assert.ok(helps.has(name) || helps.has(base), `${name} has no help`);
        assert.ok(value === '+Inf' || Number.isFinite(Number(value)), line);
        samples.push({ name, labels: labels ?? '', value: Number(value) });
    }
    return samples;
}

// A problem as RFC 9457 and the API have it; returns its body.
export function assertProblem(answer, status, code, words = null) {
    assert.equal(answer.status, status, answer.text);
    assert.match(answer.headers['content-type'] ?? '', /^application\/problem\+json/);
    assert.equal(answer.json.status, status);
    assert.equal(answer.json.code, code, answer.text);
    assert.equal(typeof answer.json.title, 'string');
    assert.ok(answer.json.message.length > 10, `a sentence that helps: ${answer.text}`);
    if (words) assert.match(answer.text, words);
    return answer.json;
}

export { assert };
export * from './program.mjs';
