// POST /v1/begin, commit and renew: for agents that execute their tools themselves.

import { spawn } from 'node:child_process';
import { Raw, bytesOf } from './client.mjs';
import { Gateway, assert, assertProblem } from './harness.mjs';
import { newOrder, shop } from './shop.mjs';
import { eventually, later, run, sleep, test } from './tap.mjs';
import { Upstream } from './upstream.mjs';

const up = await Upstream.start();
const gw = await Gateway.start({ contract: shop(up), env: { SHOP_SECRET: 's' } });
const call = (order) => ({ scope: 'shop/1', tool: 'own', args: { order_id: order } });

async function begun(order, who = gw.agent) {
    const answer = await who.post('/v1/begin', call(order));
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.json.verdict, 'execute', answer.text);
    return answer.json;
}

test('begin says execute with a claim, commit settles it, begin replays it', async () => {
    const order = newOrder();
    const first = await begun(order);
    assert.match(first.effect, /^ef_/);
    assert.match(first.claim, /^cl_/);
    assert.match(first.idempotency_key, /^[A-Za-z0-9_-]{43}$/);
    assert.ok(first.lease_ms > 0);
    const value = { charge: 'ch_1', ü: [1, 2.5, null] };
    const committed = await gw.agent.post('/v1/commit', { claim: first.claim, kind: 'success', value });
    assert.equal(committed.status, 200, committed.text);
    assert.equal(committed.json.result, 'committed');
    assert.equal(committed.json.state, 'succeeded');
    const again = await gw.agent.post('/v1/begin', call(order));
    assert.equal(again.json.verdict, 'replay', again.text);
    assert.equal(again.json.effect, first.effect);
    assert.deepEqual(again.json.outcome.value, value);
    assert.equal(again.json.claim, undefined);
});

test('begin of what is under way says so, with when to come back', async () => {
    const order = newOrder();
    const first = await begun(order);
    const other = await gw.agent2.post('/v1/begin', call(order));
    assertProblem(other, 409, 'RETRY_IN_FLIGHT');
    assert.ok(other.headers['retry-after']);
    assert.equal(other.json.effect, first.effect);
    assert.doesNotMatch(other.text, /cl_/);
});

test('begin with wait_ms gets the end of what it joined', async () => {
    const order = newOrder();
    const first = await begun(order);
    const waiting = gw.agent2.post('/v1/begin', { ...call(order), wait_ms: 10_000 });
    await sleep(100);
    await gw.agent.post('/v1/commit', { claim: first.claim, kind: 'success', value: 'done' });
    const answer = await waiting;
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.json.verdict, 'replay');
    assert.equal(answer.json.outcome.value, 'done');
});

test('wait_ms is kept to', async () => {
    const order = newOrder();
    await begun(order);
    const began = Date.now();
    const answer = await gw.agent2.post('/v1/begin', { ...call(order), wait_ms: 300 });
    const took = Date.now() - began;
    assertProblem(answer, 409, 'RETRY_IN_FLIGHT');
    assert.ok(took >= 290 && took < 20_000, `${took} ms`);
});

test('a begin whose client has hung up claims nothing: the next one executes', async () => {
    const order = newOrder();
    const hog = spawn('sqlite3', [gw.ledger.slice('sqlite:'.length)], { stdio: ['pipe', 'pipe', 'inherit'] });
    later(() => hog.kill());
    hog.stdin.write('.timeout 60000\nBEGIN IMMEDIATE;\nSELECT 1;\n');
    await new Promise((resolve) => hog.stdout.once('data', resolve));
    const body = JSON.stringify(call(order));
    const head = {
        Authorization: `Bearer ${gw.texts.agent}`, 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body),
    };
    const before = gw.log.length;
    const raw = await Raw.connect(gw.port);
    raw.write(bytesOf('POST', '/v1/begin', head, body));
    raw.hangUp();
    await eventually('the gateway has seen that', () => /"status":499/.test(gw.log.slice(before)));
    hog.stdin.end('ROLLBACK;\n');
    await eventually('the next one executes', async () =>
        (await gw.agent2.post('/v1/begin', call(order))).json.verdict === 'execute', 30_000);
});

test('renew extends a lease; what is settled cannot be renewed', async () => {
    const { claim } = await begun(newOrder());
    const renewed = await gw.agent.post('/v1/renew', { claim, lease_ms: 900_000 });
    assert.equal(renewed.status, 200, renewed.text);
    assert.ok(renewed.json.lease_ms > 890_000 && renewed.json.lease_ms <= 900_000, renewed.text);
    await gw.agent.post('/v1/commit', { claim, kind: 'success' });
    const late = await gw.agent.post('/v1/renew', { claim });
    assertProblem(late, 403, 'BAD_CLAIM');
});

