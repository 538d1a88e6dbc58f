// The conformance suite of MCP against servers, directly and through the gateway's /mcp/NAME: every
// check has the same outcome, for both revisions, whether the gateway reaches the server over HTTP or
// starts it itself.

import { spawn } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { Gateway, freePort, newPath } from '../gateway/harness.mjs';
import { eventually, later, note, run, test } from '../gateway/tap.mjs';
import { assert, conformance, everything, node } from './harness.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const target = [node, path.join(here, 'target.mjs')];

// The suite gives requests five or ten seconds. On a busy machine, starting a server in Node takes longer.
const patience = `
    const { timeout } = AbortSignal, { setTimeout } = globalThis;
    AbortSignal.timeout = (ms) => timeout.call(AbortSignal, 20 * ms);
    globalThis.setTimeout = (then, ms, ...rest) => setTimeout(then, ms === 10000 ? 20 * ms : ms, ...rest);
`;

// ---- what is tested

async function listening(port) {
    await eventually(`something listens on ${port}`, () => new Promise((resolve) => {
        net.connect(port, '127.0.0.1', function () {
            resolve(this.destroy());
        }).on('error', () => resolve(false));
    }));
    return `http://127.0.0.1:${port}/mcp`;
}

async function startServer(command, port) {
    const child = spawn('setpriv', ['--pdeathsig', 'KILL', ...command], {
        env: { ...process.env, PORT: String(port) }, stdio: 'ignore',
    });
    later(() => child.kill('SIGKILL'));
    return listening(port);
}

const ports = [await freePort(), await freePort()];
const urls = {
    target: await startServer([...target, 'http', String(ports[0])], ports[0]),
    everything: await startServer([...everything, 'streamableHttp'], ports[1]),
};

// The suite cannot show a token. What it sends goes on as it is, with one.
function withToken(gw, name) {
    const server = http.createServer((incoming, outgoing) => {
        const headers = { ...incoming.headers, authorization: `Bearer ${gw.texts.agent}` };
        const onward = http.request({
            host: '127.0.0.1', port: gw.port, path: `/mcp/${name}`, method: incoming.method, headers,
        }, (answer) => {
            outgoing.writeHead(answer.statusCode, answer.rawHeaders);
            outgoing.flushHeaders();
            answer.pipe(outgoing);
            answer.on('error', () => outgoing.destroy());
        });
        onward.on('error', () => outgoing.destroy());
        outgoing.on('close', () => onward.destroy());
        incoming.pipe(onward);
    });
    later(() => server.close());
    return new Promise((resolve) => {
        server.listen(0, '127.0.0.1', () => resolve(`http://127.0.0.1:${server.address().port}/mcp`));
    });
}

// Each run has a ledger of its own. What the suite calls several times within a run, to see something
// happen each time, is declared to be done each time.
// So is one that changes nothing, and breaks its stream to see who comes back: that is passed on as it is.
// And one whose question the suite answers in several ways: a call that was answered once is done.
const triggers = [
    'test_trigger_tool_change', 'test_trigger_prompt_change', 'test_reconnection', 'test_input_required_result_elicitation',
];
const contract = { version: 1, tools: Object.fromEntries(triggers.map((tool) => [tool, { class: 'read' }])) };

async function through(entry) {
    const gw = await Gateway.start({ contract, config: { mcp: { it: entry } } });
    return withToken(gw, 'it');
}

// ---- the suite

// The outcomes of every check: Map { 'ping: ping' => ['SUCCESS'] }, and what is said about failures.
async function outcomes(url, revision) {
    const directory = newPath('conformance');
    const [command, ...args] = [
        ...conformance, 'server', '--url', url, '--requirements', revision, '-o', directory,
    ];
    const child = spawn(command, ['--import', `data:text/javascript,${encodeURIComponent(patience)}`, ...args], { stdio: 'ignore' });
    later(() => child.kill('SIGKILL'));
    await new Promise((resolve) => child.on('close', resolve));
    const found = { checks: new Map(), passed: 0, failures: '' };
    for (const name of fs.readdirSync(directory)) {
        const scenario = /^server-(.*)-\d{4}-\d\d-\d\dT/.exec(name)[1];
        const file = path.join(directory, name, 'checks.json');
        const checks = fs.existsSync(file) ? JSON.parse(fs.readFileSync(file, 'utf8')) : [];
        for (const { id, status, errorMessage } of checks.filter((check) => check.status !== 'INFO')) {
            const key = `${scenario}: ${id}`;
            found.checks.set(key, [...(found.checks.get(key) ?? []), status].sort());
            if (status === 'SUCCESS') found.passed++;
            else found.failures += `${key} ${status} ${errorMessage ?? ''}\n`;
        }
    }
    return found;
}

// Where the gateway is the HTTP server itself, in front of a server on stdio, and nothing is lost by it:
// it answers a request that has no messages on its way with JSON, where there is no stream that could be
// looked at or broken. Of a server over HTTP nothing is excepted.
const declared = [/^server-sse-polling: /, /^server-sse-multiple-streams: server-sse-streams-functional$/];

// What came out otherwise, and is not simply better.
function differences(direct, found, excepted) {
    const keys = [...new Set([...direct.checks.keys(), ...found.checks.keys()])];
    return keys.filter((key) => !excepted.some((one) => one.test(key))).flatMap((key) => {
        const [before, after] = [direct.checks.get(key) ?? [], found.checks.get(key) ?? []];
        const better = after.length > 0 && after.every((status) => status === 'SUCCESS');
        return better || String(before) === String(after) ? [] : [`${key}: ${before} became ${after}`];
    });
}

// What the target must reach for the comparison to mean something: all but extensions that it lacks.
const least = { '2025-11-25': 84, '2026-07-28': 160 };

const ways = {
    'over HTTP': { target: { url: urls.target }, everything: { url: urls.everything } },
    'over stdio': { target: { command: [...target, 'stdio'] }, everything: { command: everything } },
};

// Each server for the revisions that it speaks.
const revisions = { target: ['2025-11-25', '2026-07-28'], everything: ['2025-11-25'] };

for (const [name, list] of Object.entries(revisions)) {
    for (const revision of list) {
        test(`${revision}: ${name} scores the same directly and through the gateway`, async () => {
            const direct = await outcomes(urls[name], revision);
            assert.ok(direct.checks.size > 40, 'the suite ran');
            if (name === 'target') assert.ok(direct.passed >= least[revision], direct.failures);
            note(`${direct.passed} checks succeed`);
            const all = [];
            for (const [way, entries] of Object.entries(ways)) {
                const found = await outcomes(await through(entries[name]), revision);
                all.push(...differences(direct, found, way === 'over stdio' ? declared : []).map((one) => `${way}: ${one}`));
            }
            assert.deepEqual(all, []);
        }, { limitMs: 400_000 });
    }
}

await run();
