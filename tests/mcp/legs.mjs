// Calls in several legs: the server answers with a question (`input_required`), and the client makes the
// call again with `inputResponses` and the server's `requestState`. All legs are one call. It is done once,
// whichever leg was lost, and from whichever leg the client begins again.

import {
    Place, assert, assertFresh, assertReplayed, assertVerdict, effectOf, textOf,
} from './harness.mjs';
import { Site } from './http_harness.mjs';
import { WebServer } from './http_server.mjs';
import { eventually, run, test } from '../gateway/tap.mjs';

const tools = {
    append: { class: 'write' },
    put: { class: 'write', on_repeat: 'run', repeat_after: '1ms' },
    keyed: { class: 'write', idempotency: { meta: 'example.org/key', window: '24h' }, on_in_doubt: ['resend', 'hold'] },
    wipe: { class: 'irreversible', key: { fields: ['/what'] }, window: 'forever', barrier: false },
};
const approved = { tools: { append: { class: 'write', approval: { expires: '1h' } } } };

const place = new Place({ contract: { defaults: { loop: 'off' }, tools } });
const site = await Site.start({ contract: { defaults: { loop: 'off' }, tools } });
const web = await WebServer.start();
const webSite = await Site.start({ contract: { defaults: { loop: 'off' }, tools }, servers: { web: { url: web.url } } });

// The ways to a server. `die` is what the server does that dies, `giveUp` what a client does that does not
// wait any longer.
const cancels = (client, answer) => client.cancel(answer.id);
const hangsUp = (client, answer) => answer.abort();
const doors = {
    'over stdio': { at: place, open: () => place.open({ modern: true }), die: 'exit:3', giveUp: cancels },
    'over HTTP, to a command': { at: site.place, open: () => site.open({ modern: true }), die: 'exit:3', giveUp: hangsUp },
    'over HTTP, to a url': {
        at: web, open: () => webSite.open({ name: 'web', modern: true }), die: 'hang', giveUp: hangsUp,
    },
};

function assertAsked(answer) {
    assert.equal(answer.result?.resultType, 'input_required', answer.line);
    assert.match(answer.result.requestState, /^state \d+ of /);
    return answer.result;
}

// What the client brings to the next leg: the server's state, and what its user said.
const said = ({ requestState }, name = 'x') => ({
    requestState, inputResponses: { which: { action: 'accept', content: { name } } },
});

// The first leg, and what answers it.
async function ask(client, tool, args, more = {}) {
    return { ...said(assertAsked(await client.call(tool, args, more))), ...more };
}

// A call that waits for another one: its answer is to come, and it is known to wait.
async function join(client, tool, args, more = {}) {
    const progressToken = `join-${args.what}`;
    const answer = client.call(tool, args, { ...more, _meta: { progressToken } });
    await eventually('it waits', () => client.progress(progressToken).some((one) => /the same call/.test(one.params.message)));
    return { answer };
}

