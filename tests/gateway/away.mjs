// The ledger is out of reach when a call ends, and stays so for a while. The caller gets what the
// upstream said, the log an error, and the outcome is recorded once the ledger is back.
//
// SEMEL_TEST_LEDGER names the ledger. SEMEL_TEST_AWAY is a program that takes it away, SEMEL_TEST_BACK
// one that brings it back.

import { execFile } from 'node:child_process';
import process from 'node:process';
import { promisify } from 'node:util';
import { Gateway, assert, assertProblem } from './harness.mjs';
import { newOrder, shop } from './shop.mjs';
import { about, eventually, run, test } from './tap.mjs';
import { Upstream, reply } from './upstream.mjs';

about(process.env.SEMEL_TEST_ABOUT);
const away = () => promisify(execFile)(process.env.SEMEL_TEST_AWAY);
const back = () => promisify(execFile)(process.env.SEMEL_TEST_BACK);

const up = await Upstream.start();
const held = new Map(); // of each order: what ends its request
up.habit('held', async (upstream, entry, response) => {
    const serial = upstream.did(entry);
    const end = await new Promise((resolve) => held.set(entry.order, resolve));
    if (end === 'reset') response.socket.resetAndDestroy();
    else reply(response, end, { serial, order: entry.order }, { 'x-request-id': 'r-1' });
});
const pay = {
    class: 'irreversible', key: { fields: ['/order_id'] }, barrier: 'off',
    upstream: { url: `${up.url}/held`, timeout: '30s', retry: { attempts: 1 } },
};
const contract = shop(up, { pay, pay_once: { ...pay, on_hit: 'fail' } });
const gw = await Gateway.start({ contract, env: { SHOP_SECRET: 's' }, ledger: process.env.SEMEL_TEST_LEDGER });
const call = (order, more = {}) =>
    gw.agent.call({ scope: 'shop/1', tool: 'pay', args: { order_id: order }, ...more });
async function running(order, more) {
    const calling = call(order, more);
    await eventually('it runs', () => held.has(order));
    return { calling };
}
const told = (effect) => gw.log.split('\n').filter((line) =>
    line.includes('"level":"error"') && line.includes('could not be recorded yet') && line.includes(effect)).length;

test('a ledger that is away when a call ends: its callers get the outcome with a doubt', async () => {
    const order = newOrder(), unanswered = newOrder();
    const { calling } = await running(order);
    const lost = await running(unanswered);
    const strict = newOrder(), once = { tool: 'pay_once' };
    const paid = await running(strict, once);
    await away();
    await eventually('it is not ready', async () => (await gw.agent.get('/readyz')).status === 503);
    assertProblem(await call(order, { wait_ms: 1 }), 409, 'RETRY_IN_FLIGHT');
    held.get(order)(201);
    held.get(unanswered)('reset');
    const first = await calling;
    assert.equal(first.status, 201, first.text);
    assert.equal(first.json.order, order);
    assert.equal(first.headers['x-request-id'], 'r-1');
    assert.equal(first.headers['semel-doubt'], 'unrecorded');
    assert.equal(first.headers['idempotent-replayed'], undefined);
    assertProblem(await lost.calling, 409, 'IN_DOUBT');
    assert.match(gw.log, /"level":"error","message":"the ledger cannot be used"/);
    held.get(strict)(201);
    assert.equal((await paid.calling).headers['semel-doubt'], 'unrecorded');
    assertProblem(await call(strict, once), 409, 'ALREADY_DONE');
    const effect = first.headers['semel-effect'];
    await eventually('the log tells', () => told(effect) === 1);

    const again = await call(order);
    assert.equal(again.status, 201, again.text);
    assert.equal(again.text, first.text);
    assert.equal(again.headers['x-request-id'], 'r-1');
    assert.equal(again.headers['semel-doubt'], 'unrecorded');
    assert.equal(again.headers['semel-effect'], effect);
    assert.equal(again.headers['idempotent-replayed'], 'true');
    assertProblem(await call(unanswered), 409, 'RETRY_IN_FLIGHT');
    const other = newOrder();
    assertProblem(await call(other), 503, 'LEDGER_UNAVAILABLE');
    assert.equal(up.times(other), 0);

    await back();
    const recorded = await eventually('it is recorded', async () => {
        const answer = await call(order);
        return answer.headers['semel-doubt'] === undefined && answer.status === 201 && answer;
    }, 30_000);
    assert.equal(recorded.text, first.text);
    assert.equal((await gw.effect(effect)).state, 'succeeded');
    assertProblem(await eventually('the doubt is recorded', async () => {
        const answer = await call(unanswered);
        return answer.json.code === 'IN_DOUBT' && answer;
    }, 30_000), 409, 'IN_DOUBT');
    assert.equal(told(effect), 1);
    assert.deepEqual([order, unanswered, strict].map((each) => up.times(each)), [1, 1, 1]);
});

await run();
