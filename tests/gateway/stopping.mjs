// The stop button during a load on two gateways on one ledger: no write begins later than a second
// after it was acknowledged, what had begun is settled, and after resume everything is done once. It is
// pressed over HTTP, and then by the command line. SEMEL_TEST_LEDGER names the ledger; else it is a file.

import { spawn } from 'node:child_process';
import process from 'node:process';
import { Gateway, assert, newPath, semel as program } from './harness.mjs';
import { about, eventually, full, note, run, sleep, test } from './tap.mjs';
import { Upstream } from './upstream.mjs';

const given = process.env.SEMEL_TEST_LEDGER;
const ledger = given ?? `sqlite:${newPath('ledger.db')}`;
about(`stopping on ${ledger.replace(/:.*/s, '')}`);
const effects = given && !full ? 1500 : 5000;
const clients = 64;

const up = await Upstream.start();
up.habit('brief', async (upstream, entry, response) => {
    await sleep(Math.random() * 100);
    return upstream.habits.get('ok')(upstream, entry, response);
});
const contract = {
    version: 1,
    tools: {
        write: { class: 'write', key: { fields: ['/order_id'] }, upstream: { url: `${up.url}/brief`, timeout: '60s' } },
        look: { class: 'read', upstream: { url: `${up.url}/find?order_id={order_id}`, method: 'GET', timeout: '60s' } },
    },
};
const options = { contract, ledger, config: { log: { level: 'warn', requests: 'none' } } };
const gateways = [await Gateway.start(options), await Gateway.start(options)];
const [one, two] = gateways;
const bodyOf = (n, tool = 'write') => ({ scope: `shop/bot/${n % 50}`, tool, args: { order_id: `w${n}` } });

const todo = Array.from({ length: effects }, (_, n) => n);
const done = new Map(); // of each order: its effect
const refusals = [[], []]; // of each gateway: when it refused
let ended = false;

// Asks the gateways in turn for what is to be done. What is refused is asked for again.
async function client(number) {
    for (let turn = number; todo.length > 0 && !ended; turn++) {
        const n = todo.shift();
        const answer = await gateways[turn % 2].agent.call({ ...bodyOf(n), wait_ms: 60_000 });
        if (answer.status === 200) {
            done.set(`w${n}`, answer.headers['semel-effect']);
            continue;
        }
        assert.equal(answer.json.code, 'STOPPED', answer.text);
        assert.match(answer.text, /a test of the button/);
        refusals[turn % 2].push(Date.now());
        todo.push(n);
        await sleep(20);
    }
}
const load = Promise.all(Array.from({ length: clients }, (_, number) => client(number)));
load.catch(() => (ended = true));

// Runs the program beside us: the upstream is in this process.
function semel(...args) {
    return new Promise((resolve, reject) => {
        const child = spawn(program, [...args, '--ledger', ledger], { stdio: ['ignore', 'pipe', 'pipe'] });
        const said = { out: '', err: '' };
        child.stdout.on('data', (piece) => (said.out += piece));
        child.stderr.on('data', (piece) => (said.err += piece));
        child.on('error', reject);
        child.on('close', (status) => resolve({ status, ...said }));
    });
}

async function events() {
    const exported = await semel('audit', 'export');
    assert.equal(exported.status, 0, exported.err);
    return exported.out.trim().split('\n').map((line) => JSON.parse(line));
}

// Until so many are done.
async function doneSoFar(share) {
    await Promise.race([load, eventually('the load goes on', () => done.size >= effects * share)]);
    assert.ok(done.size < effects, 'the load lasts longer than the test');
}

// Presses the button, and goes on until both gateways have refused much, later than a second after.
async function press(stop) {
    await stop();
    const acknowledged = Date.now();
    await Promise.race([load, eventually('both refuse what is asked for later than a second after', () =>
        refusals.every((times) => times.filter((at) => at > acknowledged + 1000).length >= 100))]);
    return acknowledged;
}

// What the ledger and the upstream say about a stop.
async function assertStopped(acknowledged, nth) {
    await eventually('what had begun is settled', async () => {
        const open = await one.admin.get('/v1/effects?state=running,in_doubt,ready');
        return open.status === 200 && open.json.items.length === 0;
    });
    const all = await events();
    const halts = all.filter((event) => event.what === 'stopped' && event.body.kind === 'all');
    const stopped = Date.parse(halts[nth].at);
    // A claim that was acknowledged only after the stop was known is taken back: nothing was sent.
    const began = new Map();
    for (const { what, effect, at } of all) {
        if (what.split(',').includes('started')) began.set(effect, Date.parse(at));
        else if (what.split(',').includes('withdrawn')) began.delete(effect);
    }
    const between = [...began.values()].filter((at) => at > stopped);
    assert.ok(between.every((at) => at <= stopped + 1000), 'an attempt began later than a second after the stop');
    // How long a request was on its way to the upstream, at worst: that is the machine's load, not ours.
    const writes = up.seen.filter((entry) => entry.path === '/brief');
    const way = Math.max(0, ...writes
        .filter((entry) => entry.at <= stopped && done.has(entry.order))
        .map((entry) => entry.at - began.get(done.get(entry.order))));
    const last = Math.max(...writes.map((entry) => entry.at));
    note(`the last write came ${last - acknowledged} ms after the acknowledgement; one was on its way for ${way} ms`);
    assert.ok(last <= acknowledged + 1000 + way, `a write came ${last - acknowledged} ms after the stop`);
    // What had begun was done, and nothing else has begun.
    const orders = new Set(writes.map((entry) => entry.order));
    assert.equal(began.size, orders.size, 'what began was sent, and nothing else was');
    await eventually('who asked has the answer', () => done.size === orders.size);
    for (const order of orders) assert.equal(up.times(order), 1, order);
}