for (const [door, { at, open, die, giveUp }] of Object.entries(doors)) {
    for (const tool of door.endsWith('url') ? ['append'] : ['append', 'wipe']) {
        test(`a client gives up in the last leg and begins again: one effect (${tool}, ${door})`, async () => {
            const client = await open();
            const what = `late-${tool}`;
            const args = { what, script: `input mark:${what} effect gate:${what}-go answer` };
            const more = await ask(client, tool, args);
            const lost = client.call(tool, args, more);
            lost.catch(() => {});
            await at.passed(what);
            giveUp(client, lost);
            const retry = await join(await open(), tool, args);
            at.mark(`${what}-go`);
            assertReplayed(await retry.answer, `${what}: 1`);
            // The last leg again: with its own state, with another answer of the user, with another state.
            for (const again of [more, said(more, 'y'), said({ requestState: 'state 99 of it' })])
                assertReplayed(await client.call(tool, args, again), `${what}: 1`);
            assertReplayed(await client.call(tool, args), `${what}: 1`);
            assert.equal(at.effects(what), 1);
        });

        test(`the server dies in the last leg: every leg is in doubt (${tool}, ${door})`, async () => {
            const client = await open();
            const args = { what: `dies-${tool}`, script: `input effect ${die}` };
            const more = await ask(client, tool, args);
            const { effect } = assertVerdict(await client.call(tool, args, more), 'IN_DOUBT');
            for (const again of [{}, more, said(more, 'y'), said({ requestState: 'state 99 of it' })])
                assert.equal(assertVerdict(await client.call(tool, args, again), 'IN_DOUBT').effect, effect);
            assert.equal(at.effects(args.what), 1);
        });
    }

    test(`who is in another leg waits for the last one, and gets its end (${door})`, async () => {
        const [one, two] = [await open(), await open()];
        const args = { what: 'later', script: 'input mark:later effect gate:later-go answer' };
        const more = await ask(one, 'append', args);
        const last = one.call('append', args, more);
        await at.passed('later');
        const first = await join(two, 'append', args);
        at.mark('later-go');
        assertFresh(await last, 'later: 1');
        assertReplayed(await first.answer, 'later: 1');
        assert.equal(at.effects('later'), 1);
    });

    test(`a last leg that waits for somebody's first one runs when that is asked for input (${door})`, async () => {
        const [one, two] = [await open(), await open()];
        const args = { what: 'early', script: 'mark:early gate:early-go input effect answer' };
        const first = one.call('append', args);
        await at.passed('early');
        const last = await join(two, 'append', args, said({ requestState: 'state 0 of early' }));
        at.mark('early-go');
        const more = said(assertAsked(await first));
        assertFresh(await last.answer, 'early: 1');
        assertReplayed(await one.call('append', args, more), 'early: 1');
        assert.equal(at.effects('early'), 1);
    });
}

test('nothing is recorded of a leg in which the server asks', async () => {
    const client = await place.open({ modern: true });
    const args = { what: 'asks', script: 'input effect answer' };
    const states = [];
    for (let i = 0; i < 3; i++) states.push((await ask(client, 'append', args)).requestState);
    assert.equal(new Set(states).size, 3, 'each is asked for anew');
    assert.equal(place.effects('asks'), 0);
    const done = await client.call('append', args, said({ requestState: states[0] }));
    assertFresh(done, 'asks: 1');
    assert.match(textOf(done), /"name":"x"/, 'the answer has reached the server');
    await client.close();
});

test('a last leg that fails may be tried again, from either leg', async () => {
    const client = await place.open({ modern: true });
    const args = { what: 'fails', script: 'fail input answer | fail input answer | input effect answer' };
    const more = await ask(client, 'append', args);
    assert.equal((await client.call('append', args, more)).result.isError, true);
    const again = await ask(client, 'append', args);
    assertFresh(await client.call('append', args, again), 'fails: 1');
    assertReplayed(await client.call('append', args), 'fails: 1');
    await client.close();
});

test('a last leg that becomes a task: whoever begins again gets the same handle', async () => {
    const client = await place.open({ modern: true });
    const args = { what: 'task', script: 'input effect task' };
    const more = await ask(client, 'append', args);
    for (const again of [more, {}, said(more, 'y')]) {
        const { result } = await client.call('append', args, again);
        assert.equal(result.taskId, 'task-task');
        assert.equal(result.resultType, 'task');
    }
    assert.equal(place.effects('task'), 1);
    await client.close();
});

test("a step and a caller's key name the call in all its legs", async () => {
    const client = await place.open({ modern: true });
    const names = { step: { _meta: { 'semel/step': '7' } }, key: { idempotencyKey: 'k7' } };
    for (const [how, name] of Object.entries(names)) {
        const args = { what: `named-${how}`, script: 'input effect answer' };
        const more = await ask(client, 'append', args, name);
        assertFresh(await client.call('append', args, more), `${args.what}: 1`);
        const again = await client.call('append', args, name);
        assertReplayed(again, `${args.what}: 1`);
        if (how === 'step') assert.equal(place.show(effectOf(again)).step, '7');
    }
    await client.close();
});

