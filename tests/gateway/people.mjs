// What people decide: approve, deny, cancel, resolve, forget; and who may.

import { Gateway, absentHandle, assert, assertProblem } from './harness.mjs';
import { newOrder, shop } from './shop.mjs';
import { eventually, run, sleep, test } from './tap.mjs';
import { Upstream } from './upstream.mjs';

const up = await Upstream.start();
const gw = await Gateway.start({ contract: shop(up), env: { SHOP_SECRET: 's' } });
const gift = (order, more = {}) => ({
    scope: 'shop/1', tool: 'gift', args: { order_id: order, amount: 500 }, ...more,
});

// Asks for something that needs approval: { effect, request }.
async function asked(body, who = gw.agent) {
    const answer = await who.call({ ...body, wait_ms: 0 });
    const problem = assertProblem(answer, 202, 'AWAITING_APPROVAL');
    assert.match(problem.request, /^ap_/);
    return { effect: problem.effect, request: problem.request };
}

const decide = (who, what, { effect, request }, more = {}) =>
    who.post(`/v1/effects/${effect}/${what}`, { request, ...more });

test('what needs no approval runs at once', async () => {
    const order = newOrder();
    const body = { scope: 'shop/1', tool: 'gift', args: { order_id: order, amount: 5 } };
    assert.equal((await gw.agent.call(body)).status, 200);
    assert.equal(up.times(order), 1);
});

test('an approved call runs even if nobody asks again', async () => {
    const order = newOrder();
    const wanted = await asked(gift(order));
    assert.equal(up.times(order), 0);
    const waiting = await gw.approver.get('/v1/approvals');
    assert.equal(waiting.status, 200, waiting.text);
    const item = waiting.json.items.find((one) => one.request === wanted.request);
    assert.ok(item, waiting.text);
    assert.equal(item.tool, 'gift');
    assert.equal(item.args.amount, 500);
    const approved = await decide(gw.approver, 'approve', wanted);
    assert.equal(approved.status, 200, approved.text);
    await gw.state(wanted.effect, 'succeeded');
    assert.equal(up.times(order), 1);
    const again = await gw.agent.call(gift(order));
    assert.equal(again.status, 200);
    assert.equal(again.headers['idempotent-replayed'], 'true');
    const left = await gw.approver.get('/v1/approvals');
    assert.ok(!left.text.includes(wanted.request), 'it no longer waits');
});

test('whoever waits for the approval gets the outcome', async () => {
    const order = newOrder();
    const wanted = await asked(gift(order));
    const waiting = [1, 2, 3].map(() => gw.agent.call({ ...gift(order), wait_ms: 15_000 }));
    await sleep(150);
    await decide(gw.approver, 'approve', wanted);
    const answers = await Promise.all(waiting);
    assert.deepEqual(answers.map((one) => one.status), [200, 200, 200], answers[0].text);
    assert.equal(new Set(answers.map((one) => one.text)).size, 1);
    assert.equal(up.times(order), 1);
});

test('what waits is listed with the newest first', async () => {
    const wanted = [];
    for (let i = 0; i < 3; i++) wanted.unshift((await asked(gift(newOrder()))).request);
    const { json } = await gw.approver.get('/v1/approvals');
    assert.deepEqual(json.items.map((one) => one.request).filter((one) => wanted.includes(one)), wanted);
});

test('a decision without a body is told what is missing', async () => {
    const { effect } = await asked(gift(newOrder()));
    for (const [what, body, says] of [
        ['approve', '', /"request"/], ['approve', '{}', /"request" is missing/],
        ['approve', '{"effect":"ef_1"}', /its members are request and if_version/],
        ['deny', '', /"request" and "reason"/],
    ]) {
        const refused = await gw.approver.post(`/v1/effects/${effect}/${what}`, body);
        assertProblem(refused, 400, 'BAD_ARGUMENTS');
        assert.match(refused.json.message, says);
    }
    assert.equal((await gw.effect(effect)).state, 'pending_approval');
});

test('an agent cannot approve or deny, nor see who waits', async () => {
    const order = newOrder();
    const wanted = await asked(gift(order));
    for (const who of [gw.agent, gw.agent2])
        for (const what of ['approve', 'deny'])
            assertProblem(await decide(who, what, wanted, { reason: 'x' }), 403, 'NOT_ALLOWED');
    assertProblem(await gw.agent.get('/v1/approvals'), 403, 'NOT_ALLOWED');
    assert.equal((await gw.effect(wanted.effect)).state, 'pending_approval');
});

test('who asked cannot approve it, unless the contract allows that', async () => {
    const order = newOrder();
    const wanted = await asked(gift(order), gw.admin);
    assertProblem(await decide(gw.admin, 'approve', wanted), 403, 'FORBIDDEN');
    assert.equal((await gw.effect(wanted.effect)).state, 'pending_approval');
    assert.equal((await decide(gw.operator, 'approve', wanted)).status, 200);
    await gw.state(wanted.effect, 'succeeded');
    assert.equal(up.times(order), 1);
    const body = { scope: 'shop/1', tool: 'selfmade', args: { order_id: newOrder() } };
    const own = await asked(body, gw.admin);
    assert.equal((await decide(gw.admin, 'approve', own)).status, 200);
    await gw.state(own.effect, 'succeeded');
});

