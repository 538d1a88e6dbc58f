// A repeat runs only if it is deliberate. Over stdio an equal call counts as deliberate if the program
// that asks must have had the answer; over HTTP only if it says so. Every other equal call is a retry and
// gets the recorded answer.

import fs from 'node:fs';
import process from 'node:process';
import {
    LineClient, Place, assert, assertDone, assertFresh, assertReplayed, assertVerdict, effectOf,
} from './harness.mjs';
import { Site } from './http_harness.mjs';
import { eventually, run, sleep, test } from '../gateway/tap.mjs';

// Deliberate repeats of `put` and of unlisted tools run. On a busy machine nothing is quick and nothing
// is soon, so a test says which of the two it needs: answers that count as quick though they take long,
// or a call that counts as soon though it comes late. A pause is many times `repeat_after`, since the
// proxy may learn late that an answer was taken.
const contract = (defaults) => ({ // what is asked for often here is no loop
    defaults: { loop: 'off', ...defaults }, tools: { put: { class: 'write', on_repeat: 'run' }, wipe: { class: 'write' } },
});
const pauseMs = 400;
const place = new Place({ contract: contract({ repeat_after: '20ms', delivered_within: '20s' }) });
const open = place.open.bind(place);

// Here every repeat comes too soon.
const soon = new Place({ contract: contract({ repeat_after: '1h', delivered_within: '20s' }) });

// Here `delivered_within` is the default, 1s: an answer that takes longer proves nothing.
const strict = new Place({ contract: contract({ repeat_after: '300ms' }) });
const slow = 'effect wait:1200 answer';

// Asks until an answer came in time, so that the next call is a repeat.
async function askUntilItRuns(client, args, text) {
    const last = await eventually('it runs again', async () => {
        await sleep(pauseMs);
        const answer = await client.call('put', args);
        return answer.result._meta?.['semel/replayed'] ? null : answer;
    }, 60_000);
    assertFresh(last, text);
}

// ---- stdio

test('who had the answer at once, and asks again later, means it: listed or not', async () => {
    const client = await open();
    for (const tool of ['append', 'put']) {
        const args = { what: `meant-${tool}` };
        assertFresh(await client.call(tool, args), `${args.what}: 1`);
        await sleep(pauseMs);
        assertFresh(await client.call(tool, args), `${args.what}: 2`);
        await sleep(pauseMs);
        assertFresh(await client.call(tool, args), `${args.what}: 3`);
    }
    await client.close();
});

test('who had the answer at once, and asks again too soon, does not mean it', async () => {
    const client = await soon.open();
    assertFresh(await client.call('put', { what: 'soon' }), 'soon: 1');
    assertReplayed(await client.call('put', { what: 'soon' }), 'soon: 1');
    await client.close();
});

test('who names the action, by a key or a step, does not mean another one by the same name', async () => {
    const client = await open();
    const names = { key: { idempotencyKey: 'order-1' }, step: { _meta: { 'semel/step': '1' } } };
    for (const [how, more] of Object.entries(names)) {
        const args = { what: `named-${how}` };
        assertFresh(await client.call('put', args, more), `${args.what}: 1`);
        await sleep(pauseMs);
        const again = await client.call('put', args, more);
        assertReplayed(again, `${args.what}: 1`);
        assert.doesNotMatch(again.result.content.at(-1).text, /once more/, 'it is not told to do what is of no use');
        await sleep(pauseMs);
        assertReplayed(await client.call('put', args, more), `${args.what}: 1`);
        // Unless it says so.
        const _meta = { ...more._meta, 'semel/after': effectOf(again) };
        assertFresh(await client.call('put', args, { ...more, _meta }), `${args.what}: 2`);
    }
    await client.close();
});

test('a client that is written to all the time is known to have its answers', async () => {
    const client = await open();
    let busy = true;
    const noise = (async () => {
        while (busy) await client.call('look', { what: 'noise', script: 'answer' });
    })();
    assertFresh(await client.call('put', { what: 'busy' }), 'busy: 1');
    await sleep(pauseMs);
    assertFresh(await client.call('put', { what: 'busy' }), 'busy: 2');
    busy = false;
    await noise;
    await client.close();
});

