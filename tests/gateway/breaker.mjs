// A tool whose upstream fails is not called for a while: two gateways on one ledger count together, and
// every door says when to come back.

import process from 'node:process';
import { Gateway, assert, assertProblem, freePort, newPath, run as runSemel } from './harness.mjs';
import { newOrder } from './shop.mjs';
import { eventually, run, sleep, test } from './tap.mjs';
import { Upstream, reply } from './upstream.mjs';

const up = await Upstream.start();
const deadPort = await freePort();

// Each path fails until it is mended.
const mended = new Set();
up.habit('moody', (upstream, entry, response) => {
    if (mended.has(entry.path)) return reply(response, 200, { serial: upstream.did(entry) });
    reply(response, 500, { failed: true });
});
const asked = (path) => up.seen.filter((one) => one.path === path).length;

const at = (path, more = {}) => ({ url: `${up.url}${path}`, timeout: '5s', retry: { attempts: 1 }, ...more });
const tool = (upstream, breaker, more = {}) => ({
    class: 'write', barrier: 'off', on_in_doubt: ['hold'], upstream, breaker, ...more,
});
const long = { failures: 4, cooldown: '1h' };
const ledger = `sqlite:${newPath('shared.db')}`;
const contract = {
    version: 1,
    tools: {
        pay: tool(at('/moody/pay'), long),
        send: tool(at('/moody/send'), { failures: 2, cooldown: '1s', probes: 2 }),
        absent: tool({ ...at('/'), url: `http://127.0.0.1:${deadPort}/` }, long, { failures: 'replay' }),
        lost: tool({ ...at('/'), url: `http://127.0.0.1:${deadPort}/` }, long, { failures: 'retry' }),
        hangs: tool(at('/hang', { timeout: '200ms' }), long),
        crowded: tool(at('/refuse/429'), long),
        wrong: tool(at('/refuse/422'), { failures: 1, cooldown: '1h' }),
        own: { class: 'write', breaker: { failures: 2, cooldown: '1h' } },
        'proxy.api': { class: 'write', breaker: { failures: 2, cooldown: '1h' } },
    },
};
const config = { proxies: { api: { url: up.url } } };
const one = await Gateway.start({ contract, config, ledger });
const two = await Gateway.start({ contract, config, ledger });
const call = (gw, name, more = {}) =>
    gw.agent.call({ scope: 'shop/1', tool: name, args: { order_id: newOrder() }, ...more });

function assertOpen(answer, least, most) {
    const problem = assertProblem(answer, 503, 'CIRCUIT_OPEN', /is not called for now|finds out/);
    assert.equal(problem.retriable, true);
    assert.ok(problem.retry_after_ms >= least && problem.retry_after_ms <= most, answer.text);
    assert.equal(answer.headers['retry-after'], String(Math.ceil(problem.retry_after_ms / 1000)));
    assert.match(problem.corrective_action, /Make the same call again in \S+, and not before/);
    return problem;
}

// Calls until the circuit is open: how many reached the upstream.
async function callUntilOpen(gateways, name) {
    let calls = 0;
    for (; calls < 40; calls++) {
        const answer = await call(gateways[calls % gateways.length], name);
        if (answer.json?.code === 'CIRCUIT_OPEN') break;
    }
    return calls;
}

test('failures of two gateways add up, and within a second both refuse without asking the upstream', async () => {
    for (let n = 0; n < 4; n++) assert.notEqual((await call([one, two][n % 2], 'pay')).json.code, 'CIRCUIT_OPEN');
    const problem = assertOpen(await call(two, 'pay'), 3_000_000, 3_600_000);
    assert.equal(problem.message,
        `pay at ${up.url} is not called for now: its last 4 calls failed. Nothing has been done.`);
    await sleep(1000);
    const before = asked('/moody/pay');
    for (const gw of [one, two]) assertOpen(await call(gw, 'pay'), 3_000_000, 3_600_000);
    assert.equal(asked('/moody/pay'), before);
});

test('what was refused leaves nothing behind, and another tool there is called', async () => {
    const args = { order_id: newOrder() };
    const answer = await call(one, 'pay', { args });
    assert.equal(assertOpen(answer, 3_000_000, 3_600_000).effect, undefined);
    assert.equal(answer.headers['semel-effect'], undefined);
    assert.notEqual((await call(one, 'send')).json.code, 'CIRCUIT_OPEN');
});

