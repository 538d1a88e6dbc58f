// Approvals: by whoever sits at the client where the contract allows that, else by somebody else;
// tools that nobody listed; and what a server says of its tools, now and later.

import fs from 'node:fs';
import {
    Place, assert, assertDone, assertFresh, assertReplayed, assertVerdict, modernVersion, textOf,
} from './harness.mjs';
import { eventually, run, sleep, test } from '../gateway/tap.mjs';

const tools = {
    append: { class: 'write', approval: { self_approval: true, expires: '1h' } },
    put: { class: 'write', approval: { expires: '1h' } },
    wipe: { class: 'write', approval: { when: [{ field: '/amount', over: 100 }], self_approval: true } },
};
const place = new Place({ contract: { tools } });
const capabilities = { elicitation: {} };

// Fills in a form as somebody does who agrees.
function agree(schema) {
    const value = (one) => ({ boolean: true, number: 1, integer: 1 }[one.type] ?? one.enum?.[0] ?? 'yes');
    return Object.fromEntries(Object.entries(schema.properties ?? {}).map(([name, one]) => [name, value(one)]));
}

// A client whose user answers so.
async function asked(action, options = {}) {
    const client = await place.open({ capabilities, ...options });
    client.forms = [];
    client.on('elicitation/create', (params, message) => {
        client.forms.push({ ...params, id: message.id });
        return action === 'accept' ? { action, content: agree(params.requestedSchema) } : { action };
    });
    return client;
}

const pending = (where) => where.json('list', '--scope', where.name, '--state', 'pending_approval').items;

// A call that waits, until its request can be seen; the call may have been answered meanwhile.
async function waiting(client, where, name, args) {
    const answer = client.call(name, args);
    const effect = await eventually('it is pending', () => pending(where).find((one) => one.args.what === args.what));
    return { answer, effect: effect.effect, request: where.show(effect.effect).request };
}

test('the user of a legacy client is asked, and then it is done, once', async () => {
    const client = await asked('accept');
    const args = { what: 'form', amount: 7 };
    assertFresh(await client.call('append', args), 'form: 1');
    assert.equal(client.forms.length, 1);
    // What is asked for says what would be done.
    assert.match(client.forms[0].message, /append/);
    assert.match(client.forms[0].message, /form/);
    assert.equal(client.forms[0].requestedSchema.type, 'object');
    assertReplayed(await client.call('append', args), 'form: 1');
    assert.equal(client.forms.length, 1, 'what is done is not asked for again');
    assert.equal(place.effects('form'), 1);
    await client.close();
});

test('what the user is shown hides nothing, and can be read wherever it is cut', async () => {
    const client = await asked('decline');
    // A line that is not UTF-8 ends the session of some clients; here it would have such a character.
    for (const what of ['cut', 'cut-1', 'cut-22'])
        assertVerdict(await client.call('append', { what, long: '\u20ac'.repeat(3000) }), 'DENIED');
    for (const form of client.forms) assert.match(form.message, /\u20ac\.\.\. \(90\d\d bytes in all; semel show ef_/);
    client.forms = [];
    client.send(`{"jsonrpc":"2.0","id":"spaced","method":"tools/call","params":{"name":"append","arguments":{"what":"spaced",${' '.repeat(5000)}"to":"\u202e1\u009b"}}}`);
    await eventually('it is asked', () => client.forms.length === 1);
    assert.ok(client.forms[0].message.endsWith('{"to":"\\u202E1\\xC2\\x9B","what":"spaced"}'), client.forms[0].message);
    await client.close();
});

test('a refusal that names an argument can be read, however long that is', async () => {
    const client = await place.open();
    for (let n = 1; n < 100; n += 7) {
        const answer = await client.call('wipe', { what: 'w', amount: 1, [`amount${'\u200b'.repeat(n)}`]: 2 });
        assertVerdict(answer, 'BAD_ARGUMENTS');
    }
    await client.close();
});

for (const action of ['decline', 'cancel']) {
    test(`a user who says ${action} is heard: nothing is done`, async () => {
        const client = await asked(action);
        const answer = await client.call('append', { what: `no-${action}` });
        assert.equal(answer.result.isError, true, answer.line);
        if (action === 'decline') assertVerdict(answer, 'DENIED');
        assert.equal(place.effects(`no-${action}`), 0);
        assert.deepEqual(place.received('tools/call').filter((one) => one.params.arguments.what === `no-${action}`), []);
        await client.close();
    });
}

// Ways to say yes and something else at once.
const unclear = {
    'two actions': '{"action":"accept","Action":"decline","content":{"approve":true}}',
    'an action that is there twice': '{"action":"decline","action":"accept","content":{"approve":true}}',
    'an action in capitals': '{"ACTION":"accept","content":{"approve":true}}',
    'two contents': '{"action":"accept","content":{"approve":true},"Content":{"approve":false}}',
    'two boxes': '{"action":"accept","content":{"approve":true,"Approve":false}}',
    'a box that is there twice': '{"action":"accept","content":{"approve":false,"approve":true}}',
    'a box in another spelling': '{"action":"accept","content":{"_approve":true}}',
};

test('an answer that can be read in two ways approves nothing', async () => {
    const client = await place.open({ capabilities });
    let said;
    client.on('elicitation/create', (params, message) => {
        client.send(`{"jsonrpc":"2.0","id":${JSON.stringify(message.id)},"result":${said}}`);
    });
    const modern = await place.open({ modern: true, capabilities });
    let n = 0;
    for (const [what, text] of Object.entries(unclear)) {
        said = text;
        const args = { what: `unclear-${n}`, amount: n++ };
        assertVerdict(await client.call('append', args), 'AWAITING_APPROVAL');
        const later = { what: `unclear-modern-${n}`, amount: n };
        const { result: { requestState, inputRequests } } = await modern.call('append', later);
        const [name] = Object.keys(inputRequests);
        const id = `raw-${n}`;
        const _meta = { 'io.modelcontextprotocol/protocolVersion': modernVersion, 'io.modelcontextprotocol/clientCapabilities': capabilities };
        const params = { name: 'append', arguments: later, requestState, inputResponses: 'HERE', _meta };
        const answer = modern.answer(id);
        modern.send(JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params }).replace('"HERE"', `{${JSON.stringify(name)}:${text}}`));
        const { error } = await answer;
        assert.match(error.message, /some servers take it for that|is there twice/, what);
        assert.equal(place.effects(args.what) + place.effects(later.what), 0, what);
    }
    await client.close();
    await modern.close();
});

