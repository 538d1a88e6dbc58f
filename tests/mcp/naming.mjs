// How calls are told apart: scopes, steps, callers' keys, the keys that upstreams get, and the name
// that a server has without being given one.

import fs from 'node:fs';
import {
    LineClient, Place, assert, assertFresh, assertReplayed, assertVerdict, effectOf,
} from './harness.mjs';
import { Site } from './http_harness.mjs';
import { semel } from '../gateway/program.mjs';
import { eventually, run, test } from '../gateway/tap.mjs';

const tools = {
    append: { class: 'write' },
    put: { class: 'write', idempotency: { meta: 'example.org/key' } },
    keyed: { class: 'write', idempotency: { argument: 'key' } },
    wipe: { class: 'write', step: 'required', key: { strategy: 'step' } },
};
const place = new Place({ contract: { tools } });
const keyForm = /^[A-Za-z0-9_-]{43}$/;

test('--scope is where equal calls are the same; the effect is shown under it', async () => {
    const [one, two] = [await place.open({ scope: 'run/1' }), await place.open({ scope: 'run/2' })];
    assertFresh(await one.call('append', { what: 'scoped' }));
    assertFresh(await two.call('append', { what: 'scoped' }));
    const again = await one.call('append', { what: 'scoped' });
    assertReplayed(again);
    assert.equal(place.effects('scoped'), 2);
    assert.equal(place.show(effectOf(again)).scope, `run/1/${place.name}`);
    await Promise.all([one.close(), two.close()]);
});

test('a client may name scope and step in _meta', async () => {
    const client = await place.open();
    const call = (meta) => client.call('append', { what: 'meta' }, { _meta: meta });
    assertFresh(await call({ 'semel/scope': 'order-1' }), 'meta: 1');
    assertFresh(await call({ 'semel/scope': 'order-2' }), 'meta: 2');
    assertFresh(await call({ 'semel/scope': 'order-2', 'semel/step': '2' }), 'meta: 3');
    const again = await call({ 'semel/scope': 'order-2', 'semel/step': '2' });
    assertReplayed(again, 'meta: 3');
    const shown = place.show(effectOf(again));
    assert.equal(shown.scope, `order-2/${place.name}`);
    assert.equal(shown.step, '2');
    await client.close();
});

test("a caller's key names the action: other arguments are a conflict", async () => {
    const client = await place.open();
    const call = (args, idempotencyKey) => client.call('append', args, { idempotencyKey });
    assertFresh(await call({ what: 'caller', n: 1 }, 'k1'));
    assertReplayed(await call({ what: 'caller', n: 1.0 }, 'k1'));
    const verdict = assertVerdict(await call({ what: 'caller', n: 2 }, 'k1'), 'KEY_CONFLICT', /\/n/);
    assert.equal(verdict.retriable, false);
    assertFresh(await call({ what: 'caller', n: 1 }, 'k2'), 'caller: 2');
    assert.equal(place.effects('caller'), 2);
    await client.close();
});

test('the key reaches an upstream that understands one in _meta, whatever the client put there', async () => {
    const client = await place.open();
    const before = place.received('tools/call').length;
    const _meta = { 'example.org/key': 'made up', 'example.org/other': { kept: [1] }, progressToken: 'p' };
    const args = { what: 'down', script: 'fail answer | effect answer' };
    await client.call('put', args, { _meta });
    assertFresh(await client.call('put', args, { _meta }), 'down: 1');
    const [one, two] = place.received('tools/call').slice(before).map((call) => call.params);
    assert.match(one._meta['example.org/key'], keyForm);
    assert.notEqual(one._meta['example.org/key'], two._meta['example.org/key'], 'what failed is tried under a new key');
    assert.deepEqual(one._meta['example.org/other'], { kept: [1] });
    assert.deepEqual(one.arguments, args);
    await client.close();
});

test('or in an argument, in place of what the model made up', async () => {
    const client = await place.open();
    const before = place.received('tools/call').length;
    assertFresh(await client.call('keyed', { what: 'argument', key: 'made up' }));
    assertReplayed(await client.call('keyed', { what: 'argument', key: 'made up otherwise' }));
    assertFresh(await client.call('keyed', { what: 'argument2' }));
    const calls = place.received('tools/call').slice(before).map((call) => call.params.arguments);
    assert.equal(calls.length, 2);
    for (const args of calls) assert.match(args.key, keyForm);
    assert.notEqual(calls[0].key, calls[1].key);
    await client.close();
});