test('everybody who asked is kept from approving, and whoever approved from asking', async () => {
    const order = newOrder();
    const wanted = await asked(gift(order));
    const again = await asked(gift(order), gw.admin);
    assert.deepEqual(again, wanted); // the same request
    assertProblem(await decide(gw.admin, 'approve', wanted), 403, 'FORBIDDEN');
    assert.match(JSON.stringify(await gw.effect(wanted.effect)), /"asked"/);
    const second = { scope: 'shop/1', tool: 'pair', args: { order_id: newOrder() } };
    const quorum = await asked(second); // two have to approve
    assert.equal((await decide(gw.admin, 'approve', quorum)).status, 200);
    assertProblem(await gw.admin.call(second), 403, 'FORBIDDEN');
    assert.equal((await decide(gw.operator, 'approve', quorum)).status, 200);
    await gw.state(quorum.effect, 'succeeded');
    assert.equal((await gw.effect(wanted.effect)).state, 'pending_approval');
    assert.equal(up.times(order), 0);
});

test('an approver of another scope finds nothing to approve', async () => {
    const order = newOrder();
    const wanted = await asked(gift(order));
    const foreign = await decide(gw.strangerOperator, 'approve', wanted);
    assertProblem(foreign, 404, 'NOT_FOUND');
    const list = await gw.strangerOperator.get('/v1/approvals');
    assert.ok(!list.text.includes(wanted.request));
    assert.equal((await gw.effect(wanted.effect)).state, 'pending_approval');
    assert.equal(up.times(order), 0);
});

