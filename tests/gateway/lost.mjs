// The ledger loses the record of a call while that runs. Whatever it says then, the call runs once,
// its caller gets what the upstream said, and the effect is put back.
//
// SEMEL_TEST_LEDGER names the ledger, SEMEL_TEST_LOSE a program that takes all records from it.
// SEMEL_TEST_REFUSES: the gateway's handle notices the loss by itself and answers nothing after it.
// SEMEL_TEST_NOTES: so does the next one, by what is noted in these files and directories.

import { execFile } from 'node:child_process';
import fs from 'node:fs';
import process from 'node:process';
import { promisify } from 'node:util';
import { Gateway, assert, assertProblem } from './harness.mjs';
import { newOrder, shop } from './shop.mjs';
import { about, eventually, run, test } from './tap.mjs';
import { Upstream, reply } from './upstream.mjs';

const ledger = process.env.SEMEL_TEST_LEDGER;
const refuses = Boolean(process.env.SEMEL_TEST_REFUSES);
about(process.env.SEMEL_TEST_ABOUT);
const lose = () => promisify(execFile)(process.env.SEMEL_TEST_LOSE);

const up = await Upstream.start();
const held = new Map(); // of each order: what ends its request
const ended = new Set(); // orders whose request was ended: if it is sent again, that is answered at once
up.habit('held', async (upstream, entry, response) => {
    const serial = upstream.did(entry);
    if (ended.has(entry.order)) return reply(response, 200, { serial, again: true });
    const end = await new Promise((resolve) => held.set(entry.order, resolve));
    ended.add(entry.order);
    if (end === 'reset') response.socket.resetAndDestroy();
    else reply(response, end, { serial, order: entry.order }, { 'x-request-id': 'r-1' });
});
const tool = { upstream: { url: `${up.url}/held`, timeout: '30s', retry: { attempts: 1 } } };
const contract = shop(up, {
    pay: { class: refuses ? 'irreversible' : 'write', key: { fields: ['/order_id'] }, barrier: 'off', ...tool },
    note: { class: 'write', failures: 'replay', ...tool },
});
const env = { SHOP_SECRET: 's' };
let gw = await Gateway.start({ contract, env, ledger });
const body = (order, more = {}) => ({ scope: 'shop/1', tool: 'pay', args: { order_id: order }, ...more });
const runs = (order) => eventually('it runs', () => held.has(order));

// Starts a call and waits until the upstream has it. What comes back is its answer.
async function running(order) {
    const calling = gw.agent.call(body(order));
    await runs(order);
    return { calling };
}

// A call that is over: its outcome was acknowledged by the ledger.
async function settled(order) {
    const { calling } = await running(order);
    held.get(order)(200);
    assert.equal((await calling).status, 200);
}

async function isRefused(order) {
    assertProblem(await gw.agent.call(body(order)), 503, 'LEDGER_UNAVAILABLE');
    assert.equal(up.times(order), 1, 'it was sent again');
}

// Loses the records. A server that is replaced can be reached again, and its loss is known, before it goes
// on: else the outcome would be recorded too late for its caller.
async function loseAll(over) {
    const from = gw.log.length;
    await lose();
    if (refuses)
        await eventually('the loss is noticed', async () => {
            await isRefused(over);
            return /"reason":"[^"]*lost/.test(gw.log.slice(from));
        }, 30_000);
}

// A handle that has noticed the loss has to be opened anew, after a person has found out what ran. If
// the handle has left a note, the person removes it first.
async function restart() {
    await gw.stop();
    if (process.env.SEMEL_TEST_NOTES) {
        await assert.rejects(gw.up(), /has lost effects.*remove/s);
        for (const note of process.env.SEMEL_TEST_NOTES.split(':'))
            fs.rmSync(note, { recursive: true, force: true });
    }
    await gw.up();
}

async function isKnown(order, status = 200) {
    if (refuses) {
        await isRefused(order);
        await eventually('it is not ready', async () => (await gw.agent.get('/readyz')).status === 503);
        assert.match((await gw.admin.get('/metrics')).text, /^semel_ledger_up 0$/m);
        await restart();
    }
    const again = await gw.agent.call(body(order));
    assert.equal(again.status, status, again.text);
    assert.equal(up.times(order), 1, 'it was sent again');
    return again;
}

