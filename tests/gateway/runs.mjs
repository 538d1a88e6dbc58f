// Runs, the stop button and costs over HTTP: what is shown, who may press it, and what is refused.

import { Gateway, assert, assertProblem, run as semel } from './harness.mjs';
import { newOrder, shop } from './shop.mjs';
import { run, test } from './tap.mjs';
import { Upstream } from './upstream.mjs';

const up = await Upstream.start();
const contract = shop(up, {
    dear: {
        class: 'write', key: { fields: ['/order_id'] }, cost: 0.05,
        budget: [{ per: 'run', calls: 3, cost: 1 }, { per: 'agent', cost: 10 }],
        upstream: { url: `${up.url}/ok/dear`, timeout: '60s' },
    },
    shared: {
        class: 'write', key: { fields: ['/order_id'] },
        budget: ['agent', 'tenant', 'hour', 'day'].map((per) => ({ per, calls: 100 })),
        upstream: { url: `${up.url}/ok/shared`, timeout: '60s' },
    },
});
const gw = await Gateway.start({ contract, env: { SHOP_SECRET: 's' } });
const at = (scope) => `/v1/scopes/${encodeURIComponent(scope)}`;
const call = (scope, tool, order = newOrder()) => gw.agent.call({ scope, tool, args: { order_id: order } });
const show = async (scope, who = gw.agent) => {
    const answer = await who.get(at(scope));
    assert.equal(answer.status, 200, answer.text);
    return answer.json;
};
const stop = (who, body) => who.post('/v1/stop', body);
const resume = (who, body) => who.post('/v1/resume', body);

test('a run is shown with what it did, its budgets and its effects', async () => {
    const scope = 'shop/buyer/1';
    const order = newOrder();
    for (const one of [order, order, newOrder(), newOrder()]) assert.equal((await call(scope, 'dear', one)).status, 200);
    assert.equal((await call(scope, 'dear')).json.code, 'BUDGET_EXCEEDED');
    const shown = await show(scope);
    const { effects, executed, replays, refusals, in_doubt: doubts, pending, spent, reserved, state } = shown;
    assert.deepEqual(
        { effects, executed, replays, refusals, doubts, pending, spent, reserved, state },
        { effects: 3, executed: 3, replays: 1, refusals: 1, doubts: 0, pending: 0, spent: '0.15', reserved: '0', state: 'ok' });
    assert.deepEqual(shown.budgets, [
        { of: 'dear', per: 'run', calls: { cap: 3, spent: 3, reserved: 0 }, cost: { cap: '1', spent: '0.15', reserved: '0' } },
        { of: 'dear', per: 'agent', cost: { cap: '10', spent: '0.15', reserved: '0' } },
    ]);
    assert.equal(shown.items.length, 3);
    assert.deepEqual([shown.items[0].tool, shown.items[0].state, shown.items[0].cost], ['dear', 'succeeded', '0.05']);
    const { json } = await gw.agent.get('/v1/scopes?scope=shop/buyer');
    assert.deepEqual(json.items.map((item) => [item.scope, item.spent]), [[scope, '0.15']]);
});

test('a run that repeats itself is warned, looping, stopped, and reopened by an operator', async () => {
    const scope = 'shop/looper/1';
    const order = newOrder();
    const states = [];
    for (let n = 0; n < 10; n++) {
        await call(scope, 'charge', order);
        const { state } = await show(scope);
        if (states.at(-1) !== state) states.push(state);
    }
    assert.deepEqual(states, ['ok', 'warned', 'looping', 'stopped']);
    const shown = await show(scope);
    assert.deepEqual(shown.loop, { detector: 'repeat', period: 1, count: 8, tripped: true });
    assert.deepEqual(shown.stops.map((one) => [one.kind, one.name]), [['loop', scope]]);
    assert.equal((await call(scope, 'charge')).json.code, 'LOOP_DETECTED');
    assertProblem(await resume(gw.operator, { scope }), 404, 'NOT_FOUND', /reset/);
    assert.equal((await gw.agent.post(`${at(scope)}/reset`, { reason: 'me' })).status, 403);
    assert.equal((await gw.approver.post(`${at(scope)}/reset`, { reason: 'me' })).status, 403);
    assertProblem(await gw.strangerOperator.post(`${at(scope)}/reset`, { reason: 'me' }), 404, 'NOT_FOUND');
    assertProblem(await gw.operator.post(`${at(scope)}/reset`, {}), 400, 'BAD_ARGUMENTS', /reason/);
    const reset = await gw.operator.post(`${at(scope)}/reset`, { reason: 'the prompt is better now' });
    assert.deepEqual(reset.json, { scope, changed: true });
    assert.equal((await call(scope, 'charge')).status, 200);
    assert.equal((await show(scope)).state, 'ok');
});

