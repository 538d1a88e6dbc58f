// What the proxy makes of calls that write: one effect, whoever asks again, and in whatever way the
// first answer was lost. The server is the scripted one, so that every moment can be chosen.

import { execFileSync } from 'node:child_process';
import {
    Place, assert, assertDone, assertFresh, assertReplayed, assertVerdict, effectOf, textOf,
} from './harness.mjs';
import { eventually, run, sleep, test } from '../gateway/tap.mjs';

const tools = {
    append: { class: 'write' },
    put: { class: 'write_idempotent' },
    wipe: { class: 'irreversible', key: { fields: ['/what'] } },
    fill: { class: 'write' },
};
const place = new Place({ contract: { tools } });
const open = place.open.bind(place);

// ---- repeats

test('an equal call is answered with what was recorded, byte for byte', async () => {
    const client = await open();
    const args = { what: 'odd', script: 'effect odd answer' };
    const first = await client.call('append', args);
    const second = await client.call('append', args);
    assertFresh(first);
    assertReplayed(second);
    assert.equal(place.effects('odd'), 1);
    for (const part of ['[ {"type":"text","text":"\\u0041\\/odd"} ]', '1.50e+2', '12345678901234567890']) {
        assert.ok(first.line.includes(part), first.line);
        assert.ok(second.line.includes(part), second.line);
    }
    await client.close();
});

test('equal is what is equal by value: blanks, order and numbers do not matter', async () => {
    const client = await open();
    assertFresh(await client.call('append', { what: 'equal', n: 100, m: { a: 1, b: 2 } }));
    client.send('{"jsonrpc":"2.0","id":"e1","method":"tools/call","params":{"name":"append",'
        + '"arguments":{ "m" : {"b":2.0,"a":1e0}, "what":"\\u0065qual", "n":1E2 }}}');
    assertReplayed(await client.answer('e1'));
    assertFresh(await client.call('append', { what: 'equal', n: 101, m: { a: 1, b: 2 } }));
    assert.equal(place.effects('equal'), 2);
    await client.close();
});

test('a state that is set: A, B, A runs three times, by two tools too', async () => {
    const resource = { kind: 'ticket', fields: ['/id'] };
    const setting = new Place({
        contract: { tools: { append: { class: 'write', resource }, put: { class: 'write', resource } } },
    });
    const client = await setting.open();
    const status = (to) => ({ what: 'status', id: 7, to });
    assertFresh(await client.call('append', status('open')));
    assertReplayed(await client.call('append', status('open')));
    assertFresh(await client.call('append', status('closed')));
    assertFresh(await client.call('append', { what: 'status', id: 8, to: 'closed' }));
    assertReplayed(await client.call('append', status('closed')));
    assertFresh(await client.call('append', status('open')));
    assertReplayed(await client.call('append', status('open')));
    assert.equal(setting.effects('status'), 4);
    assertFresh(await client.call('put', status('gone')));
    await client.close();
    // Another proxy of the same ledger.
    const second = await setting.open();
    assertFresh(await second.call('append', status('open')));
    assertReplayed(await second.call('append', status('open')));
    assert.equal(setting.effects('status'), 6);
    await second.close();
});

test('a server says what a call cost; what is not an amount is ignored, with a note', async () => {
    const budget = { per: 'run', cost: 1, tokens: 100, soft: 'off' };
    const paid = new Place({ contract: { tools: { append: { class: 'write', cost: 0.5, tokens: 10, budget } } } });
    const client = await paid.open();
    const said = async (what, script) => {
        const answer = await client.call('append', { what, script: `effect ${script} answer` });
        assertFresh(answer);
        const [{ effect }] = paid.json('list').items;
        const { body } = paid.json('show', effect).events.at(-1);
        return [body.cost, body.tokens, body.ignored];
    };
    assert.deepEqual(await said('one', 'cost:0.125/7'), ['0.125', 7, undefined]);
    assert.deepEqual(await said('two', 'cost:0.125/0'), ['0.125', undefined, undefined]);
    assert.deepEqual(await said('three', 'cost:dear/-1'), ['0.5', 10, 'cost, tokens']);
    const answer = await client.call('append', { what: 'four', script: 'effect answer' });
    assertVerdict(answer, 'BUDGET_EXCEEDED', /0.75 are spent or reserved, and it may take 0.5/);
    assert.equal(paid.effects('four'), 0);
    await client.close();
});