test('who approved is the token, whatever the body says', async () => {
    const order = newOrder();
    const wanted = await asked(gift(order));
    const lie = await decide(gw.approver, 'approve', wanted, { actor: 'boss' });
    assertProblem(lie, 400, 'BAD_ARGUMENTS', /actor/);
    await decide(gw.approver, 'approve', wanted);
    const effect = await gw.state(wanted.effect, 'succeeded');
    assert.match(JSON.stringify(effect), /approver \(token/);
});

test('two must agree where the contract says so, and not the same one twice', async () => {
    const order = newOrder();
    const body = { scope: 'shop/1', tool: 'pair', args: { order_id: order } };
    const wanted = await asked(body);
    assert.equal((await decide(gw.approver, 'approve', wanted)).status, 200);
    await decide(gw.approver, 'approve', wanted);
    assert.equal((await gw.effect(wanted.effect)).state, 'pending_approval');
    assert.equal((await decide(gw.operator, 'approve', wanted)).status, 200);
    await gw.state(wanted.effect, 'succeeded');
    assert.equal(up.times(order), 1);
});

test('what was denied stays denied', async () => {
    const order = newOrder();
    const wanted = await asked(gift(order));
    const waiting = gw.agent.call({ ...gift(order), wait_ms: 10_000 });
    await sleep(100);
    const denied = await decide(gw.approver, 'deny', wanted, { reason: 'too generous' });
    assert.equal(denied.status, 200, denied.text);
    assertProblem(await waiting, 403, 'DENIED', /too generous/);
    assertProblem(await gw.agent.call(gift(order)), 403, 'DENIED');
    const late = await decide(gw.operator, 'approve', wanted);
    assert.ok(late.status >= 400, late.text);
    assert.equal(up.times(order), 0);
});

test('other arguments under an approval are another request', async () => {
    const order = newOrder();
    const body = (amount) => ({
        scope: 'shop/1', tool: 'gift', key: `k-${order}`, args: { order_id: order, amount },
    });
    const wanted = await asked(body(200));
    const other = await gw.agent.call({ ...body(90_000), wait_ms: 0 });
    assert.ok([202, 422].includes(other.status), other.text);
    if (other.status === 202) assert.notEqual(other.json.request, wanted.request);
    assert.equal(up.times(order), 0);
});

test('the effect of the path and the request of the body must fit', async () => {
    const one = await asked(gift(newOrder()));
    const two = await asked(gift(newOrder()));
    const answer = await gw.approver.post(`/v1/effects/${one.effect}/approve`, {
        request: two.request,
    });
    assertProblem(answer, 400, 'BAD_ARGUMENTS');
    for (const { effect } of [one, two])
        assert.equal((await gw.effect(effect)).state, 'pending_approval');
});

test('what is canceled is told to those who wait, and can be asked for again', async () => {
    const order = newOrder();
    const wanted = await asked(gift(order));
    const waiting = gw.agent.call({ ...gift(order), wait_ms: 10_000 });
    await sleep(100);
    const path = `/v1/effects/${wanted.effect}/cancel`;
    assertProblem(await gw.approver.post(path, {}), 403, 'NOT_ALLOWED');
    assert.equal((await gw.operator.post(path, { reason: 'not now' })).status, 200);
    assertProblem(await waiting, 409, 'CANCELED');
    const again = await asked(gift(order));
    assert.notEqual(again.request, wanted.request);
    assert.equal(again.effect, wanted.effect);
    const { events } = await gw.effect(again.effect);
    const last = events.findLast((one) => one.what.split(',').includes('requested'));
    const { items } = (await gw.approver.get('/v1/approvals')).json;
    const item = items.find((one) => one.request === again.request);
    assert.equal(item.requested_at, last.at, 'it is listed with when it was asked for again');
});

// An effect in doubt: the work was done and the answer was lost.
async function lost(order) {
    const body = { scope: 'shop/1', tool: 'lost', args: { order_id: order } };
    const answer = await gw.agent.call(body);
    const problem = assertProblem(answer, 409, 'IN_DOUBT');
    assert.equal(problem.retriable, false);
    assertProblem(await gw.agent.call(body), 409, 'IN_DOUBT');
    assert.equal(up.times(order), 1, 'it is not sent again');
    return { body, effect: problem.effect };
}

test('resolve applied: the outcome that a person gives is replayed', async () => {
    const order = newOrder();
    const { body, effect } = await lost(order);
    const path = `/v1/effects/${effect}/resolve`;
    const resolution = { result: 'applied', evidence: 'seen in the books', outcome: { value: { paid: true } } };
    assertProblem(await gw.agent.post(path, resolution), 403, 'NOT_ALLOWED');
    assertProblem(await gw.approver.post(path, resolution), 403, 'NOT_ALLOWED');
    assertProblem(await gw.strangerOperator.post(path, resolution), 404, 'NOT_FOUND');
    const resolved = await gw.operator.post(path, resolution);
    assert.equal(resolved.status, 200, resolved.text);
    assert.equal(resolved.json.state, 'succeeded');
    const again = await gw.agent.call(body);
    assert.equal(again.status, 200, again.text);
    assert.deepEqual(again.json, { paid: true });
    assert.equal(up.times(order), 1);
    assertProblem(await gw.operator.post(path, resolution), 409, 'ILLEGAL_STATE');
});

test('resolve abandon: it never runs again', async () => {
    const order = newOrder();
    const { body, effect } = await lost(order);
    const resolved = await gw.operator.post(`/v1/effects/${effect}/resolve`, {
        result: 'abandon', evidence: 'written off',
    });
    assert.equal(resolved.status, 200, resolved.text);
    const again = await gw.agent.call(body);
    assert.ok(again.status >= 400, again.text);
    assert.equal(up.times(order), 1);
});

test('resolve not applied: it may run again, and does once', async () => {
    const order = newOrder();
    const { body, effect } = await lost(order);
    up.habit('reset-after', up.habits.get('ok'));
    const resolved = await gw.operator.post(`/v1/effects/${effect}/resolve`, {
        result: 'not_applied', evidence: 'not in the books',
    });
    assert.equal(resolved.status, 200, resolved.text);
    const again = await gw.agent.call(body);
    assert.equal(again.status, 200, again.text);
    await gw.state(effect, 'succeeded');
    assert.equal(up.times(order), 2, 'once before, once after a person said so');
});

test('forget: the next equal call runs', async () => {
    const order = newOrder();
    const body = { scope: 'shop/1', tool: 'order', args: { order_id: order } };
    const first = await gw.agent.call(body);
    const path = `/v1/effects/${first.headers['semel-effect']}/forget`;
    assertProblem(await gw.agent.post(path, {}), 403, 'NOT_ALLOWED');
    const forgotten = await gw.operator.post(path, { reason: 'a test' });
    assert.equal(forgotten.status, 200, forgotten.text);
    const again = await gw.agent.call(body);
    assert.equal(again.status, 201, again.text);
    assert.equal(again.headers['idempotent-replayed'], undefined);
    assert.equal(up.times(order), 2);
});

test('what has no such state is refused with what it has', async () => {
    const order = newOrder();
    const first = await gw.agent.call({ scope: 'shop/1', tool: 'order', args: { order_id: order } });
    const effect = first.headers['semel-effect'];
    const cancel = await gw.operator.post(`/v1/effects/${effect}/cancel`, {});
    assertProblem(cancel, 409, 'ILLEGAL_STATE');
    const absent = await gw.operator.post(`/v1/effects/${absentHandle(effect)}/cancel`, {});
    assertProblem(absent, 404, 'NOT_FOUND');
    assertProblem(await gw.operator.post('/v1/effects/ef_none/cancel', {}), 400, 'BAD_ARGUMENTS');
});

test('an expired token is nobody', async () => {
    const brief = await gw.token('brief', 'agent', 'shop', ['--expires', '3s']);
    await eventually('it has expired', async () => (await brief.get('/v1/effects')).status === 401);
});

await run();