test('a stopped scope refuses writes below it, and nothing else', async () => {
    const order = newOrder();
    assert.equal((await call('shop/a/1', 'charge', order)).status, 200);
    const body = { scope: 'shop/a', reason: 'it buys too much' };
    assert.deepEqual((await stop(gw.operator, body)).json, { kind: 'scope', name: 'shop/a', stopped: true, changed: true });
    assert.equal((await stop(gw.operator, body)).json.changed, false);
    const refused = assertProblem(await call('shop/a/1', 'charge'), 403, 'STOPPED', /it buys too much/);
    assert.equal(refused.retriable, false);
    assert.equal((await call('shop/ab/1', 'charge')).status, 200);
    assert.equal((await call('shop/a/1', 'charge', order)).headers['idempotent-replayed'], 'true');
    assert.equal((await call('shop/a/1', 'lookup')).status, 200);
    assert.equal((await show('shop/a/1')).state, 'stopped');
    const [listed] = (await gw.agent.get('/v1/stops')).json.items;
    assert.deepEqual([listed.kind, listed.name, listed.reason], ['scope', 'shop/a', 'it buys too much']);
    assert.match(listed.by, /^operator \(token /);
    assert.equal((await resume(gw.operator, { scope: 'shop/a', reason: 'it asked' })).json.changed, true);
    assertProblem(await resume(gw.operator, { scope: 'shop/a' }), 404, 'NOT_FOUND', /not stopped/);
    assert.equal((await call('shop/a/1', 'charge')).status, 200);
});

test('a token of a scope stops within it, never a tool or everything', async () => {
    for (const body of [{ scope: 'other' }, { scope: 'sho' }, { scope: 'shopping' }, { tool: 'charge' }, { all: true }]) {
        const about = { ...body, reason: 'mine' };
        assertProblem(await stop(gw.operator, about), 403, 'FORBIDDEN', /below \\"shop\\"/);
        assertProblem(await resume(gw.operator, about), 403, 'FORBIDDEN', /below \\"shop\\"/);
    }
    for (const who of [gw.agent, gw.approver])
        assertProblem(await stop(who, { scope: 'shop/1', reason: 'mine' }), 403, 'NOT_ALLOWED');
    assert.equal((await stop(gw.admin, { tool: 'char*', reason: 'the bank is down' })).status, 200);
    assertProblem(await call('shop/b/1', 'charge'), 403, 'STOPPED', /this tool.*the bank is down/);
    assert.equal((await call('shop/b/1', 'order')).status, 201);
    assert.equal((await resume(gw.admin, { tool: 'char*' })).status, 200);
});

test('a token of a scope does not resume what somebody stopped who is not bound to it', async () => {
    const body = { scope: 'shop/c', reason: 'the audit goes on' };
    assert.equal((await stop(gw.operator, { ...body, reason: 'mine' })).json.changed, true);
    assert.equal((await stop(gw.admin, body)).json.changed, true);
    assertProblem(await resume(gw.operator, { scope: 'shop/c' }), 403, 'FORBIDDEN', /not bound to \\"shop\\"/);
    assertProblem(await call('shop/c/1', 'charge'), 403, 'STOPPED', /the audit goes on/);
    assert.equal((await resume(gw.admin, { scope: 'shop/c' })).status, 200);
    assert.equal((await call('shop/c/1', 'charge')).status, 200);
});

test('what is others\' is indistinguishable from what is missing', async () => {
    await gw.stranger.post('/v1/begin', { scope: 'other/x/1', tool: 'own', args: { n: newOrder() } });
    await stop(gw.strangerOperator, { scope: 'other/x', reason: 'a secret reason' });
    assert.equal((await gw.stranger.get(at('other/x/1'))).status, 200);
    const theirs = await gw.agent.get(at('other/x/1'));
    const missing = await gw.agent.get(at('other/x/none'));
    assertProblem(theirs, 404, 'NOT_FOUND');
    assert.equal(theirs.text, missing.text);
    assert.equal(theirs.text, (await gw.agent.get(at('shop/x/none'))).text);
    for (const path of ['/v1/scopes', '/v1/spend?by=scope', '/v1/stops'])
        assert.ok(!(await gw.agent.get(path)).text.includes('other/'), path);
    for (const path of ['/v1/scopes?scope=other', '/v1/spend?scope=other/x/1'])
        assertProblem(await gw.agent.get(path), 403, 'FORBIDDEN');
    assert.ok((await gw.admin.get('/v1/scopes')).text.includes('other/x/1'));
    assert.ok((await gw.admin.get('/v1/stops')).text.includes('a secret reason'));
    await resume(gw.strangerOperator, { scope: 'other/x' });
});

test('budgets that a token shares with others are not shown to it', async () => {
    const one = await gw.token('one', 'agent', 'shop/one');
    for (const scope of ['shop/one/1', 'shop/two/1']) assert.equal((await call(scope, 'shared')).status, 200);
    const used = ({ budgets }) => budgets.map(({ per, calls }) => [per, calls.spent]);
    assert.deepEqual(used(await show('shop/one/1')), [['agent', 1], ['tenant', 2], ['hour', 2], ['day', 2]]);
    assert.deepEqual(used(await show('shop/one/1', one)), [['agent', 1]]);
});

test('a wrong body is refused in clear words', async () => {
    const rows = [
        [{ reason: 'x' }, /one of/],
        [{ scope: 'a', tool: 'b', reason: 'x' }, /one of/],
        [{ scope: 'a' }, /reason/],
        [{ scope: 'a', reason: '' }, /reason.*empty/],
        [{ all: false, reason: 'x' }, /can only be true/],
        [{ all: 'yes', reason: 'x' }, /can only be true/],
        [{ scope: 7, reason: 'x' }, /scope/],
        [{ scope: 'a//b', reason: 'x' }, /empty segment/],
        [{ scope: '', reason: 'x' }, /empty/],
        [{ scopes: 'a', reason: 'x' }, /did you mean/],
        [{ scope: 'a', reason: 'x'.repeat(5000) }, /longer than/],
        ['[]', /object/],
    ];
    for (const [body, words] of rows) assertProblem(await stop(gw.admin, body), 400, 'BAD_ARGUMENTS', words);
    assertProblem(await resume(gw.admin, { scope: 'a', all: true }), 400, 'BAD_ARGUMENTS', /one of/);
    for (const query of ['since=yesterday', 'limit=0', 'limit=1001', 'cursor=7', 'cursor=a:b', 'scopes=a'])
        assertProblem(await gw.admin.get(`/v1/scopes?${query}`), 400, 'BAD_ARGUMENTS');
    assertProblem(await gw.admin.get(at('a//b')), 400, 'BAD_ARGUMENTS', /empty segment/);
    assertProblem(await gw.admin.get('/v1/spend?by=hour'), 400, 'BAD_ARGUMENTS', /tool, scope, agent, day/);
    assert.deepEqual((await gw.admin.get('/v1/stops')).json.items, []);
});

test('pages of runs have every run once', async () => {
    for (let n = 0; n < 7; n++) await call(`shop/paged/${n}`, 'charge');
    const seen = [];
    for (let cursor = ''; cursor !== undefined;) {
        const { json } = await gw.agent.get(`/v1/scopes?scope=shop/paged&limit=3&cursor=${encodeURIComponent(cursor)}`);
        assert.ok(json.items.length <= 3);
        seen.push(...json.items.map((item) => item.scope));
        cursor = json.cursor;
    }
    assert.deepEqual(seen.sort(), Array.from({ length: 7 }, (_, n) => `shop/paged/${n}`));
});

test('costs are attributed, with what duplicates would have cost', async () => {
    const order = newOrder();
    for (let n = 0; n < 3; n++) await call('shop/payer/1', 'dear', order);
    await call('shop/payer/2', 'dear');
    const spend = async (by) => (await gw.agent.get(`/v1/spend?scope=shop/payer&by=${by}`)).json;
    const pick = ({ name, executed, spent, duplicates, saved }) => [name, executed, spent, duplicates, saved];
    assert.deepEqual((await spend('tool')).items.map(pick), [['dear', 2, '0.1', 2, '0.1']]);
    assert.deepEqual((await spend('agent')).items.map(pick), [['shop/payer', 2, '0.1', 2, '0.1']]);
    assert.deepEqual((await spend('scope')).items.map(pick), [
        ['shop/payer/1', 1, '0.05', 2, '0.1'], ['shop/payer/2', 1, '0.05', 0, '0'],
    ]);
    const days = await spend('day');
    assert.match(days.items[0].name, /^\d{4}-\d\d-\d\d$/);
    assert.equal(days.total.spent, '0.1');
});

test('the command line says the same, and the trail has every decision with its actor and reason', async () => {
    const listed = JSON.parse(semel(['scope', 'list', 'shop/payer', '--json', '--ledger', gw.ledger]).stdout);
    const { json } = await gw.agent.get('/v1/scopes?scope=shop/payer');
    assert.deepEqual(listed.items, json.items);
    const tail = semel(['audit', 'tail', '-n', '1000', '--ledger', gw.ledger]);
    const line = (what, name) => tail.stdout.split('\n').find((one) => one.includes(what) && one.includes(name)) ?? '';
    assert.match(line('stopped', 'shop/a,'), /operator \(token \w+\) .*reason it buys too much/);
    assert.match(line('resumed', 'shop/a,'), /operator \(token \w+\) .*reason it asked/);
    assert.match(line('reopened', 'kind loop'), /operator \(token \w+\) .*reason the prompt is better now/);
});

await run();