test('an argument that is left out equals the default of the schema, at any depth', async () => {
    const client = await open();
    assertFresh(await client.call('fill', { what: 'fill', options: {} }));
    assertReplayed(await client.call('fill', { what: 'fill', currency: 'eur', options: { fast: false } }));
    assertFresh(await client.call('fill', { what: 'fill', currency: 'usd', options: {} }));
    assert.equal(place.effects('fill'), 2);
    // What is passed on is what was sent.
    assert.deepEqual(place.received('tools/call').at(-1).params.arguments, { what: 'fill', currency: 'usd', options: {} });
    await client.close();
});

test('a tool that nobody listed is a write, and runs again for who has the answer and asks later', async () => {
    const unlisted = new Place();
    const client = await unlisted.open();
    assertFresh(await client.call('append', { what: 'u' }), 'u: 1');
    const soon = await client.call('append', { what: 'u' });
    assertReplayed(soon, 'u: 1');
    // A model must be able to tell, also where its client drops _meta.
    assert.equal(soon.result.content.length, 2, soon.line);
    assert.match(soon.result.content[1].text, /already/i);
    await sleep(2200);
    assertFresh(await client.call('append', { what: 'u' }), 'u: 2');
    await client.close();

    // Another process cannot know that the answer was received.
    const other = await unlisted.open();
    await sleep(2200);
    assertReplayed(await other.call('append', { what: 'u' }), 'u: 2');
    await sleep(2200);
    assertFresh(await other.call('append', { what: 'u' }), 'u: 3');
    await other.close();
});

test('a listed tool is done once, however much later the repeat comes', async () => {
    const client = await open();
    assertFresh(await client.call('append', { what: 'listed' }));
    await sleep(2200);
    const again = await client.call('append', { what: 'listed' });
    assertReplayed(again, 'listed: 1');
    assert.equal(again.result.content.length, 1, 'nothing is added to what was recorded');
    await client.close();
});

test('reads are passed on each time', async () => {
    const client = await open();
    for (const count of [1, 2]) {
        const answer = await client.call('look', { what: 'read' });
        assertFresh(answer, `read: ${count}`);
        assert.equal(answer.result._meta, undefined);
    }
    const both = await Promise.all([1, 2].map(() => client.call('look', { what: 'read', script: 'effect wait:50 answer' })));
    both.forEach((one) => assertDone(one));
    assert.equal(place.effects('read'), 4);
    await client.close();
});

// ---- at the same time

test('equal calls at once are one call, and progress goes to each by its own token', async () => {
    const client = await open();
    const args = { what: 'twins', script: 'mark:twins effect gate:twins-go progress:3 answer' };
    const calls = ['a', 7].map((progressToken) => client.call('append', args, { _meta: { progressToken } }));
    await place.passed('twins');
    await sleep(100); // until the second one has joined
    place.mark('twins-go');
    const [one, two] = await Promise.all(calls);
    assertDone(one, 'twins: 1');
    assertDone(two, 'twins: 1');
    assert.equal(place.effects('twins'), 1);
    for (const token of ['a', 7])
        assert.deepEqual(client.progress(token).map((note) => note.params.progress), [1, 2, 3], `token ${token}`);
    assert.equal(client.progress('a')[0].params.message, 'twins');
    await client.close();
});

