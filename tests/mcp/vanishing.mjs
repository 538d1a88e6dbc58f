// Clients that vanish without a word or a signal, and servers that do not end by themselves. The proxy
// waits for writes, but not for ever, and no process stays behind. These tests mostly wait, so all of them
// begin at once.

import fs from 'node:fs';
import process from 'node:process';
import { UpstreamPlace } from './http_harness.mjs';
import { WebServer } from './http_server.mjs';
import { Place, assert, node } from './harness.mjs';
import { eventually, later, run, sleep, test } from '../gateway/tap.mjs';

const cases = new Map();
let begun = null;

// A test that begins with the first of them.
function together(name, body) {
    cases.set(name, body);
    test(name, () => {
        begun ??= new Map([...cases].map(([each, start]) => [each, start()]));
        for (const each of begun.values()) each.catch(() => {}); // its own test tells
        return begun.get(name);
    });
}

// ---- processes

const statOf = (pid) => fs.readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
const parentOf = (pid) => Number(statOf(pid)[1]);
const alive = (pid) => {
    try {
        return statOf(pid)[0] !== 'Z';
    } catch {
        return false;
    }
};

// They end soon; if not, they are ended here.
async function assertEnd(...pids) {
    later(() => pids.filter(alive).forEach((pid) => process.kill(pid, 'SIGKILL')));
    for (const pid of pids) await eventually(`process ${pid} has ended`, () => !alive(pid), 30_000);
}

// A client that is a process of its own, so that it can be killed: it passes on what it is given.
const relay = `
    const [command, ...args] = process.argv.slice(1);
    const child = require('node:child_process').spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    process.stdin.pipe(child.stdin);
    child.stdout.pipe(process.stdout);
    child.stdin.on('error', () => {});
    child.on('exit', () => process.exit());`;
const mortal = (Base) => class extends Base {
    command(options) {
        return [node, '-e', relay, ...super.command(options)];
    }
};
const MortalPlace = mortal(Place);

// ---- running writes

const never = { what: 'never', script: 'mark:begun effect never' };
const briefly = (contract) => ({ tools: { append: { lease: '300ms', ...contract } } });
const irreversible = { class: 'irreversible', key: { fields: ['/what'] } };
const kinds = {
    irreversible: { contract: irreversible, options: {} },
    'idempotent, at a server that ignores SIGTERM': { contract: { class: 'write_idempotent' }, options: { stubborn: true } },
};

for (const [kind, { contract, options }] of Object.entries(kinds)) {
    together(`a client is killed during a write that is never answered: it is in doubt, and no process stays (${kind})`, async () => {
        const place = new MortalPlace({ contract: briefly(contract), options: { linger: 3_600_000, ...options } });
        const client = await place.open();
        client.call('append', never).catch(() => {});
        await place.passed('begun');
        const server = place.serverOf('never');
        const proxy = parentOf(server);
        await client.kill();
        await assertEnd(proxy, server);
        assert.equal(place.list()[0].state, 'in_doubt');
        assert.equal(place.effects('never'), 1);
    });
}

together('a client is killed during a write that is answered later: it is waited for and recorded', async () => {
    const place = new MortalPlace({ contract: { tools: { append: { class: 'write' } } } });
    const client = await place.open();
    client.call('append', { what: 'late', script: 'mark:begun gate:go effect answer' }).catch(() => {});
    await place.passed('begun');
    const server = place.serverOf('late');
    const proxy = parentOf(server);
    await client.kill();
    await sleep(3000); // longer than a server without such a write may stay
    place.mark('go');
    await assertEnd(proxy, server);
    assert.equal(place.list()[0].state, 'succeeded');
});

together('writes that end one after another have a lease each', async () => {
    const place = new MortalPlace({ contract: { tools: { append: { class: 'write', lease: '4500ms' } } } });
    const client = await place.open();
    for (const [what, ms] of [['one', 3000], ['two', 6000]])
        client.call('append', { what, script: `mark:${what} wait:${ms} effect answer` }).catch(() => {});
    await Promise.all([place.passed('one'), place.passed('two')]);
    const proxy = parentOf(place.serverOf('one'));
    await client.kill();
    await assertEnd(proxy);
    assert.deepEqual(place.list().map((one) => one.state), ['succeeded', 'succeeded']);
});

together('a client closes its input during a write that is never answered, and waits: for no longer than the lease', async () => {
    const place = new Place({ contract: briefly({ class: 'write' }) });
    const client = await place.open();
    client.call('append', never).catch(() => {});
    await place.passed('begun');
    await sleep(400); // of silence, as before a client leaves
    client.child.stdin.end();
    await client.exit;
    assert.equal(place.list()[0].state, 'in_doubt');
});

together('a distant server that never answers a write does not keep the proxy of a client that was killed', async () => {
    const web = await WebServer.start({ sessions: true });
    const place = new (mortal(UpstreamPlace))(web.url, { contract: briefly(irreversible) });
    const client = await place.open();
    client.call('append', never).catch(() => {});
    await web.passed('begun');
    const [proxy] = fs.readFileSync(`/proc/${client.pid}/task/${client.pid}/children`, 'utf8').split(' ').map(Number);
    await client.kill();
    await assertEnd(proxy);
    assert.equal(place.list()[0].state, 'in_doubt');
});

// ---- servers that stay

const stays = {
    'ignores the end of its input and SIGTERM': { linger: 3_600_000, stubborn: true },
    'has closed its input': { shut: true },
};

for (const [name, options] of Object.entries(stays)) {
    together(`a server that ${name} ends after its client`, async () => {
        const place = new MortalPlace({ options });
        const client = await place.open();
        const server = Number(place.file('pid')[0]);
        const proxy = parentOf(server);
        await client.kill();
        await assertEnd(proxy, server);
    });
}

together('a server that reads nothing ends after its client, although not all of that was read', async () => {
    const place = new MortalPlace({ options: { full: true, linger: 3_600_000 } });
    const client = await place.open();
    const server = Number(place.file('pid')[0]);
    const proxy = parentOf(server);
    for (let i = 0; i < 64; i++) client.notify('example/note', { text: 'x'.repeat(100_000) });
    await eventually('the proxy reads no more', () => client.child.stdin.writableLength > 1_000_000);
    await client.kill();
    await assertEnd(proxy, server);
});

together('a client leaves after its server has ended, and a large answer was not read: the proxy ends in peace', async () => {
    const place = new Place({ contract: { tools: { append: { class: 'write' } } } });
    const client = await place.open();
    client.child.stdout.pause();
    client.call('append', { what: 'large', script: 'effect big:3000000 again exit:0' }).catch(() => {});
    await eventually('the server has begun', () => place.effects('large') === 1);
    const server = place.serverOf('large');
    await eventually('the server has ended', () => !alive(server));
    client.child.stdout.destroy();
    assert.deepEqual(await client.exit, { code: 0, signal: null });
    assert.equal(place.list()[0].state, 'succeeded');
});

await run();
