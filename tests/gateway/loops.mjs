// A run that repeats itself: warned, blocked and stopped, at every door of the gateway. Loop detection is
// on by default.

import { Gateway, assert, assertProblem } from './harness.mjs';
import { newOrder, shop } from './shop.mjs';
import { run, test } from './tap.mjs';
import { Upstream, reply } from './upstream.mjs';

const up = await Upstream.start();
const large = 'x'.repeat(200_000);
let percent = 0;
up.habit('changing', (upstream, entry, response) => reply(response, 200, { percent: ++percent }));
up.habit('same', (upstream, entry, response) => reply(response, 200, { state: 'pending' }));
up.habit('large', (upstream, entry, response) => {
    upstream.did(entry);
    reply(response, 200, { large });
});
up.habit('bytes', (upstream, entry, response) => {
    upstream.did(entry);
    response.writeHead(200, { 'content-type': 'application/octet-stream' }).end(Buffer.from([0xff, 0, 0xfe]));
});

const at = (path, method = 'POST') => ({ url: `${up.url}${path}`, method, retry: { attempts: 1 } });
const gw = await Gateway.start({
    contract: { ...shop(up, {
        large: { class: 'write', upstream: at('/large/1') },
        bytes: { class: 'write', upstream: at('/bytes/1') },
        fails: { class: 'write', upstream: at('/refuse/402') },
        pending: { class: 'read', upstream: at('/same/1', 'GET') },
        percent: { class: 'read', upstream: at('/changing/1', 'GET') },
        polled: { class: 'read', loop: { poll: true }, upstream: at('/same/1', 'GET') },
        strict: { class: 'read', loop: { block: 4 }, upstream: at('/same/1', 'GET') },
        watched: { class: 'write', loop: { mode: 'observe' }, upstream: at('/ok/watched') },
        'proxy.api': { class: 'write' },
    }), unlisted: 'write' },
    env: { SHOP_SECRET: 's' },
    config: { proxies: { api: { url: up.url }, free: { url: up.url }, paid: { url: up.url, preset: 'stripe' } }, origins: ['https://console.example'] },
});

const advice = 'Use the result you have, change the arguments, or stop.';
const stoppedAdvice = 'Stop. Tell the user what you tried. A person can reopen the run.';
const returned = (times) => `The same call returned the same result ${times} times. ${advice}`;

// A scope of its own for each test: a run that is stopped stays so.
let runs = 0;
const newRun = () => `shop/loops-${++runs}`;

function assertLoop(answer, detector, period, count) {
    const problem = assertProblem(answer, 429, 'LOOP_DETECTED');
    assert.deepEqual([problem.detector, problem.period, problem.count], [detector, period, count], answer.text);
    assert.equal(problem.retriable, false);
    assert.equal(answer.headers['retry-after'], undefined, 'whoever waits and repeats it makes it worse');
    assert.equal(answer.headers['semel-warning'], undefined, 'the problem says it');
    return problem;
}

test('a repeated call is warned of, then blocked with its outcome, then its run is stopped', async () => {
    const order = newOrder();
    const scope = newRun();
    const body = { scope, tool: 'charge', args: { order_id: order, amount: 10 } };
    const first = await gw.agent.call(body);
    assert.equal(first.status, 200, first.text);
    for (let count = 2; count <= 4; count++) {
        const again = await gw.agent.call(body);
        assert.equal(again.status, 200, again.text);
        assert.deepEqual(again.body, first.body);
        assert.equal(again.headers['semel-warning'], count < 3 ? undefined : returned(count));
    }
    for (let count = 5; count <= 8; count++) {
        const problem = assertLoop(await gw.agent.call(body), 'repeat', 1, count);
        assert.equal(problem.corrective_action, count < 8 ? advice : stoppedAdvice);
        assert.equal(problem.outcome.kind, 'success');
        assert.equal(problem.outcome.encoding, 'json');
        assert.deepEqual(problem.outcome.value, first.json, 'nothing is lost');
        assert.equal(problem.outcome.status, 200);
        assert.equal(problem.effect, first.headers['semel-effect']);
    }
    const other = { ...body, args: { order_id: newOrder(), amount: 10 } };
    const stopped = assertLoop(await gw.agent.call(other), 'repeat', 1, 8);
    assert.match(stopped.message, /until a person reopens it/);
    assert.equal(stopped.outcome, undefined);
    assert.equal((await gw.agent.call({ ...other, scope: newRun() })).status, 200);
    assert.equal(up.times(order), 1);
});