test('a condition decides whether anybody is asked', async () => {
    const client = await asked('accept');
    assertFresh(await client.call('wipe', { what: 'small', amount: 100 }), 'small: 1');
    assert.equal(client.forms.length, 0);
    assertFresh(await client.call('wipe', { what: 'large', amount: 101 }), 'large: 1');
    assert.equal(client.forms.length, 1);
    await client.close();
});

test('ids of our questions are not those of the server', async () => {
    const client = await asked('accept');
    const answer = await client.call('append', { what: 'both', script: 'elicit elicit effect answer' });
    assertDone(answer, 'both: 1');
    assert.equal(client.forms.length, 3);
    assert.equal(new Set(client.forms.map((form) => JSON.stringify(form.id))).size, 3);
    await client.close();
});

test('a modern client is asked by input_required, and retries with the answer', async () => {
    const client = await place.open({ modern: true, capabilities });
    const args = { what: 'modern', amount: 1 };
    const first = await client.call('append', args);
    assert.equal(first.result.resultType, 'input_required', first.line);
    const [[name, input]] = Object.entries(first.result.inputRequests);
    assert.equal(input.method, 'elicitation/create');
    assert.equal(input.params.mode, 'form');
    assert.match(input.params.message, /append/);
    assert.equal(place.effects('modern'), 0);
    const content = agree(input.params.requestedSchema);
    const inputResponses = { [name]: { action: 'accept', content } };
    const { requestState } = first.result;

    // Who puts the question aside is not asked again and again.
    const aside = { inputResponses: { [name]: { action: 'cancel' } }, requestState };
    assertVerdict(await client.call('append', args, aside), 'AWAITING_APPROVAL');

    // An answer belongs to its question: other arguments and other states are not approved by it.
    const other = await client.call('append', { ...args, amount: 99999 }, { inputResponses, requestState });
    assert.notEqual(other.result?.resultType === 'complete' && !other.result.isError, true, other.line);
    const forged = `${requestState.slice(0, -2)}${requestState.endsWith('aa') ? 'bb' : 'aa'}`;
    const tampered = await client.call('append', args, { inputResponses, requestState: forged });
    assert.notEqual(tampered.result?.resultType === 'complete' && !tampered.result.isError, true, tampered.line);
    assert.equal(place.effects('modern'), 0);

    assertFresh(await client.call('append', args, { inputResponses, requestState }), 'modern: 1');
    // The retry that the protocol demands when the answer is lost.
    assertReplayed(await client.call('append', args, { inputResponses, requestState }), 'modern: 1');
    assertReplayed(await client.call('append', args), 'modern: 1');
    assert.equal(place.effects('modern'), 1);
    await client.close();
});

test('a client that cannot ask, and a contract that lets nobody approve himself: somebody else approves', async () => {
    for (const [tool, client] of [['put', await asked('accept')], ['append', await place.open()]]) {
        const args = { what: `pending-${tool}` };
        const { answer, request } = await waiting(client, place, tool, args);
        assert.match(request, /^ap_/);
        // It may be answered at once, or wait for a while.
        const early = await Promise.race([answer, sleep(300)]);
        if (early) {
            const verdict = assertVerdict(early, 'AWAITING_APPROVAL', /Do not call this tool again with these arguments before it is approved.*Once it is approved, make the same call again/);
            // Retriable when it is approved, and not after a time: a model would come back then.
            assert.equal(verdict.retriable, true);
            assert.equal(verdict.retry_after_ms, undefined);
            assert.ok(!/retry_after/.test(early.line), early.line);
            assert.equal(verdict.request, request);
            assert.ok(verdict.corrective_action.includes(request), verdict.corrective_action);
            assert.match(verdict.corrective_action, /an operator of the ledger/);
            // Only a contract that lets the one who asks approve gives a command for that.
            assert.equal(/semel approve/.test(early.line), tool === 'append', early.line);
        }
        place.json('approve', request);
        const done = early ? await client.call(tool, args) : await answer;
        assertDone(done, `${args.what}: 1`);
        assertReplayed(await client.call(tool, args), `${args.what}: 1`);
        assert.equal(place.effects(args.what), 1);
        assert.equal(client.forms?.length ?? 0, 0);
        await client.close();
    }
});