test('in the era of sessions there are no legs: whatever a result calls itself, it is recorded', async () => {
    const client = await place.open();
    const args = { what: 'odd', script: 'effect extra:,"resultType":"input_required"' };
    assertFresh(await client.call('append', args));
    assertReplayed(await client.call('append', args));
    assert.equal(place.effects('odd'), 1);
    await client.close();
});

test('a last leg in doubt that may be sent again: the server is asked again, and does it once', async () => {
    const client = await place.open({ modern: true });
    const args = { what: 'resent', script: 'input once answer | input once exit:3 | input once answer' };
    const more = await ask(client, 'keyed', args);
    assertVerdict(await client.call('keyed', args, more), 'UPSTREAM_TIMEOUT');
    const again = await ask(client, 'keyed', args);
    assertFresh(await client.call('keyed', args, again), 'resent: 1');
    for (const later of [{}, more, again]) assertReplayed(await client.call('keyed', args, later), 'resent: 1');
    assert.equal(place.effects('resent'), 1);
    await client.close();
});

// ---- deliberate repeats

test('the answer to a last leg does not show that the next call is meant: its client may have given up', async () => {
    const client = await place.open({ modern: true });
    const args = { what: 'meant', script: 'input effect answer' };
    const more = await ask(client, 'put', args);
    assertFresh(await client.call('put', args, more), 'meant: 1');
    assertReplayed(await client.call('put', args), 'meant: 1');
    // That answer came at once to a whole call, so the next one is meant; and so are its legs.
    await eventually('it runs again', async () => {
        const answer = await client.call('put', args);
        return answer.result.resultType === 'input_required' && answer;
    });
    assertFresh(await client.call('put', args, more), 'meant: 2');
    await client.close();
});

test('who says what is repeated means it in all legs, and once', async () => {
    const client = await site.open({ modern: true });
    const args = { what: 'after', script: 'input effect answer' };
    assertFresh(await client.call('put', args, await ask(client, 'put', args)), 'after: 1');
    const after = effectOf(await client.call('put', args));
    const _meta = { 'semel/after': after };
    const more = await ask(client, 'put', args, { _meta });
    assertFresh(await client.call('put', args, more), 'after: 2');
    for (const again of [more, { _meta }, {}]) assertReplayed(await client.call('put', args, again), 'after: 2');
});

// ---- approvals

test('an approval is for the call: its legs need no other, and other arguments do', async () => {
    const where = new Place({ contract: approved });
    const client = await where.open({ modern: true });
    const args = { what: 'allowed', amount: 1, script: 'input effect answer' };
    const { request } = assertVerdict(await client.call('append', args), 'AWAITING_APPROVAL');
    where.json('approve', request);
    const more = await ask(client, 'append', args);
    assertVerdict(await client.call('append', { ...args, amount: 2 }, more), 'AWAITING_APPROVAL');
    assertFresh(await client.call('append', args, more), 'allowed: 1');
    for (const again of [more, {}]) assertReplayed(await client.call('append', args, again), 'allowed: 1');
    assert.equal(where.effects('allowed'), 1);
    await client.close();
});

test('a leg that nobody has approved is not sent', async () => {
    const where = new Place({ contract: approved });
    const client = await where.open({ modern: true });
    const args = { what: 'skipped', script: 'input effect answer' };
    const { request } = assertVerdict(await client.call('append', args, said({ requestState: 'made up' })), 'AWAITING_APPROVAL');
    assert.deepEqual(where.received('tools/call'), []);
    where.json('deny', request, '--reason', 'no');
    assertVerdict(await client.call('append', args), 'DENIED');
    await client.close();
});

await run();
