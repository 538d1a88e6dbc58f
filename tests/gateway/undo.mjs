// Undoing over HTTP: the plan, one undo after the other, where it stops; resolving a doubt by
// undoing it; and decisions that name the version that they are about.

import { Gateway, assert, assertProblem } from './harness.mjs';
import { newOrder, shop } from './shop.mjs';
import { eventually, run, test } from './tap.mjs';
import { Upstream } from './upstream.mjs';

const up = await Upstream.start();
const held = new Map(); // of each order: the answer that it waits for
up.habit('held', (upstream, entry, response) => {
    upstream.did(entry);
    held.set(entry.order, response);
});
const at = (path) => ({ url: `${up.url}${path}`, timeout: '5s', retry: { attempts: 1 } });
const undoes = (tool) => ({ tool, args: { '/order_id': '/order_id', '/serial': { outcome: '/serial' } } });
const gw = await Gateway.start({
    contract: shop(up, {
        buy: { class: 'write', compensate: undoes('refund'), upstream: at('/ok/buy') },
        book: { class: 'write', compensate: undoes('unbook'), upstream: at('/ok/book') },
        risky: {
            class: 'write', barrier: 'off', compensate: { tool: 'refund', args: { '/order_id': '/order_id' } },
            upstream: at('/reset-after/risky'),
        },
        hopeless: {
            class: 'write', barrier: 'off', compensate: { tool: 'lost', args: { '/order_id': '/order_id' } },
            upstream: at('/reset-after/hopeless'),
        },
        again: { class: 'write_idempotent', compensate: { tool: 'held', args: { '/order_id': '/order_id' } } },
        refund: { class: 'write', upstream: at('/ok/refund') },
        held: { class: 'write', upstream: at('/held/refund') },
        unbook: { class: 'write' },
        taken: { class: 'write', compensate: { tool: 'rejected', args: { '/order_id': '/order_id' } }, upstream: at('/ok/taken') },
    }),
    env: { SHOP_SECRET: 's' },
});

let scopes = 0;
const newScope = () => `shop/undo-${++scopes}`;
const call = async (scope, tool, order) => {
    const answer = await gw.agent.call({ scope, tool, args: { order_id: order } });
    return { answer, effect: answer.headers['semel-effect'] ?? answer.json?.effect };
};
const refunds = (order) => up.asked(order).filter((one) => one.path === '/ok/refund').length;
const undoOf = (scope) => `/v1/scopes/${encodeURIComponent(scope)}/undo`;
const undo = (scope, who = gw.operator) => who.post(undoOf(scope), {});

test('the plan is shown, and the undos run once, the newest first', async () => {
    const scope = newScope(), [first, second] = [newOrder(), newOrder()];
    const one = await call(scope, 'buy', first), two = await call(scope, 'buy', second);
    const plan = await gw.operator.get(undoOf(scope));
    assert.equal(plan.status, 200, plan.text);
    assert.deepEqual(plan.json.items.map((item) => [item.effect, item.status, item.call.key]), [
        [two.effect, 'todo', `undo:${two.effect}`], [one.effect, 'todo', `undo:${one.effect}`],
    ]);
    assert.equal(refunds(first) + refunds(second), 0);
    const before = up.work.length;
    const [done, ...rest] = await Promise.all([undo(scope), undo(scope), undo(scope)]);
    for (const answer of [done, ...rest]) assert.equal(answer.status, 200, answer.text);
    await eventually('all is undone', async () => {
        const again = await undo(scope);
        assert.equal(again.status, 200, again.text);
        return again.json.todo === 0 && !again.json.stopped;
    });
    assert.deepEqual([refunds(first), refunds(second)], [1, 1]);
    assert.deepEqual(up.work.slice(before).map((entry) => entry.order), [second, first]);
    const after = (await gw.operator.get(undoOf(scope))).json;
    assert.deepEqual(after.items.filter((item) => item.status !== 'nothing').map((item) => item.status), ['done', 'done']);
});