test('a denial is told, and stays', async () => {
    const client = await place.open();
    const { answer, request } = await waiting(client, place, 'put', { what: 'denied' });
    const early = await Promise.race([answer, sleep(300)]);
    place.json('deny', request, '--reason', 'not today');
    if (!early) assertVerdict(await answer, 'DENIED', /not today/);
    assertVerdict(await client.call('put', { what: 'denied' }), 'DENIED');
    assert.equal(place.effects('denied'), 0);
    await client.close();
});

// ---- tools that nobody listed

test('unlisted: hide takes them out of lists, and a call of one is refused', async () => {
    const hiding = new Place({ contract: { unlisted: 'hide', tools: { append: { class: 'write' }, 'look': { class: 'read' } } } });
    const client = await hiding.open();
    const { result } = await client.request('tools/list');
    assert.deepEqual(result.tools.map((tool) => tool.name), ['append', 'look']);
    const refused = await client.call('secret', { what: 'hidden' });
    assert.ok(refused.error ?? refused.result.isError, refused.line);
    assert.equal(hiding.effects('hidden'), 0);
    assertFresh(await client.call('append', { what: 'shown' }), 'shown: 1');
    await client.close();
});

test('unlisted: hold lets nothing run before somebody approves', async () => {
    const holding = new Place({ contract: { unlisted: 'hold', tools: { append: { class: 'write' } } } });
    const client = await holding.open();
    const { answer, request } = await waiting(client, holding, 'secret', { what: 'held' });
    assert.equal(holding.effects('held'), 0);
    holding.json('approve', request);
    const early = await answer;
    assertDone(early.result?.isError ? await client.call('secret', { what: 'held' }) : early, 'held: 1');
    await client.close();
});

test('annotations are not believed where the contract says so', async () => {
    const strict = new Place({ contract: { trust_annotations: false, tools: {} } });
    const client = await strict.open();
    assertFresh(await client.call('look', { what: 'l' }), 'l: 1');
    assertReplayed(await client.call('look', { what: 'l' }), 'l: 1');
    await client.close();
});

// ---- servers that change what they say

test('a tool that calls itself read-only later is told, and stays a write', async () => {
    const hints = `${place.directory}/hints.json`;
    const changing = new Place({ options: { hints } });
    const first = await changing.open();
    assertFresh(await first.call('append', { what: 'loose' }), 'loose: 1');
    await first.close();
    const annotations = { readOnlyHint: true };
    fs.writeFileSync(hints, JSON.stringify({ append: { annotations }, put: { inputSchema: { type: 'object' } } }));
    const client = await changing.open();
    await client.request('tools/list');
    assertReplayed(await client.call('append', { what: 'loose' }), 'loose: 1');
    await eventually('it is told', () => /"append" read-only/.test(client.stderr));
    await eventually('and so is a schema that has changed', () => /"put".*schema/.test(client.stderr));
    await client.close();
});

test('a list that changes while a client is connected is read again', async () => {
    const hints = `${place.directory}/hints2.json`;
    const changing = new Place({ options: { hints } });
    const client = await changing.open();
    assertFresh(await client.call('look', { what: 'before' }), 'before: 1');
    fs.writeFileSync(hints, JSON.stringify({ look: { annotations: { readOnlyHint: false } } }));
    await client.call('look', { what: 'x', script: 'changed answer' });
    await eventually('the server was asked', () => changing.received('tools/list').length >= 2);
    await sleep(200);
    assertFresh(await client.call('look', { what: 'after' }), 'after: 1');
    assertReplayed(await client.call('look', { what: 'after' }), 'after: 1');
    await client.close();
});

test('the ledger is away: writes are refused, reads pass', async () => {
    const away = new Place({ ledger: 'postgres://nobody:hidden-secret@127.0.0.1:1/none' });
    const client = away.start();
    const ended = await Promise.race([client.exit, client.initialize()]);
    if (ended?.code !== undefined) {
        assert.equal(ended.code, 69, client.stderr);
    } else {
        assertDone(await client.call('look', { what: 'r' }));
        const verdict = assertVerdict(await client.call('append', { what: 'w' }), 'LEDGER_UNAVAILABLE');
        assert.equal(verdict.retriable, true);
        assert.equal(away.effects('w'), 0);
    }
    assert.ok(!client.stderr.includes('hidden-secret'), client.stderr);
    away.seen.length = 0; // there is no ledger to hold it against
    await client.close();
});

await run();
