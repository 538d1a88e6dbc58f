// The gateway is killed again and again while effects are under way: none is done twice, none is
// lost. Half of them are at an upstream that honours keys, and all of those are done exactly once;
// the others are done once, or are in doubt and were done at most once.

import { Gateway, assert, run as semel } from './harness.mjs';
import { full, run, sleep, test } from './tap.mjs';
import { Upstream } from './upstream.mjs';

const effects = full ? 20_000 : 5000;
const clients = 64;
const up = await Upstream.start();
up.habit('brief', async (upstream, entry, response) => {
    await sleep(Math.random() * 100);
    return upstream.habits.get('ok')(upstream, entry, response);
});
up.habit('brief-once', async (upstream, entry, response) => {
    await sleep(Math.random() * 100);
    return upstream.habits.get('once')(upstream, entry, response);
});

const at = (path) => ({
    url: `${up.url}${path}`,
    timeout: '10s',
    idempotency: { header: 'Idempotency-Key', window: '24h' },
});
const contract = {
    version: 1,
    tools: {
        plain: { class: 'irreversible', key: { fields: ['/order_id'] }, barrier: 'off', upstream: at('/brief') },
        keyed: {
            class: 'irreversible', key: { fields: ['/order_id'] }, barrier: 'off',
            on_in_doubt: ['resend', 'hold'], upstream: at('/brief-once'),
        },
    },
};
const gw = await Gateway.start({ contract, config: { log: { level: 'warn', requests: 'none' } } });
const ends = new Map(); // of each order: the last answer
let kills = 0;

const toolOf = (n) => (n % 2 === 0 ? 'plain' : 'keyed');
const bodyOf = (n) => ({ scope: `shop/${n % 7}`, tool: toolOf(n), args: { order_id: `c${n}` } });

// Asks once. True if that is an end that lasts: an outcome, or a doubt that nobody can remove.
async function ask(n) {
    let answer = null;
    try {
        answer = await gw.agent.call({ ...bodyOf(n), wait_ms: 2000 });
    } catch {
        await sleep(20); // it is down
        return false;
    }
    ends.set(`c${n}`, answer);
    if (answer.status === 200 || answer.json?.code === 'IN_DOUBT') return true;
    assert.ok([409, 503, 504].includes(answer.status), answer.text);
    return false;
}

// So many clients take from a list what is to be asked; what has no end yet goes to its back.
async function askAll(list) {
    const client = async () => {
        while (list.length > 0) {
            const n = list.shift();
            if (!(await ask(n))) list.push(n);
        }
    };
    await Promise.all(Array.from({ length: clients }, client));
}

// Kills it so many times, each time after a while of so long.
async function killAll(times, shortest, longest) {
    for (let n = 0; n < times; n++) {
        await sleep(shortest + Math.random() * (longest - shortest));
        await gw.kill();
        await gw.up();
        kills++;
    }
}

test(`${effects} effects while the gateway is killed and started again`, async () => {
    const list = Array.from({ length: effects }, (_, n) => n);
    const asking = askAll(list);
    // What is left in doubt is looked after about once a second: the last ones live so long.
    await killAll(full ? 80 : 20, 60, 300);
    await killAll(full ? 10 : 2, 1500, 2500);
    await asking;
    console.log(`# killed ${kills} times`);
}, { limitMs: full ? 1_200_000 : 300_000 });

test('none was done twice and none is lost', async () => {
    let doubts = 0;
    for (let n = 0; n < effects; n++) {
        const order = `c${n}`;
        const end = ends.get(order);
        const times = up.times(order);
        if (end.status === 200) {
            assert.equal(times, 1, `${order} was done ${times} times`);
            assert.equal(end.json.serial, up.asked(order).find((one) => one.serial)?.serial, order);
        } else {
            doubts++;
            assert.equal(toolOf(n), 'plain', `${order} has a key and is in doubt`);
            assert.ok(times <= 1, `${order} was done ${times} times`);
        }
    }
    console.log(`# ${doubts} in doubt`);
    assert.ok(doubts < effects / 2);
});

test('the same key went with every request of an order, and each order has its own', async () => {
    const keys = new Map();
    for (const one of up.seen) {
        if (!one.order) continue;
        assert.match(one.key, /^[A-Za-z0-9_-]{43}$/);
        const order = keys.get(one.key) ?? one.order;
        assert.equal(order, one.order);
        keys.set(one.key, order);
    }
    for (let n = 1; n < effects; n += 2) {
        const asked = up.asked(`c${n}`);
        assert.equal(new Set(asked.map((one) => one.key)).size, 1);
    }
});

test('everybody who asks afterwards gets the same bytes', async () => {
    for (let n = 0; n < effects; n += 13) {
        const order = `c${n}`;
        const answer = await gw.agent.call(bodyOf(n));
        assert.equal(answer.status, ends.get(order).status);
        if (answer.status === 200) assert.deepEqual(answer.body, ends.get(order).body);
    }
});

test('the ledger is whole', async () => {
    assert.equal((await gw.stop()).code, 0);
    const verified = semel(['audit', 'verify', '--ledger', gw.ledger]);
    assert.equal(verified.status, 0, verified.stdout + verified.stderr);
});

await run();