// Reads and replays go on at both, and the other gateway says what is stopped.
async function assertGoesOn(by) {
    const [order] = done.keys();
    const n = Number(order.slice(1));
    for (const gw of gateways) {
        const replay = await gw.agent.call(bodyOf(n));
        assert.equal(replay.status, 200, replay.text);
        assert.equal(replay.headers['idempotent-replayed'], 'true');
        assert.equal((await gw.agent.call(bodyOf(n, 'look'))).status, 200);
        const { json } = await gw.admin.get('/v1/stops');
        assert.equal(json.items.length, 1);
        assert.equal(json.items[0].kind, 'all');
        assert.equal(json.items[0].reason, 'a test of the button');
        assert.match(json.items[0].by, by);
    }
}

// The whole of it; if it fails, the load ends too.
async function pressAndLook(nth, by, stop) {
    try {
        await assertStopped(await press(stop), nth);
        await assertGoesOn(by);
    } catch (error) {
        ended = true;
        throw error;
    }
}

test('pressed over HTTP: no write begins a second later, what had begun is settled, reads go on', async () => {
    await doneSoFar(0.3);
    await pressAndLook(0, /^admin \(token /, async () => {
        const answer = await one.admin.post('/v1/stop', { all: true, reason: 'a test of the button' });
        assert.deepEqual(answer.json, { kind: 'all', stopped: true, changed: true });
    });
}, { limitMs: 300_000 });

test('resumed at the other gateway: calls go on', async () => {
    const before = done.size;
    const answer = await two.admin.post('/v1/resume', { all: true, reason: 'it works' });
    assert.deepEqual(answer.json, { kind: 'all', stopped: false, changed: true });
    await Promise.race([load, eventually('calls go on', () => done.size > before + clients)]);
}, { limitMs: 300_000 });

test('pressed on the command line: the same', async () => {
    await doneSoFar(0.6);
    for (const times of refusals) times.length = 0;
    await pressAndLook(1, /./, async () => {
        const stop = await semel('stop', '--all', '--reason', 'a test of the button');
        assert.equal(stop.status, 0, stop.err);
    });
    const again = await semel('resume', '--all', '--json');
    assert.deepEqual([again.status, JSON.parse(again.out)], [0, { kind: 'all', stopped: false, changed: true }]);
}, { limitMs: 300_000 });

test('nothing is lost: everything was done once', async () => {
    await load;
    assert.equal(done.size, effects);
    for (let n = 0; n < effects; n++) assert.equal(up.times(`w${n}`), 1, `w${n}`);
    const { json } = await one.admin.get('/v1/stops');
    assert.deepEqual(json.items, []);
}, { limitMs: 300_000 });

test('refusals are counted where they belong', async () => {
    const list = await eventually('the notes are written', async () => {
        const { json } = await two.admin.get('/v1/scopes?limit=1000');
        return json.items.reduce((sum, item) => sum + item.refusals, 0) > 200 && json;
    });
    assert.equal(list.items.length, 50);
    // What was taken back has a record of its own.
    const taken = (await events()).filter((event) => event.what.split(',').includes('withdrawn')).length;
    assert.equal(list.items.reduce((sum, item) => sum + item.effects, 0), effects + taken);
    for (const item of list.items) assert.equal(item.state, 'ok', JSON.stringify(item));
});

test('the trail has who pressed it and why, and is whole', async () => {
    const about = (await events()).filter((event) => /stopped|resumed/.test(event.what));
    assert.deepEqual(about.map((event) => [event.what, event.body.reason]), [
        ['stopped', 'a test of the button'], ['resumed', 'it works'], ['stopped', 'a test of the button'],
        ['resumed', undefined],
    ]);
    assert.match(about[0].actor, /^admin \(token /);
    for (const gw of gateways) assert.equal((await gw.stop()).code, 0);
    const verified = await semel('audit', 'verify');
    assert.equal(verified.status, 0, verified.out + verified.err);
}, { limitMs: 300_000 });

await run();