test('equal repeats at once are one, and a repeat that was slow is itself not repeated', async () => {
    const [crowd, slowly] = [{ what: 'crowd' }, { what: 'slowly', script: `effect answer | ${slow}` }];
    const client = await open();
    assertFresh(await client.call('put', crowd), 'crowd: 1');
    await sleep(pauseMs);
    await Promise.all([1, 2, 3].map(() => client.call('put', crowd)));
    assert.equal(place.effects('crowd'), 2);
    await client.close();

    const other = await strict.open();
    await other.call('put', slowly);
    await askUntilItRuns(other, slowly, 'slowly: 2');
    await sleep(pauseMs);
    assertReplayed(await other.call('put', slowly), 'slowly: 2');
    await other.close();
});

// As Python's mcp 1.x does: it sends no cancel, reads the late answer and throws it away.
test('a client that has given up drops the late answer without a word: its retry gets the record', async () => {
    const client = await strict.open();
    const args = { what: 'late', script: slow };
    await client.call('put', args);
    await sleep(pauseMs);
    assertReplayed(await client.call('put', args), 'late: 1');
    assert.equal(strict.effects('late'), 1);
    await askUntilItRuns(client, args, 'late: 2'); // it had the record at once
    await client.close();
});

// The client's end is a socket, as Node.js makes it, or a pipe, as others do.
const stills = {
    socket: async () => {
        const client = await strict.open();
        const { _handle: end } = client.child.stdout;
        return { client, stop: () => end.readStop(), go: () => end.readStart() };
    },
    pipe: async () => {
        const file = `${strict.directory}/cat`;
        const through = ['bash', '-c', `"$@" | { echo $BASHPID >${file}; exec cat; }`, 'bash', ...strict.command()];
        const client = new LineClient(through, { env: strict.env, place: strict });
        await client.initialize();
        const signal = (name) => process.kill(Number(fs.readFileSync(file, 'utf8')), name);
        return { client, stop: () => signal('SIGSTOP'), go: () => signal('SIGCONT') };
    },
};
for (const [kind, start] of Object.entries(stills)) {
    test(`a client that stands still has not taken what is in its ${kind}`, async () => {
        const { client, stop, go } = await start();
        const [args, moves] = [{ what: `still-${kind}` }, { what: `moves-${kind}` }];
        assertFresh(await client.call('put', moves), `moves-${kind}: 1`);
        stop();
        const answer = client.call('put', args);
        await eventually('it is done', () => strict.effects(args.what) === 1);
        await sleep(1200);
        go();
        assertFresh(await answer, `${args.what}: 1`);
        await sleep(pauseMs);
        assertReplayed(await client.call('put', args), `${args.what}: 1`);
        await askUntilItRuns(client, moves, `moves-${kind}: 2`);
        await client.close();
    });
}

test('a proxy that stood still does not know how long its client has waited', async () => {
    const client = await strict.open();
    const args = { what: 'stopped' };
    assertFresh(await client.call('put', { what: 'before' }));
    process.kill(client.pid, 'SIGSTOP');
    const answer = client.call('put', args);
    await sleep(2600);
    process.kill(client.pid, 'SIGCONT');
    assertFresh(await answer, 'stopped: 1');
    await sleep(pauseMs);
    assertReplayed(await client.call('put', args), 'stopped: 1');
    assert.equal(strict.effects('stopped'), 1);
    await client.close();
});

test('a cancel that comes after the answer: whoever gave up may not have seen it', async () => {
    const client = await open();
    const args = { what: 'cancelled' };
    const id = client.nextId;
    assertFresh(await client.call('put', args), 'cancelled: 1');
    client.cancel(id);
    await sleep(pauseMs);
    assertReplayed(await client.call('put', args), 'cancelled: 1');
    assert.equal(place.effects('cancelled'), 1);
    await client.close();
});

test('a late cancel is about its id, as a number or as a text, and about all that had it', async () => {
    const client = await open();
    const call = (id, what) => {
        const answer = client.answer(id);
        client.send({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'put', arguments: { what } } });
        return answer;
    };
    assertFresh(await call(99, 'id-x'), 'id-x: 1');
    assertFresh(await call(99, 'id-y'), 'id-y: 1');
    client.cancel('99');
    await sleep(pauseMs);
    assertFresh(await call(98, 'id-x'), 'id-x: 2');
    client.cancel(99);
    await sleep(pauseMs);
    assertReplayed(await call(97, 'id-y'), 'id-y: 1');
    await client.close();
});