test('a claim under which nothing was done is given back, and the next one runs', async () => {
    const order = newOrder();
    const { claim } = await begun(order);
    const back = await gw.agent.post('/v1/release', { claim });
    assert.equal(back.status, 200, back.text);
    assert.equal(back.json.result, 'released');
    assertProblem(await gw.agent.post('/v1/release', { claim }), 403, 'BAD_CLAIM');
    const next = await begun(order);
    assert.notEqual(next.claim, claim);
    const done = await gw.agent.post('/v1/commit', { claim: next.claim, kind: 'success' });
    assert.equal(done.json.result, 'committed');
    assertProblem(await gw.agent.post('/v1/release', { claim: next.claim }), 403, 'BAD_CLAIM');
});

test('a failure that was not applied runs again; bytes go as base64', async () => {
    const order = newOrder();
    const first = await begun(order);
    await gw.agent.post('/v1/commit', { claim: first.claim, kind: 'failure', applied: 'no', value: 'x' });
    const second = await begun(order);
    assert.equal(second.effect, first.effect);
    assert.equal(second.attempt, 2);
    const bytes = Buffer.from([0, 255, 128, 7]);
    const value_base64 = bytes.toString('base64');
    const done = await gw.agent.post('/v1/commit', {
        claim: second.claim, kind: 'success', value_base64,
    });
    assert.equal(done.status, 200, done.text);
    const again = await gw.agent.post('/v1/begin', call(order));
    assert.equal(again.json.outcome.encoding, 'base64');
    assert.deepEqual(Buffer.from(again.json.outcome.value, 'base64'), bytes);
});

test('a partial outcome says what is left to do, and never runs again', async () => {
    const order = newOrder();
    const { claim } = await begun(order);
    const corrective_action = 'send the second parcel';
    const done = await gw.agent.post('/v1/commit', {
        claim, kind: 'partial', value: { sent: 1 }, corrective_action,
    });
    assert.equal(done.status, 200, done.text);
    const again = await gw.agent.post('/v1/begin', call(order));
    assert.match(again.text, /PARTIAL_SUCCESS/);
    assert.match(again.text, /second parcel/);
});

test('committing twice is harmless and does not change the outcome', async () => {
    const order = newOrder();
    const { claim } = await begun(order);
    await gw.agent.post('/v1/commit', { claim, kind: 'success', value: 1 });
    const twice = await gw.agent.post('/v1/commit', { claim, kind: 'success', value: 2 });
    assert.equal(twice.status, 200, twice.text);
    assert.equal(twice.json.result, 'late_evidence');
    const again = await gw.agent.post('/v1/begin', call(order));
    assert.equal(again.json.outcome.value, 1);
});

test('a forged, a foreign and a malformed claim are told apart by nobody', async () => {
    const order = newOrder();
    const { claim } = await begun(order);
    const last = claim.at(-1);
    const forged = claim.slice(0, -2) + (claim.at(-2) === 'A' ? 'B' : 'A') + last;
    const texts = new Set();
    for (const [who, what] of [
        [gw.agent, forged],
        [gw.agent, 'cl_nonsense'],
        [gw.stranger, claim],
        [gw.stranger, forged],
    ]) {
        for (const path of ['/v1/commit', '/v1/renew', '/v1/release']) {
            const more = path === '/v1/commit' ? { kind: 'success', value: 'forged' } : {};
            const answer = await who.post(path, { claim: what, ...more });
            assertProblem(answer, 403, 'BAD_CLAIM');
            texts.add(answer.json.message);
            assert.ok(!answer.text.includes(claim));
        }
    }
    assert.equal(texts.size, 1, [...texts].join(' / '));
    const done = await gw.agent.post('/v1/commit', { claim, kind: 'success', value: 'true' });
    assert.equal(done.json.result, 'committed', 'the real one still counts');
});

test('a claim outlives the gateway that gave it', async () => {
    const order = newOrder();
    const { claim } = await begun(order);
    const { code } = await gw.stop();
    assert.equal(code, 0);
    await gw.up();
    const still = await gw.agent.post('/v1/begin', call(order));
    assertProblem(still, 409, 'RETRY_IN_FLIGHT');
    const done = await gw.agent.post('/v1/commit', { claim, kind: 'success', value: 'late' });
    assert.equal(done.json.result, 'committed', done.text);
});

await run();