test('when the upstream is mended, calls find out, and it is closed everywhere', async () => {
    const refuses = (gw) => eventually('it is open', async () => {
        const answer = await call(gw, 'send');
        return answer.json.code === 'CIRCUIT_OPEN' && answer;
    });
    for (const gw of [one, two]) await refuses(gw);
    await eventually('a probe finds that it still fails', async () => {
        const answer = await call(two, 'send');
        return answer.json.code !== 'CIRCUIT_OPEN';
    });
    const again = await refuses(two);
    assert.ok(again.json.retry_after_ms <= 1000, again.text);
    mended.add('/moody/send');
    for (const gw of [one, two])
        await eventually('it is called again', async () => (await call(gw, 'send')).status === 200);
    for (let n = 0; n < 6; n++) assert.equal((await call([one, two][n % 2], 'send')).status, 200);
});

for (const [name, why] of [['absent', 'cannot be reached'], ['lost', 'cannot be reached, and failures are retried'],
    ['hangs', 'does not answer in time'], ['crowded', 'answers 429']]) {
    test(`an upstream that ${why} opens it`, async () => {
        const calls = await callUntilOpen([one], name);
        assert.equal(calls, 4);
    });
}

test('what a model got wrong never opens it', async () => {
    for (let n = 0; n < 8; n++) assert.equal((await call(one, 'wrong')).status, 422);
    assert.equal(asked('/refuse/422'), 8);
});

test('an agent that executes its tools itself says what was the fault of the tool', async () => {
    const begin = () => one.agent.post('/v1/begin', {
        scope: 'shop/1', tool: 'own', args: { order_id: newOrder() },
    });
    const fail = async (more) => {
        const { claim } = (await begin()).json;
        assert.equal((await one.agent.post('/v1/commit', { claim, kind: 'failure', ...more })).status, 200);
    };
    for (let n = 0; n < 4; n++) await fail({ applied: 'no' });
    await fail({ applied: 'no', status: 502 });
    await fail({ applied: 'unknown' });
    assertOpen(await begin(), 3_000_000, 3_600_000);
});

test('the reverse proxy answers 503 with Retry-After, in a form that SDKs read', async () => {
    const send = () => one.agent.post('/proxy/api/moody/proxied', { order_id: newOrder() });
    for (let n = 0; n < 2; n++) assert.equal((await send()).json.code, 'IN_DOUBT');
    const answer = await send();
    assert.equal(answer.status, 503, answer.text);
    assert.match(answer.text, /CIRCUIT_OPEN/);
    assert.ok(Number(answer.headers['retry-after']) > 3000, answer.headers['retry-after']);
    assert.equal(asked('/moody/proxied'), 2);
});

test('the commands say it too', async () => {
    const env = { ...process.env, SEMEL_LEDGER: ledger, SEMEL_CONTRACT: one.contractFile };
    const begun = runSemel(['begin', '--tool', 'pay', '--scope', 'shop/1', '--args', '{"order_id":"cli"}', '--json'],
        { env });
    assert.equal(begun.status, 75, begun.stdout + begun.stderr);
    assert.equal(JSON.parse(begun.stdout).code, 'CIRCUIT_OPEN');
    assert.ok(JSON.parse(begun.stdout).retry_after_ms > 3_000_000);
    const listed = runSemel(['stop', '--list'], { env });
    assert.equal(listed.status, 0, listed.stderr);
    assert.match(listed.stdout, /circuit +pay .*4 calls failed; it is tried in/s);
});

test('it is listed with what is stopped, for those who are not bound to a scope', async () => {
    const open = (await two.admin.get('/v1/stops')).json.items.find((item) => item.tool === 'pay');
    assert.deepEqual([open.kind, open.upstream, open.failures, open.half_open], ['circuit', up.url, 4, false]);
    assert.ok(open.retry_after_ms > 3_000_000 && Date.parse(open.since) <= Date.now(), JSON.stringify(open));
    assert.deepEqual((await two.agent.get('/v1/stops')).json.items, []);
});

test('the trail tells when it was opened, tried and closed', async () => {
    const env = { ...process.env, SEMEL_LEDGER: ledger };
    const lines = runSemel(['audit', 'export'], { env });
    assert.equal(lines.status, 0, lines.stderr);
    const events = lines.stdout.trim().split('\n').map((line) => JSON.parse(line))
        .filter((event) => event.body.tool === 'send' && event.what !== 'posted');
    assert.ok(events.length > 0, lines.stdout.slice(0, 2000));
    const what = events.map((event) => event.what).join(' ');
    assert.match(what, /^failing opened half_opened (probing )*opened .*half_opened (probing )*closed/, what);
    assert.equal(events[0].body.upstream, up.url);
    const verified = runSemel(['audit', 'verify', '--json'], { env });
    assert.equal(verified.status, 0, verified.stdout);
});

await run();