test('whoever greets the server anew is another client', async () => {
    const client = await open();
    const args = { what: 'anew' };
    assertFresh(await client.call('put', args), 'anew: 1');
    await client.initialize();
    await sleep(pauseMs);
    assertReplayed(await client.call('put', args), 'anew: 1');
    await client.close();
});

test('what another process was told proves nothing', async () => {
    const [one, two] = [await open(), await open()];
    const args = { what: 'other' };
    assertFresh(await one.call('put', args), 'other: 1');
    await sleep(pauseMs);
    assertReplayed(await two.call('put', args), 'other: 1');
    // And one that was told of an older effect than there is now gets the newer one first.
    assertFresh(await one.call('put', args), 'other: 2');
    await sleep(pauseMs);
    assertReplayed(await two.call('put', args), 'other: 2');
    await Promise.all([one.close(), two.close()]);
});

test('the answers of a batch prove nothing', async () => {
    const client = await open({ version: '2025-03-26' });
    const args = { what: 'batch' };
    const message = (id) => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'put', arguments: args } });
    for (const [id, check] of [['b1', assertFresh], ['b2', assertReplayed]]) {
        const answer = client.answer(id);
        client.send([message(id)]);
        check(await answer, 'batch: 1');
        await sleep(pauseMs);
    }
    await client.close();
});

for (const modern of [true, false]) {
    test(`a ${modern ? 'modern' : 'legacy'} task: its handle is not its result, and it is not started again`, async () => {
        const client = await open({ modern });
        const args = { what: `task-${modern}`, script: 'effect task' };
        const more = modern ? {} : { task: { ttl: 60000 } };
        for (let i = 0; i < 3; i++) {
            const { result } = await client.call('put', args, more);
            assert.equal(modern ? result.taskId : result.task.taskId, `task-${args.what}`);
            await sleep(pauseMs);
        }
        assert.equal(place.effects(args.what), 1);
        await client.close();
    });
}

test('who was told that it is done, without its result, does not know it: no repeat is meant', async () => {
    const client = await open();
    const args = { what: 'no-result', script: 'effect exit:1' };
    const { effect } = assertVerdict(await client.call('put', args), 'IN_DOUBT');
    place.json('resolve', effect, '--applied', '', '--evidence', 'looked');
    for (let i = 0; i < 3; i++) {
        assertVerdict(await client.call('put', args), 'ALREADY_DONE');
        await sleep(pauseMs);
    }
    assert.equal(place.effects('no-result'), 1);
    await client.close();
});

test('a modern client on stdio: the same rule', async () => {
    const client = await strict.open({ modern: true });
    const [quick, late] = [{ what: 'young' }, { what: 'young-late', script: slow }];
    assertFresh(await client.call('put', quick), 'young: 1');
    await client.call('put', late);
    await askUntilItRuns(client, quick, 'young: 2');
    assertReplayed(await client.call('put', late), 'young-late: 1');
    await client.close();
});

test('delivered_within: what an answer may take, for tools that nobody listed too; 0s believes nothing', async () => {
    for (const [within, ran] of [['20s', 2], ['0s', 1]]) {
        const other = new Place({ contract: { defaults: { repeat_after: '20ms', delivered_within: within }, tools: {} } });
        const client = await other.open();
        const args = { what: 'w', script: within === '20s' ? slow : 'effect answer' };
        await client.call('append', args);
        await sleep(pauseMs);
        assertDone(await client.call('append', args), `w: ${ran}`);
        await client.close();
    }
});

// ---- the note for the model

const noteOf = (answer) => answer.result.content.at(-1).text;

test('a replay says that nothing ran, since when it is, and what gets a fresh answer in this session', async () => {
    const client = await soon.open();
    const args = { what: 'note' };
    assertFresh(await client.call('append', args), 'note: 1');
    const replay = await client.call('append', args);
    const { settled_at: done } = soon.show(effectOf(replay));
    assert.match(noteOf(replay), /NOT run again.* make the same call once more, 1h from now or later: then it runs\.$/);
    assert.ok(noteOf(replay).includes(done), noteOf(replay));
    await client.close();

    // One of these two waits so long for the other's answer that it will not count.
    const other = await strict.open();
    const slowly = { what: 'note-slow', script: 'effect wait:1300 answer' };
    const both = await Promise.all([1, 2].map(() => other.call('append', slowly)));
    const notes = both.filter((one) => one.result._meta?.['semel/replayed']).map(noteOf);
    assert.equal(notes.length, 1);
    assert.match(notes[0], /make the same call once more: its answer says when it runs\.$/);
    await other.close();
});

