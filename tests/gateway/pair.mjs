// Two gateways on one ledger, the one that SEMEL_TEST_LEDGER names, behave as one.

import process from 'node:process';
import { Events } from './client.mjs';
import { Gateway, assert, assertProblem } from './harness.mjs';
import { newOrder, shop } from './shop.mjs';
import { about, eventually, run, sleep, test } from './tap.mjs';
import { Upstream } from './upstream.mjs';

const ledger = process.env.SEMEL_TEST_LEDGER;
about(`two on ${ledger.replace(/:.*/s, '')}`);
const up = await Upstream.start();
const keyed = { idempotency: { header: 'Idempotency-Key', window: '24h' } };
const contract = shop(up, {
    slow: { class: 'write', loop: 'off', upstream: { url: `${up.url}/slow/600`, timeout: '10s' } },
    stuck: { class: 'write', upstream: { url: `${up.url}/hang`, timeout: '60s' } },
    again: {
        class: 'irreversible', key: { fields: ['/order_id'] }, barrier: 'off',
        on_in_doubt: ['resend', 'hold'],
        upstream: { url: `${up.url}/once-hang`, timeout: '60s', ...keyed },
    },
});
const env = { SHOP_SECRET: 's' };
const one = await Gateway.start({ contract, env, ledger });
const two = await Gateway.start({ contract, env, ledger });
const body = (tool, order, more = {}) => ({
    scope: 'shop/1', tool, args: { order_id: order, ...more },
});

test('equal calls to both: one effect, equal bodies', async () => {
    const order = newOrder();
    const calls = Array.from({ length: 200 }, (_, n) => (n % 2 ? one : two).agent.call(body('slow', order)));
    const answers = await Promise.all(calls);
    assert.equal(up.times(order), 1);
    assert.deepEqual([...new Set(answers.map((answer) => answer.status))], [200]);
    assert.equal(new Set(answers.map((answer) => answer.text)).size, 1);
    assert.equal(new Set(answers.map((answer) => answer.headers['semel-effect'])).size, 1);
});

test('many pairs of equal calls at once: each runs once', async () => {
    const orders = Array.from({ length: 100 }, newOrder);
    const answers = await Promise.all(orders.map(async (order) => {
        const pair = await Promise.all([one, two].map((gw) => gw.agent.call(body('charge', order))));
        assert.deepEqual(pair[0].body, pair[1].body);
        return pair[0].status;
    }));
    assert.deepEqual([...new Set(answers)], [200]);
    assert.ok(orders.every((order) => up.times(order) === 1));
});

test('who waits at one gets the end at the other', async () => {
    const order = newOrder();
    const first = one.agent.call(body('slow', order));
    await eventually('it runs', () => up.times(order) === 1);
    const second = two.agent.call(body('slow', order));
    assert.deepEqual((await second).body, (await first).body);
});

test('asked at one, approved at the other: it runs once, and the waiter gets it', async () => {
    const order = newOrder();
    const asked = await one.agent.call({ ...body('gift', order, { amount: 900 }), wait_ms: 0 });
    const { effect, request } = assertProblem(asked, 202, 'AWAITING_APPROVAL');
    const waiting = one.agent.call({ ...body('gift', order, { amount: 900 }), wait_ms: 20_000 });
    await sleep(100);
    const approved = await two.approver.post(`/v1/effects/${effect}/approve`, { request });
    assert.equal(approved.status, 200, approved.text);
    assert.equal((await waiting).status, 200);
    assert.equal(up.times(order), 1);
});

test('a stream at one tells what happens at the other, in order and without gaps', async () => {
    const stream = await Events.open(two.admin, '/v1/stream');
    await sleep(300);
    const orders = Array.from({ length: 50 }, newOrder);
    const effects = await Promise.all(orders.map(async (order) => {
        const answer = await one.agent.call(body('charge', order));
        return answer.headers['semel-effect'];
    }));
    const of = (id) => stream.events.filter((event) => event.data.includes(id)).length;
    await eventually('all came', () => effects.every((id) => of(id) >= 2));
    const ids = stream.events.map((event) => Number(event.id));
    assert.deepEqual(ids, [...ids].sort((a, b) => a - b));
    stream.close();
});

test('what one forgets or resolves, the other knows at once', async () => {
    const order = newOrder();
    const first = await one.agent.call(body('order', order));
    assert.equal((await two.agent.call(body('order', order))).headers['idempotent-replayed'], 'true');
    const path = `/v1/effects/${first.headers['semel-effect']}/forget`;
    assert.equal((await one.operator.post(path, {})).status, 200);
    const again = await two.agent.call(body('order', order));
    assert.equal(again.headers['idempotent-replayed'], undefined);
    assert.equal(up.times(order), 2);
});

test('one is killed: the other settles what it left, where that is safe', async () => {
    const keyed = newOrder();
    const plain = newOrder();
    const calls = [body('again', keyed), body('stuck', plain)].map((what) =>
        one.agent.call(what).catch(() => null));
    await eventually('both run', () => up.times(keyed) === 1 && up.times(plain) === 1);
    await one.kill();
    await Promise.all(calls);
    const done = await eventually('it is settled', async () => {
        const answer = await two.agent.call(body('again', keyed));
        return answer.status === 200 && answer;
    }, 40_000);
    assert.equal(done.json.order, keyed);
    assert.equal(up.times(keyed), 1);
    const doubt = await eventually('it is in doubt', async () => {
        const answer = await two.agent.call({ ...body('stuck', plain), wait_ms: 0 });
        return answer.json.code === 'IN_DOUBT' && answer;
    }, 40_000);
    assert.equal(doubt.status, 409);
    assert.equal(up.times(plain), 1);
    await one.up();
    assert.deepEqual((await one.agent.call(body('again', keyed))).body, done.body);
});

await run();