test('it stops at an undo that fails, and says what is left', async () => {
    const scope = newScope(), [first, second] = [newOrder(), newOrder()];
    await call(scope, 'buy', first);
    const { effect } = await call(scope, 'taken', second);
    const stopped = await undo(scope);
    assert.equal(stopped.status, 200, stopped.text);
    assert.equal(stopped.json.stopped.effect, effect);
    assert.equal(stopped.json.stopped.code, 'FAILED');
    assert.equal(stopped.json.todo, 2);
    assert.equal(refunds(first), 0);
});

test('it stops at an effect that is in doubt', async () => {
    const scope = newScope(), [first, second] = [newOrder(), newOrder()];
    await call(scope, 'buy', first);
    const { effect } = await call(scope, 'risky', second);
    const stopped = await undo(scope);
    assert.deepEqual([stopped.json.stopped?.effect, stopped.json.stopped?.code], [effect, 'IN_DOUBT'], stopped.text);
    assert.equal(refunds(first), 0);
});

test('what the gateway cannot execute is passed over', async () => {
    const scope = newScope(), [first, second] = [newOrder(), newOrder()];
    await call(scope, 'buy', first);
    await call(scope, 'book', second);
    const done = await undo(scope);
    assert.equal(done.json.undone, 1, done.text);
    assert.equal(done.json.todo, 1);
    assert.equal(done.json.stopped, undefined);
    assert.equal(refunds(first), 1);
});

test('the plan comes in pages', async () => {
    const scope = newScope(), effects = [];
    for (let i = 0; i < 5; i++) effects.unshift((await call(scope, 'buy', newOrder())).effect);
    await call(`${scope}/below`, 'buy', newOrder());
    const seen = [];
    let cursor = '', pages = 0;
    do {
        const page = await gw.operator.get(`${undoOf(scope)}?limit=2${cursor && `&cursor=${cursor}`}`);
        assert.equal(page.status, 200, page.text);
        assert.ok(page.json.items.length <= 2);
        assert.equal(page.json.todo, page.json.items.length);
        assert.equal(page.json.complete, false);
        seen.push(...page.json.items.map((item) => item.effect));
        cursor = page.json.cursor;
        pages++;
    } while (cursor && pages < 20);
    assert.deepEqual(seen, effects);
    assert.equal((await gw.operator.get(undoOf(scope))).json.complete, true);
    assertProblem(await gw.operator.get(`${undoOf(scope)}?cursor=x`), 400, 'BAD_ARGUMENTS');
    assertProblem(await gw.operator.get(`${undoOf(scope)}?limit=1001`), 400, 'BAD_ARGUMENTS');
});

test('a run of more effects than an answer has room for is undone all the same', async () => {
    const scope = newScope(), orders = [];
    for (let i = 0; i < 110; i++) orders.push(newOrder());
    await Promise.all(orders.map((order) => call(scope, 'buy', order)));
    const none = await gw.operator.post(undoOf(scope), { wait_ms: 0 });
    assert.deepEqual([none.json.undone, none.json.stopped?.code], [0, 'RETRY_IN_FLIGHT'], none.text);
    let answer, undone = 0;
    do { // with a slow machine the time may be up
        answer = (await undo(scope)).json;
        undone += answer.undone;
    } while (answer.stopped?.code === 'RETRY_IN_FLIGHT');
    assert.equal(answer.stopped, undefined, JSON.stringify(answer.stopped));
    assert.equal(undone, 110);
    for (const order of orders) assert.equal(refunds(order), 1);
    assert.equal(answer.complete, false); // the undos are effects, too
    assert.equal(answer.items.length, 200);
});

test('only operators may, and only in their scopes', async () => {
    const scope = newScope();
    assertProblem(await undo(scope, gw.agent), 403, 'NOT_ALLOWED');
    assertProblem(await undo(scope, gw.approver), 403, 'NOT_ALLOWED');
    assertProblem(await undo(scope, gw.strangerOperator), 403, 'FORBIDDEN');
    assertProblem(await gw.strangerOperator.get(undoOf(scope)), 403, 'FORBIDDEN');
    assertProblem(await gw.operator.get(`${undoOf(scope)}?scope=${scope}`), 400, 'BAD_ARGUMENTS');
});