test('two proxies on one ledger: the second waits for the first, and gets its answer', async () => {
    const [one, two] = await Promise.all([open(), open()]);
    const args = { what: 'pair', script: 'effect mark:pair gate:pair-go answer' };
    const first = one.call('append', args);
    await place.passed('pair');
    const second = two.call('append', args);
    await sleep(200);
    place.mark('pair-go');
    assertFresh(await first, 'pair: 1');
    assertReplayed(await second, 'pair: 1');
    assert.equal(place.effects('pair'), 1);
    await Promise.all([one.close(), two.close()]);
});

test('many calls are under way at once', async () => {
    const client = await open();
    const names = Array.from({ length: 100 }, (_, i) => `many-${i}`);
    const calls = names.map((what) => client.call('append', { what, script: 'effect gate:many-go answer' }));
    await eventually('all have reached the server', () => names.every((what) => place.effects(what) === 1));
    place.mark('many-go');
    (await Promise.all(calls)).forEach((answer, i) => assertFresh(answer, `many-${i}: 1`));
    await client.close();
});

// ---- answers that nobody got

test('a cancelled write goes on, and the retry gets its late answer', async () => {
    const client = await open();
    const args = { what: 'cancel', script: 'mark:cancel gate:cancel-go effect answer' };
    const id = client.nextId;
    let answered = false;
    client.call('append', args).then(() => (answered = true), () => {});
    await place.passed('cancel');
    client.cancel(id);
    const retry = client.call('append', args);
    await sleep(100);
    place.mark('cancel-go');
    assertDone(await retry, 'cancel: 1');
    assertReplayed(await client.call('append', args), 'cancel: 1');
    assert.equal(place.effects('cancel'), 1);
    assert.deepEqual(place.file('cancelled'), [], 'the server is not told');
    assert.ok(!answered, 'what was cancelled is not answered');
    await client.close();
});