test('a page of a listed origin may read the warning', async () => {
    const answer = await gw.agent.get('/v1/tools', { headers: { origin: 'https://console.example' } });
    assert.match(answer.headers['access-control-expose-headers'], /Semel-Warning/);
});

test('an outcome that is large, or is not JSON, is in the refusal too', async () => {
    for (const tool of ['large', 'bytes']) {
        const body = { scope: newRun(), tool, args: { order_id: newOrder() } };
        const first = await gw.agent.call(body);
        for (let count = 2; count <= 4; count++) await gw.agent.call(body);
        const { outcome } = assertLoop(await gw.agent.call(body), 'repeat', 1, 5);
        if (tool === 'large') assert.equal(outcome.value.large, large);
        else assert.deepEqual([outcome.encoding, outcome.value], ['base64', first.body.toString('base64')]);
    }
});

test('a call that has just run is warned of in its own answer', async () => {
    const body = { scope: newRun(), tool: 'fails', args: { order_id: newOrder() } };
    for (let count = 1; count <= 4; count++) {
        const answer = await gw.agent.call(body);
        assert.equal(answer.status, 402, answer.text);
        assert.equal(answer.headers['idempotent-replayed'], undefined, 'it ran');
        assert.equal(answer.headers['semel-warning'], count < 3 ? undefined : returned(count));
    }
    const problem = assertLoop(await gw.agent.call(body), 'repeat', 1, 5);
    assert.match(problem.message, /returned the same result 4 times/);
    assert.deepEqual([problem.outcome.kind, problem.outcome.status], ['failure', 402]);
    assert.equal(up.asked(body.args.order_id).length, 4, 'the fifth was not sent');
});

test('calls in turn are a cycle', async () => {
    const scope = newRun();
    const bodies = [newOrder(), newOrder()].map((order_id) => ({ scope, tool: 'order', args: { order_id } }));
    for (let count = 1; count <= 4; count++)
        for (const body of bodies) assert.equal((await gw.agent.call(body)).status, 201);
    // The fifth round has only begun with this one, and the second order was new after the first.
    assert.equal((await gw.agent.call(bodies[0])).status, 201);
    const problem = assertLoop(await gw.agent.call(bodies[1]), 'cycle', 2, 5);
    assert.equal(problem.outcome.status, 201);
});

test('begin and commit say it as well', async () => {
    const body = { scope: newRun(), tool: 'own', args: { order_id: newOrder() } };
    const failure = { kind: 'failure', applied: 'no', value: 'no such user' };
    for (let count = 1; count <= 4; count++) {
        const begun = await gw.agent.post('/v1/begin', body);
        assert.equal(begun.json.verdict, 'execute', begun.text);
        const ended = await gw.agent.post('/v1/commit', { claim: begun.json.claim, ...failure });
        assert.equal(ended.status, 200, ended.text);
        const warning = count < 3 ? undefined : returned(count);
        assert.equal(ended.headers['semel-warning'], warning);
        assert.equal(ended.json.warning, warning);
        assert.equal(ended.json.count, count < 3 ? undefined : count);
    }
    const problem = assertLoop(await gw.agent.post('/v1/begin', body), 'repeat', 1, 5);
    assert.deepEqual([problem.outcome.kind, problem.outcome.value], ['failure', 'no such user']);
});