test('beside structuredContent the note is followed by an item that is not a text, and what was recorded stays', async () => {
    const client = await soon.open();
    const args = { what: 'structured', script: 'effect structured answer' };
    const fresh = await client.call('append', args);
    const replay = await client.call('append', args);
    assertReplayed(replay, 'structured: 1');
    assert.deepEqual(replay.result.structuredContent, fresh.result.structuredContent);
    const [recorded, note, item, ...none] = replay.result.content;
    assert.deepEqual([[recorded], none], [fresh.result.content, []]);
    assert.match(note.text, /NOT run again/);
    assert.equal(item.type, 'resource');
    assert.equal(item.resource.uri, `semel://effect/${effectOf(replay)}`);
    assert.equal(JSON.parse(item.resource.text)['semel/replayed'], true);
    await client.close();
});

test('a result that has no content is replayed with the note alone', async () => {
    const client = await soon.open();
    const args = { what: 'bare', script: 'effect tell' };
    const fresh = await client.call('append', args);
    assert.deepEqual(fresh.result.content, []);
    const { result } = await client.call('append', args);
    assert.equal(result._meta['semel/replayed'], true);
    assert.equal(result.content.length, 1);
    assert.match(result.content[0].text, /NOT run again/);
    assert.equal(soon.effects('bare'), 1);
    await client.close();
});

// ---- semel/after

const after = (effect) => ({ _meta: { 'semel/after': effect } });

async function saysSo(client, count) {
    const args = { what: `says-${count}` };
    assertFresh(await client.call('append', args), `${args.what}: 1`);
    const first = effectOf(await client.call('append', args));
    await sleep(pauseMs);
    const second = await client.call('append', args, after(first));
    assertFresh(second, `${args.what}: 2`);
    // What has been repeated is not repeated again: the request may have been sent twice.
    await sleep(pauseMs);
    assertReplayed(await client.call('append', args, after(first)), `${args.what}: 2`);
    const newest = effectOf(await client.call('append', args, after(first)));
    assert.notEqual(newest, first);
    assertFresh(await client.call('append', args, after(newest)), `${args.what}: 3`);
    assertVerdict(await client.call('append', args, after('nonsense')), 'BAD_ARGUMENTS');
    assertVerdict(await client.call('append', args, after(7)), 'BAD_ARGUMENTS');
    // The contract has the last word.
    const once = { what: `once-${count}` };
    assertFresh(await client.call('wipe', once), `${once.what}: 1`);
    const done = effectOf(await client.call('wipe', once));
    await sleep(pauseMs);
    assertReplayed(await client.call('wipe', once, after(done)), `${once.what}: 1`);
}

test('stdio: who names the effect that a call comes after repeats it, once', async () => {
    const silent = new Place({ contract: contract({ repeat_after: '300ms', delivered_within: '0s' }) });
    const client = await silent.open();
    await saysSo(client, 'stdio');
    await client.close();
});

// ---- over HTTP

const site = await Site.start({ contract: contract({ repeat_after: '300ms' }) });

for (const modern of [false, true]) {
    test(`a ${modern ? 'modern' : 'legacy'} client over HTTP: nothing proves delivery, and whoever says so repeats`, async () => {
        const client = await site.open({ modern });
        const args = { what: `http-${modern}` };
        assertFresh(await client.call('append', args), `${args.what}: 1`);
        for (let i = 0; i < 3; i++) {
            await sleep(pauseMs);
            assertReplayed(await client.call('append', args), `${args.what}: 1`);
        }
        assert.equal(site.place.effects(args.what), 1);
        // Only what is true here: nobody can make it run before the window ends.
        const unlisted = noteOf(await client.call('append', args));
        const end = /this same answer until (\S+)\. .*class: read/.exec(unlisted)?.[1];
        assert.ok(Math.abs(Date.parse(end) - Date.now() - 600_000) < 20_000, unlisted);
        const listed = { what: `listed-${modern}` };
        await client.call('put', listed);
        const note = noteOf(await client.call('put', listed));
        assert.match(note, /this same answer until .*A person can forget the record before that\.$/);
        assert.doesNotMatch(note, /class: read/);
        await saysSo(client, `http-${modern}`);
    });
}

await run();