test('a cancel that names a write in another form is absorbed, too', async () => {
    const client = await open();
    const args = { what: 'formed', script: 'mark:formed gate:formed-go effect answer' };
    const id = client.nextId;
    const answer = client.call('append', args);
    await place.passed('formed');
    for (const form of [`${id}.0`, `${id}e0`, `[${id}]`, `{"id":${id}}`])
        client.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":${form}}}`);
    for (const name of ['RequestId', 'request_id'])
        client.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"${name}":${id}}}`);
    client.send(`{"jsonrpc":"2.0","method":"Notifications/Cancelled","params":{"requestId":${id}}}`);
    assert.deepEqual((await client.request('ping')).result, {});
    place.mark('formed-go');
    assertFresh(await answer, 'formed: 1');
    assert.deepEqual(place.received('notifications/cancelled'), []);
    await client.close();
});

test('after a cancel a repeat is a retry, however late', async () => {
    const unlisted = new Place();
    const client = await unlisted.open();
    const args = { what: 'c', script: 'mark:c wait:100 effect answer' };
    const id = client.nextId;
    client.call('append', args).catch(() => {});
    await unlisted.passed('c');
    client.cancel(id);
    await eventually('it is done', () => unlisted.effects('c') === 1);
    await sleep(2300);
    assertReplayed(await client.call('append', args), 'c: 1');
    await client.close();
});

test('a cancelled read is cancelled', async () => {
    const client = await open();
    const id = client.nextId;
    client.call('look', { what: 'cancelled-read', script: 'mark:cr gate:never answer' }).catch(() => {});
    await place.passed('cr');
    client.cancel(id);
    await eventually('the server is told', () => place.file('cancelled').includes('cancelled-read'));
    await client.close();
});

test('a client that goes while a write is under way: it is recorded all the same', async () => {
    const client = await open();
    const args = { what: 'gone', script: 'effect mark:gone wait:700 answer' };
    client.call('append', args).catch(() => {});
    await place.passed('gone');
    await client.close();
    const next = await open();
    assertReplayed(await next.call('append', args), 'gone: 1');
    await next.close();
});

// ---- failures

test('a tool that says that it failed may be tried again', async () => {
    const client = await open();
    const args = { what: 'fails', script: 'fail answer | effect answer' };
    const first = await client.call('append', args);
    assert.equal(first.result.isError, true);
    assert.equal(textOf(first), 'fails: 0', 'its words are passed on');
    assertFresh(await client.call('append', args), 'fails: 1');
    assertReplayed(await client.call('append', args), 'fails: 1');
    await client.close();
});

test('an error of the protocol is passed on, and the call may be tried again', async () => {
    const client = await open();
    const args = { what: 'error', script: 'error:-32602 | effect answer' };
    const first = await client.call('append', args);
    assert.deepEqual(first.error, { code: -32602, message: 'no error', data: { why: 'said so' } });
    assertFresh(await client.call('append', args), 'error: 1');
    await client.close();
});

test('an irreversible tool that says that it failed may have done it: that is a doubt, and it runs no more', async () => {
    const client = await open();
    const args = { what: 'failure', script: 'effect fail answer' };
    const first = await client.call('wipe', args);
    assert.equal(first.result.isError, true, first.line);
    assert.equal(textOf(first), 'failure: 1', 'its words are passed on');
    const verdict = assertVerdict(await client.call('wipe', args), 'IN_DOUBT');
    assert.equal(place.effects('failure'), 1);
    place.json('resolve', verdict.effect, '--abandon', '--evidence', 'looked');
    await client.close();
});

test('an irreversible tool in doubt bars others of its kind, until somebody says what became of it', async () => {
    const client = await open();
    const args = { what: 'regret', script: 'effect exit:1' };
    const verdict = assertVerdict(await client.call('wipe', args), 'IN_DOUBT');
    assertVerdict(await client.call('wipe', args), 'IN_DOUBT');
    assert.equal(place.effects('regret'), 1);
    // Another one of the same tool waits until the doubt is removed.
    const barred = assertVerdict(await client.call('wipe', { what: 'other' }), 'IN_DOUBT');
    assert.equal(barred.blocked_by, verdict.effect);
    place.json('resolve', verdict.effect, '--applied', '{"id":"x1"}', '--evidence', 'looked');
    assertFresh(await client.call('wipe', { what: 'other' }), 'other: 1');
    // What a person says that it returned is told in the form that clients understand.
    const told = await client.call('wipe', args);
    assertReplayed(told);
    assert.match(textOf(told), /x1/);
    await client.close();
});

for (const death of ['exit:3', 'kill']) {
    test(`a server that dies (${death}) after the effect leaves a doubt, and is started again`, async () => {
        const client = await open();
        const args = { what: `dies-${death}`, script: `effect ${death} | effect answer` };
        const verdict = assertVerdict(await client.call('append', args), 'IN_DOUBT');
        assert.equal(verdict.retriable, false);
        assert.match(verdict.effect, /^ef_/);
        assertVerdict(await client.call('append', args), 'IN_DOUBT', new RegExp(verdict.effect));
        assertFresh(await client.call('append', { what: `after-${death}` }), `after-${death}: 1`);
        assert.equal(place.effects(args.what), 1);
        // A person looks, and says so: then it runs, once.
        place.json('resolve', verdict.effect, '--not-applied', '--evidence', 'looked');
        assertFresh(await client.call('append', args), `${args.what}: 2`);
        await client.close();
    });
}

test('a tool that is declared idempotent runs again after a crash', async () => {
    const client = await open();
    const args = { what: 'idempotent', script: 'effect exit:1 | effect answer' };
    const first = await client.call('put', args);
    assert.equal(first.result.isError, true, first.line);
    assertFresh(await client.call('put', args), 'idempotent: 2');
    await client.close();
});

test('reads and other requests of a server that dies get an error, and the next ones an answer', async () => {
    const client = await open();
    const read = client.call('look', { what: 'lost-read', script: 'mark:lost-read never' });
    await place.passed('lost-read');
    process.kill(place.serverOf('lost-read'), 'SIGKILL');
    const answer = await read;
    assert.ok(answer.error ?? answer.result.isError, answer.line);
    assertDone(await client.call('look', { what: 'next-read' }));
    await client.close();
});

// ---- tasks, eras

for (const modern of [true, false]) {
    test(`a ${modern ? 'modern' : 'legacy'} task: whoever retries gets the same handle`, async () => {
        const what = `task-${modern}`;
        const client = await open({ modern });
        const more = modern ? {} : { task: { ttl: 60000 } };
        const args = { what, script: 'effect task' };
        const taskOf = (answer) => (modern ? answer.result.taskId : answer.result.task?.taskId);
        const first = await client.call('append', args, more);
        assert.equal(taskOf(first), `task-${what}`, first.line);
        const second = await client.call('append', args, more);
        assert.equal(taskOf(second), `task-${what}`, second.line);
        if (modern) assert.equal(second.result.resultType, 'task', second.line);
        assert.equal(place.effects(what), 1);
        await client.close();
    });
}

test('what one era did is replayed to the other, in its form', async () => {
    const [old, young] = [await open(), await open({ modern: true })];
    const args = (what) => ({ what, script: 'effect structured meta answer' });
    assertFresh(await old.call('append', args('by-old')));
    const toYoung = await young.call('append', args('by-old'));
    assertReplayed(toYoung, 'by-old: 1');
    assert.equal(toYoung.result.resultType, 'complete', toYoung.line);
    assert.deepEqual(toYoung.result.structuredContent, { what: 'by-old', exact: 12345 });
    assert.equal(toYoung.result._meta['example.org/trace'], 'by-old');
    assertFresh(await young.call('append', args('by-young')));
    const toOld = await old.call('append', args('by-young'));
    assertReplayed(toOld, 'by-young: 1');
    assert.equal(toOld.result.resultType, undefined, toOld.line);
    assertVerdict(await young.call('append', { what: 'bad' }, { arguments: [1] }), 'BAD_ARGUMENTS');
    await Promise.all([old.close(), young.close()]);
});

test('the proxy was killed between forward and answer: in doubt, at once, and never done twice', async () => {
    const client = await open();
    const args = { what: 'killed', script: 'effect mark:killed never | effect answer' };
    const lost = client.call('append', args).catch(() => {});
    await place.passed('killed');
    await client.kill();
    await lost;
    const next = await open();
    const verdict = assertVerdict(await next.call('append', args), 'IN_DOUBT');
    assert.equal(place.effects('killed'), 1);
    assert.equal(place.show(verdict.effect).state, 'in_doubt');
    await next.close();
});

test('every effect is shown with its scope, which is the name of the server', () => {
    const effects = place.list();
    assert.ok(effects.length > 10);
    for (const one of effects) assert.equal(one.scope, place.name);
    assert.ok(effects.some((one) => one.tool === 'append'));
    assert.equal(place.semel('audit', 'verify').status, 0);
});

// ---- a ledger that forgets

test('the ledger loses the record of a call while the server has it: it is put back, and runs once', async () => {
    const forgetful = new Place({ contract: { tools }, ledger: `sqlite:${place.directory}/forgetful.db` });
    const client = await forgetful.open();
    const args = { what: 'forgotten', script: 'effect mark:begun gate:lost answer' };
    const calling = client.call('wipe', args);
    await forgetful.passed('begun');
    execFileSync('sqlite3', [`${place.directory}/forgetful.db`,
        'PRAGMA busy_timeout=20000; DELETE FROM name; DELETE FROM effect']);
    forgetful.mark('lost');
    const answer = await calling;
    assertDone(answer, 'forgotten: 1');
    assert.equal(answer.result._meta['semel/doubt'], 'put_back');
    assertReplayed(await client.call('wipe', args), 'forgotten: 1');
    assert.equal(forgetful.effects('forgotten'), 1);
    await client.close();
});

await run();