test('the argument is ours also where only a variant of the tool says so', async () => {
    const variants = [{ when: [{ field: '/kind', equals: 'charge' }], idempotency: { argument: 'key' } }];
    const varied = new Place({ contract: { tools: { keyed: { class: 'write', variants } } } });
    const client = await varied.open();
    const call = (key) => client.call('keyed', { what: 'varied', kind: 'charge', key });
    assertFresh(await call('made up'), 'varied: 1');
    assertReplayed(await call('made up otherwise'), 'varied: 1');
    const [{ params }, ...more] = varied.received('tools/call');
    assert.match(params.arguments.key, keyForm);
    assert.deepEqual(more, []);
    assert.equal(varied.effects('varied'), 1);
    await client.close();
});

test('an argument that is called like a key is none, unless the contract says so', async () => {
    const client = await place.open();
    const args = { what: 'lookalike', idempotency_key: 'mine' };
    assertFresh(await client.call('append', args));
    assert.deepEqual(place.received('tools/call').at(-1).params.arguments, args);
    await client.close();
});

test('where steps name the action, the arguments may not change', async () => {
    const client = await place.open();
    const call = (what, step) => client.call('wipe', { what }, step ? { _meta: { 'semel/step': step } } : {});
    assertFresh(await call('stepped', '1'));
    assertReplayed(await call('stepped', '1'));
    assertVerdict(await call('otherwise', '1'), 'KEY_CONFLICT');
    assertVerdict(await call('stepless'), 'BAD_ARGUMENTS', /step/);
    await client.close();
});

// ---- defaults that change

const volatile = { contract: { tools: { fill: { class: 'write', loop: 'off' } } }, options: { volatile: true } };
const dies = 'effect exit:3';

test('a default that is another one after each start of the server: one effect', async () => {
    const changing = new Place(volatile);
    const args = { what: 'restart' };
    for (let i = 0; i < 3; i++) {
        const client = await changing.open();
        const answer = await client.call('fill', args);
        if (i === 0) assertFresh(answer, 'restart: 1');
        else assertReplayed(answer, 'restart: 1');
        if (i > 0) await eventually('it is told', () => /defaults have changed.*the first default/.test(client.stderr));
        await client.close();
    }
    assert.equal(changing.effects('restart'), 1);
});

test('the server dies, and has another default when it is back: the call is in doubt', async () => {
    const changing = new Place(volatile);
    const client = await changing.open();
    const { effect } = assertVerdict(await client.call('fill', { what: 'back', script: dies }), 'IN_DOUBT');
    for (let i = 0; i < 2; i++)
        assert.equal(assertVerdict(await client.call('fill', { what: 'back', script: dies }), 'IN_DOUBT').effect, effect);
    assert.equal(changing.effects('back'), 1);
    await client.close();
});

test('two sessions of a gateway, each with a server and a default of its own: one effect', async () => {
    const site = await Site.start(volatile);
    const [one, two] = [await site.open(), await site.open()];
    assertFresh(await one.call('fill', { what: 'sessions' }), 'sessions: 1');
    assertReplayed(await two.call('fill', { what: 'sessions' }), 'sessions: 1');
    assert.equal(site.place.file('pid').length, 2);
    assert.equal(site.place.effects('sessions'), 1);
    // The next gateway has read what this one has seen.
    const next = await site.gateway();
    assertReplayed(await (await site.open({ gw: next })).call('fill', { what: 'sessions' }), 'sessions: 1');
});

test('an upgrade adds a default, changes one, and takes the tool away: one effect, and explicit still equals omitted', async () => {
    const hints = `${place.directory}/upgrade.json`;
    const changing = new Place({ contract: volatile.contract, options: { hints } });
    const client = await changing.open();
    const schema = (properties) => ({ fill: { inputSchema: { type: 'object', properties } } });
    const currency = (value) => ({ currency: { type: 'string', default: value } });
    const upgrades = [
        schema(currency('usd')), schema({ ...currency('eur'), note: { type: 'string', default: '' } }), schema({}),
        { fill: { gone: true } },
    ];
    assertFresh(await client.call('fill', { what: 'upgraded' }), 'upgraded: 1');
    for (const upgrade of upgrades) {
        fs.writeFileSync(hints, JSON.stringify(upgrade));
        const before = changing.received('tools/list').length;
        await client.call('look', { what: 'change', script: 'changed answer' });
        await eventually('the list was read again', () => changing.received('tools/list').length > before);
        assertReplayed(await client.call('fill', { what: 'upgraded' }), 'upgraded: 1');
        assertReplayed(await client.call('fill', { what: 'upgraded', currency: 'eur' }), 'upgraded: 1');
    }
    assert.equal(changing.effects('upgraded'), 1);
    await client.close();
    const next = await changing.open();
    assertReplayed(await next.call('fill', { what: 'upgraded' }), 'upgraded: 1');
    await next.close();
});

