// What calls cost: reported by who commits, or said by an upstream's answer; and limits of destinations.

import { Gateway, assert, assertProblem } from './harness.mjs';
import { run, test } from './tap.mjs';
import { Upstream } from './upstream.mjs';

const up = await Upstream.start();
let said = {};
up.habit('priced', (_, entry, response) => {
    response.setHeader('Content-Type', 'application/json');
    response.end(JSON.stringify(said));
});
const upstream = (path) => ({
    url: `${up.url}${path}`, retry: { attempts: 1 }, cost: '/usage/cost', tokens: '/usage/total_tokens',
});
const budget = { per: 'run', cost: 1, tokens: 100, soft: 'off' };
const gw = await Gateway.start({
    contract: {
        version: 1,
        tools: {
            own: { class: 'write', cost: 0.5, tokens: 50, budget },
            model: { class: 'write', cost: 0.5, tokens: 50, budget, upstream: upstream('/priced/model') },
            mail: { class: 'write', limit: { per: '/to', calls: 2, window: '1h' }, upstream: upstream('/ok/mail') },
            'proxy.llm': { class: 'write', cost: 0.5, budget },
        },
    },
    config: { proxies: { llm: { url: `${up.url}/priced`, cost: '/usage/cost', tokens: '/usage/total_tokens' } } },
});

let number = 0;
const begin = (scope, tool = 'own') => gw.agent.post('/v1/begin', { scope, tool, args: { n: number++ } });
const commit = async (begun, more) => gw.agent.post('/v1/commit', { claim: begun.json.claim, kind: 'success', ...more });
const costs = async (effect) => (await gw.effect(effect)).events.map(({ body }) => [body.cost, body.tokens, body.ignored]);

test('a commit reports what it really cost, as a number or as a text', async () => {
    for (const [scope, cost] of [['shop/a', 0.1], ['shop/b', '0.1'], ['shop/c', '0.100000000']]) {
        const first = await begin(scope);
        const done = await commit(first, { cost, tokens: 0 });
        assert.equal(done.status, 200, done.text);
        assert.deepEqual(await costs(first.json.effect), [['0.5', 50, undefined], ['0.1', undefined, undefined]]);
        assert.equal((await begin(scope)).json.verdict, 'execute', '0.6 are reserved');
        assertProblem(await begin(scope), 429, 'BUDGET_EXCEEDED');
    }
});

test('the digits of a cost are read as they stand', async () => {
    const first = await begin('shop/digits');
    const body = `{"claim":${JSON.stringify(first.json.claim)},"kind":"success","cost":0.000000001}`;
    const done = await gw.agent.post('/v1/commit', body, { headers: { 'Content-Type': 'application/json' } });
    assert.equal(done.status, 200, done.text);
    assert.equal((await costs(first.json.effect))[1][0], '0.000000001');
});

test('a cost that is not an amount is refused, and the claim stays', async () => {
    const first = await begin('shop/wrong');
    for (const more of [{ cost: 'cheap' }, { cost: -1 }, { cost: true }, { cost: '0.0000000001' }, { cost: null },
        { tokens: -1 }, { tokens: 1.5 }, { tokens: '7' }]) {
        const answer = await commit(first, more);
        assertProblem(answer, 400, 'BAD_ARGUMENTS');
        assert.match(answer.json.message, /"(cost|tokens)" must be/, answer.text);
    }
    assert.equal((await commit(first, { cost: 0.5, tokens: 7 })).status, 200);
});

const model = (scope) => gw.agent.call({ scope, tool: 'model', args: { n: number++ } });

test('an upstream says in its answer what a call cost', async () => {
    said = { usage: { cost: '0.25', total_tokens: 40 } };
    const first = await model('shop/told');
    assert.equal(first.status, 200, first.text);
    assert.deepEqual(await costs(first.headers['semel-effect']), [['0.5', 50, undefined], ['0.25', 40, undefined]]);
    said = { usage: { cost: 0.5, total_tokens: 10 } };
    assert.equal((await model('shop/told')).status, 200);
    assertProblem(await model('shop/told'), 429, 'BUDGET_EXCEEDED');
});

test('an upstream that says nothing, or nonsense, is charged as declared', async () => {
    const expected = [
        [{}, undefined], [{ usage: null }, undefined], [{ usage: { cost: 'a lot' } }, 'cost'],
        [{ usage: { cost: {}, total_tokens: -3 } }, 'cost, tokens'],
    ];
    for (const [index, [answer, ignored]] of expected.entries()) {
        said = answer;
        const first = await model(`shop/nonsense/${index}`);
        assert.equal(first.status, 200, first.text);
        assert.deepEqual((await costs(first.headers['semel-effect']))[1], ['0.5', 50, ignored]);
    }
});

test('what is behind the reverse proxy says it, too', async () => {
    said = { usage: { cost: 0.125, total_tokens: 1 } };
    const headers = { 'Semel-Scope': 'shop/proxy' };
    const answer = await gw.agent.post('/proxy/llm/chat', { q: 1 }, { headers });
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual((await costs(answer.headers['semel-effect']))[1], ['0.125', 1, undefined]);
});

test('a destination is acted on so often, whatever the run', async () => {
    const mail = (scope, to) => gw.agent.call({ scope, tool: 'mail', args: { to, n: number++ } });
    assert.equal((await mail('shop/1', 'ann@example.com')).status, 200);
    assert.equal((await mail('shop/2', 'ann@example.com')).status, 200);
    const third = await mail('shop/3', 'ann@example.com');
    assertProblem(third, 429, 'BUDGET_EXCEEDED');
    assert.match(third.json.message, /^2 calls with the same \/to were made within 1h/);
    assert.match(third.json.corrective_action, /^Do not make a call with this \/to again before 2/);
    assert.equal(third.json.retriable, false);
    assert.ok(third.json.retry_after_ms > 3_000_000 && third.json.retry_after_ms <= 3_600_000, third.text);
    assert.ok(Number(third.headers['retry-after']) > 3000);
    assert.doesNotMatch(third.text, /ann@/);
    assert.equal((await mail('shop/3', 'bob@example.com')).status, 200);
    const nobody = await gw.agent.call({ scope: 'shop/4', tool: 'mail', args: { n: 1 } });
    assertProblem(nobody, 400, 'BAD_ARGUMENTS');
});

run();