test('a doubt is resolved by undoing it', async () => {
    const scope = newScope(), order = newOrder();
    const { effect } = await call(scope, 'risky', order);
    const resolve = (more) =>
        gw.operator.post(`/v1/effects/${effect}/resolve`, { result: 'compensate', evidence: 'better so', ...more });
    const before = (await gw.operator.get(`/v1/effects/${effect}`)).json;
    assertProblem(await resolve({ if_version: before.version + 1 }), 409, 'ILLEGAL_STATE');
    assert.equal(refunds(order), 0);
    const done = await resolve({ if_version: before.version });
    assert.equal(done.status, 200, done.text);
    assert.equal(done.json.state, 'failed');
    assert.equal(refunds(order), 1);
    const story = (await gw.operator.get(`/v1/effects/${effect}`)).json;
    assert.match(story.events.at(-1).body.evidence, /^undone by ef_[^:]*: better so$/);
    assertProblem(await resolve(), 409, 'ILLEGAL_STATE');
    assert.equal(refunds(order), 1);
});

// Its agent may run it again for as long as it is in doubt. Not while it is undone, nor when its undo is in doubt.
test('a doubt that is being undone does not run again', async () => {
    const body = { scope: newScope(), tool: 'again', args: { order_id: newOrder() } }, order = body.args.order_id;
    const { claim, effect } = (await gw.agent.post('/v1/begin', body)).json;
    const lost = await gw.agent.post('/v1/commit', { claim, kind: 'failure', applied: 'unknown' });
    assert.equal(lost.json.state, 'in_doubt', lost.text);
    const resolving = gw.operator.post(`/v1/effects/${effect}/resolve`, { result: 'compensate', evidence: 'x' });
    await eventually('its undo runs', () => held.has(order));
    assertProblem(await gw.agent.post('/v1/begin', body), 409, 'IN_DOUBT');
    held.get(order).socket.resetAndDestroy();
    assert.equal((await resolving).json.code, 'IN_DOUBT');
    assertProblem(await gw.agent.post('/v1/begin', body), 409, 'IN_DOUBT');
});

test('a doubt whose undo ends in doubt stays, and both are told', async () => {
    const scope = newScope(), order = newOrder();
    const { effect } = await call(scope, 'hopeless', order);
    const answer = await gw.operator.post(`/v1/effects/${effect}/resolve`, { result: 'compensate', evidence: 'x' });
    assert.equal(answer.json.code, 'IN_DOUBT', answer.text);
    assert.match(answer.json.message, /The effect stays in doubt: its undo ef_\S+ is in_doubt/);
    assert.equal((await gw.operator.get(`/v1/effects/${effect}`)).json.state, 'in_doubt');
});

test('a decision about another version changes nothing', async () => {
    const order = newOrder();
    const asked = await gw.agent.call({ scope: 'shop/v', tool: 'gift', args: { order_id: order, amount: 500 }, wait_ms: 0 });
    const { effect, request } = asked.json;
    const item = (await gw.approver.get('/v1/approvals')).json.items.find((one) => one.request === request);
    assert.ok(item.version > 0);
    const approve = (if_version) => gw.approver.post(`/v1/effects/${effect}/approve`, { request, if_version });
    const refused = assertProblem(await approve(item.version + 1), 409, 'ILLEGAL_STATE');
    assert.equal(refused.state, 'pending_approval');
    assert.equal(refused.version, item.version);
    assertProblem(await approve(0), 400, 'BAD_ARGUMENTS');
    assert.equal((await approve(item.version)).status, 200);
    await gw.state(effect, 'succeeded');
    const story = (await gw.operator.get(`/v1/effects/${effect}`)).json;
    const forget = (if_version) => gw.operator.post(`/v1/effects/${effect}/forget`, { if_version });
    assertProblem(await forget(item.version), 409, 'ILLEGAL_STATE');
    assert.equal((await forget(story.version)).status, 200);
});

await run();