test('its caller gets the outcome with a doubt, the log an error, and the effect is put back', async () => {
    const over = newOrder();
    if (refuses) await settled(over);
    const orders = Array.from({ length: 5 }, newOrder);
    const calls = await Promise.all(orders.map(running));
    await loseAll(over);
    orders.forEach((order) => held.get(order)(201));
    const answers = await Promise.all(calls.map(({ calling }) => calling));
    for (const [i, answer] of answers.entries()) {
        assert.equal(answer.status, 201, answer.text);
        assert.equal(answer.json.order, orders[i]);
        assert.equal(answer.headers['x-request-id'], 'r-1');
        assert.equal(answer.headers['semel-doubt'], 'put_back');
        assert.equal(answer.headers['idempotent-replayed'], undefined);
        const told = new RegExp(`"level":"error".*lost the record.*${answer.headers['semel-effect']}`);
        await eventually('the log tells', () => told.test(gw.log));
    }
    for (const [i, answer] of answers.entries()) {
        const again = i === 0 ? await isKnown(orders[i], 201) : await gw.agent.call(body(orders[i]));
        assert.equal(again.text, answer.text);
        assert.equal(again.headers['idempotent-replayed'], 'true');
        assert.equal(again.headers['semel-effect'], answer.headers['semel-effect']);
        assert.equal(again.headers['semel-doubt'], undefined);
        const shown = await gw.operator.get(`/v1/effects/${answer.headers['semel-effect']}`);
        assert.ok(shown.json.events.some((event) => event.what.split(',').includes('put_back')), shown.text);
    }
    orders.forEach((order) => assert.equal(up.times(order), 1, 'it was sent again'));
});

test('an upstream that was lost as well leaves a doubt, which is put back', async () => {
    const over = newOrder(), order = newOrder();
    if (refuses) await settled(over);
    const { calling } = await running(order);
    await loseAll(over);
    held.get(order)('reset');
    assertProblem(await calling, 409, 'IN_DOUBT');
    assertProblem(await isKnown(order, 409), 409, 'IN_DOUBT');
});

if (!refuses) {
    test('equal calls that come meanwhile, or waited before, get its outcome and run nothing', async () => {
        const order = newOrder();
        const first = gw.agent.call(body(order));
        await runs(order);
        const waiting = gw.agent.call(body(order));
        await eventually('somebody waits', async () =>
            /semel_requests_parked [1-9]/.test((await gw.admin.get('/metrics')).text));
        await lose();
        const late = gw.agent.call(body(order));
        await eventually('its record is back', async () =>
            (await gw.operator.get('/v1/effects?state=running')).json.items.length === 1);
        held.get(order)(200);
        const answers = await Promise.all([first, waiting, late]);
        assert.deepEqual(answers.map((answer) => answer.status), [200, 200, 200]);
        assert.equal(new Set(answers.map((answer) => answer.text)).size, 1);
        assert.equal(up.times(order), 1);
    });

    test('a claim that an agent has is not given to another, and its end is put back', async () => {
        const claimed = [];
        for (const n of [newOrder(), newOrder()]) {
            const call = { scope: 'shop/1', tool: 'own', args: { n } };
            claimed.push({ call, ...(await gw.agent.post('/v1/begin', call)).json });
        }
        await lose();
        const [running, ended] = claimed;
        assertProblem(await gw.agent2.post('/v1/begin', running.call), 409, 'RETRY_IN_FLIGHT');
        const done = await gw.agent.post('/v1/commit', { claim: ended.claim, kind: 'success', value: 1 });
        assert.equal(done.json.result, 'put_back', done.text);
        const told = new RegExp(`"level":"error".*lost the record.*${ended.effect}`);
        await eventually('the log tells', () => told.test(gw.log));
        assert.equal((await gw.agent2.post('/v1/begin', ended.call)).json.outcome.value, 1);
    });

    test('somebody else has begun it meanwhile: what ran is evidence, and both are told of', async () => {
        const order = newOrder();
        const other = await Gateway.start({ contract, env, ledger });
        const first = gw.agent.call(body(order));
        await runs(order);
        const end = held.get(order);
        held.delete(order);
        await lose();
        const second = other.agent.call(body(order));
        await runs(order);
        end(200);
        const answer = await first;
        assert.equal(answer.headers['semel-doubt'], 'put_back');
        held.get(order)(200);
        const theirs = await second;
        assert.equal(theirs.status, 200);
        assert.equal(up.times(order), 2);
        const shown = await gw.operator.get(`/v1/effects/${theirs.headers['semel-effect']}`);
        const events = shown.json.events.map((event) => event.what);
        assert.ok(events.some((what) => what.includes('put_back')), events.join(' '));
        assert.ok(events.some((what) => what.includes('double_effect')), events.join(' '));
    });
}

await run();
