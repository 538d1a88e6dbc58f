// How calls are told apart: scopes, steps, callers' keys, the keys that upstreams get, and the name
// that a server has without being given one.

import fs from 'node:fs';
import {
    LineClient, Place, assert, assertFresh, assertReplayed, assertVerdict, effectOf,
} from './harness.mjs';
import { semel } from '../gateway/program.mjs';
import { run, test } from '../gateway/tap.mjs';

const tools = {
    append: { class: 'write' },
    put: { class: 'write', idempotency: { meta: 'example.org/key' } },
    keyed: { class: 'write', idempotency: { argument: 'key' }, key: { ignore: ['/key'] } },
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