test('without a place to keep them no default counts, and a retry is still one', async () => {
    const nowhere = new Place({ ...volatile, env: { XDG_STATE_HOME: '', HOME: '' } });
    for (let i = 0; i < 2; i++) {
        const client = await nowhere.open();
        await client.call('fill', { what: 'nowhere' });
        await eventually('it is told', () => /left out does not equal its default/.test(client.stderr));
        await client.close();
    }
    assert.equal(nowhere.effects('nowhere'), 1);
});

test('while the pinned defaults cannot be read, a call has to give all arguments', async () => {
    const broken = new Place({ contract: volatile.contract });
    const first = await broken.open();
    assertFresh(await first.call('fill', { what: 'broken' }), 'broken: 1');
    await first.close();
    const file = `${broken.directory}/state/semel/mcp/${broken.name}.json`;
    const pinned = fs.readFileSync(file, 'utf8');
    fs.writeFileSync(file, pinned.slice(1));
    const client = await broken.open();
    assertVerdict(await client.call('fill', { what: 'broken' }), 'BAD_ARGUMENTS', /Give all arguments/);
    assertReplayed(await client.call('fill', { what: 'broken', currency: 'eur' }), 'broken: 1');
    fs.writeFileSync(file, pinned);
    await client.close();
    const last = await broken.open();
    assertReplayed(await last.call('fill', { what: 'broken' }), 'broken: 1');
    assert.equal(broken.effects('broken'), 1);
    await last.close();
});

test('what the contract decides by a value is not decided by a default that the server has changed', async () => {
    const hints = `${place.directory}/amount.json`;
    const amount = (value) => fs.writeFileSync(hints, JSON.stringify({
        fill: { inputSchema: { type: 'object', properties: { amount: { type: 'number', default: value } } } },
    }));
    const contract = { tools: { fill: { class: 'write', approval: { when: [{ field: '/amount', over: 100 }] } } } };
    const where = { contract, options: { hints } };
    const changing = new Place(where);
    amount(10);
    const first = await changing.open();
    assertFresh(await first.call('fill', { what: 'small' }), 'small: 1');
    await first.close();
    amount(1000);
    const client = await changing.open();
    assertReplayed(await client.call('fill', { what: 'small' }), 'small: 1');
    assertVerdict(await client.call('fill', { what: 'large' }), 'BAD_ARGUMENTS', /give all arguments/);
    assertVerdict(await client.call('fill', { what: 'large', amount: 1000 }), 'AWAITING_APPROVAL');
    assertFresh(await client.call('fill', { what: 'tiny', amount: 10 }), 'tiny: 1');
    assert.equal(changing.effects('large'), 0);
    await client.close();
    // Where no default is kept none is known, so none decides.
    const nowhere = await new Place({ ...where, env: { XDG_STATE_HOME: '', HOME: '' } }).open();
    assertVerdict(await nowhere.call('fill', { what: 'large' }), 'BAD_ARGUMENTS', /give all arguments/);
    assertVerdict(await nowhere.call('fill', { what: 'large', amount: 1000 }), 'AWAITING_APPROVAL');
    await nowhere.close();
});

test('a server without a name is known by its command and its directory', async () => {
    const unnamed = new Place({ contract: { tools } });
    const command = [semel, 'mcp', '--ledger', unnamed.ledger, '--', ...unnamed.server];
    const there = `${unnamed.directory}/there`;
    fs.mkdirSync(there);
    const scopes = [];
    for (const cwd of [unnamed.directory, unnamed.directory, there]) {
        const client = new LineClient(command, { cwd, env: unnamed.env, place: unnamed });
        await client.initialize();
        await client.call('append', { what: 'nameless' });
        scopes.push(unnamed.json('list').items.map((one) => one.scope));
        await client.close();
    }
    assert.deepEqual(scopes.map((list) => new Set(list).size), [1, 1, 2]);
    assert.match(scopes[0][0], /^node-[0-9a-f]{8}$/);
    assert.equal(unnamed.effects('nameless'), 2);
});

test('reads have no effect in the ledger', async () => {
    const client = await place.open();
    const before = place.list().length;
    await client.call('look', { what: 'r' });
    assert.equal(place.list().length, before);
    await client.close();
});

await run();