test('a read is warned of if it returns the same, and never blocked', async () => {
    const rows = [['pending', true], ['percent', false], ['polled', false]];
    for (const [tool, warns] of rows) {
        const scope = newRun();
        for (let count = 1; count <= 12; count++) {
            const answer = await gw.agent.call({ scope, tool, args: {} });
            assert.equal(answer.status, 200, answer.text);
            const expected = warns && count >= 3 ? returned(count) : undefined;
            assert.equal(answer.headers['semel-warning'], expected, `${tool} ${count}`);
        }
    }
});

test('a read whose contract blocks is blocked', async () => {
    const body = { scope: newRun(), tool: 'strict', args: {} };
    for (let count = 1; count <= 3; count++) assert.equal((await gw.agent.call(body)).status, 200);
    assertLoop(await gw.agent.call(body), 'repeat', 1, 4);
});

test('observing only records', async () => {
    const body = { scope: newRun(), tool: 'watched', args: { order_id: newOrder() } };
    for (let count = 1; count <= 12; count++) {
        const answer = await gw.agent.call(body);
        assert.equal(answer.status, 200, answer.text);
        assert.equal(answer.headers['semel-warning'], undefined);
    }
});

test('whoever asks for what is under way, again and again, repeats nothing', async () => {
    const body = { scope: newRun(), tool: 'own', args: { order_id: newOrder() } };
    const begun = await gw.agent.post('/v1/begin', body);
    for (let n = 0; n < 12; n++) assertProblem(await gw.agent.post('/v1/begin', body), 409, 'RETRY_IN_FLIGHT');
    await gw.agent.post('/v1/commit', { claim: begun.json.claim, kind: 'success', value: 1 });
    const again = await gw.agent.post('/v1/begin', body);
    assert.deepEqual([again.json.verdict, again.headers['semel-warning']], ['replay', undefined], again.text);

    const asks = { scope: newRun(), tool: 'own.asks', args: { order_id: newOrder() } };
    for (let n = 0; n < 12; n++) assertProblem(await gw.agent.post('/v1/begin', asks), 202, 'AWAITING_APPROVAL');
});

test('behind the reverse proxy: the same, in a form that its clients read', async () => {
    const headers = { 'semel-scope': newRun() };
    const body = { order_id: newOrder() };
    const post = () => gw.agent.post('/proxy/api/ok/charges', body, { headers });
    const first = await post();
    assert.equal(first.status, 200, first.text);
    for (let count = 2; count <= 4; count++) {
        const again = await post();
        assert.deepEqual(again.body, first.body);
        assert.equal(again.headers['semel-warning'], count < 3 ? undefined : returned(count));
    }
    const answer = await post();
    const problem = assertLoop(answer, 'repeat', 1, 5);
    assert.deepEqual(problem.outcome.value, first.json);
    assert.equal(problem.error.code, 'LOOP_DETECTED');
    assert.equal(problem.error.message, `The same call returned the same result 5 times. ${advice}`);
    // SDKs that send a 429 again ask these.
    assert.equal(answer.headers['x-should-retry'], 'false');
    assert.equal(answer.headers['stripe-should-retry'], 'false');
    assert.equal(up.times(body.order_id), 1);
});

for (const name of ['free', 'paid']) {
    test(`behind a proxy that ${name === 'free' ? 'no contract lists' : 'has a preset'} a repeat is only warned of`, async () => {
        const headers = { 'semel-scope': newRun() };
        const body = { order_id: newOrder() };
        for (let count = 1; count <= 12; count++) {
            const answer = await gw.agent.post(`/proxy/${name}/ok/charges`, body, { headers });
            assert.equal(answer.status, 200, answer.text);
            assert.equal(answer.headers['semel-warning'], count < 3 ? undefined : returned(count));
        }
        assert.equal(up.times(body.order_id), 1);
    });
}

await run();
