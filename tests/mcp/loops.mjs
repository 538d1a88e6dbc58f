// A run that repeats itself, through the MCP proxy: the model is warned beside the result, then blocked
// with the recorded result, then its run is stopped. Loop detection is on by default.

import { Place, assert, assertFresh, assertReplayed, assertVerdict, effectOf } from './harness.mjs';
import { Site } from './http_harness.mjs';
import { run, test } from '../gateway/tap.mjs';

const contract = {
    defaults: { repeat_after: '1h' }, // no repeat is deliberate
    tools: {
        append: { class: 'write' },
        wipe: { class: 'write' },
        put: { class: 'write', on_repeat: 'run' },
        look: { class: 'read' },
        keyed: { class: 'read', loop: { block: 4 } },
        secret: { class: 'read', loop: { poll: true } },
    },
};
const place = new Place({ contract });
const site = await Site.start({ contract });

const advice = 'Use the result you have, change the arguments, or stop.';
const returned = (times) => `The same call returned the same result ${times} times. ${advice}`;

// Each in a run of its own: one that is stopped stays so.
let runs = 0;
const ways = {
    'stdio, legacy': () => place.open({ scope: `run-${++runs}` }),
    'stdio, modern': () => place.open({ modern: true, scope: `run-${++runs}` }),
    async http() {
        const client = await site.open();
        const _meta = { 'semel/scope': `shop/run-${++runs}` };
        const call = client.call.bind(client);
        client.call = (name, args, more = {}) => call(name, args, { ...more, _meta: { ...more._meta, ..._meta } });
        return client;
    },
};

// The result has exactly this warning, behind what it had.
function assertWarned(answer, items, warning) {
    const { content, _meta } = answer.result;
    assert.deepEqual(content.slice(0, items.length), items, 'what the tool returned comes first');
    const more = content.slice(items.length);
    assert.deepEqual(more.at(-1), { type: 'text', text: warning }, answer.line);
    assert.equal(_meta['semel/warning'], warning);
    return more;
}

function assertUnwarned(answer) {
    assert.equal(answer.result._meta?.['semel/warning'], undefined, answer.line);
    assert.doesNotMatch(answer.line, /change the arguments/);
}

for (const [way, open] of Object.entries(ways)) {
    test(`${way}: a repeated call is warned of, then blocked with its result, then its run is stopped`, async () => {
        const client = await open();
        const args = { what: `loop-${way}` };
        const first = assertFresh(await client.call('append', args), `${args.what}: 1`);
        const second = await client.call('append', args);
        assertReplayed(second, `${args.what}: 1`);
        assertUnwarned(second);
        for (let count = 3; count <= 4; count++) {
            const again = await client.call('append', args);
            assertReplayed(again, `${args.what}: 1`);
            assert.equal(assertWarned(again, first.content, returned(count)).length, 1, 'one text more');
        }
        for (let count = 5; count <= 8; count++) {
            const blocked = await client.call('append', args);
            const what = count < 8 ? /change the arguments, or stop/ : /A person can reopen the run/;
            const verdict = assertVerdict(blocked, 'LOOP_DETECTED', what);
            assert.deepEqual([verdict.detector, verdict.period, verdict.count], ['repeat', 1, count]);
            assert.equal(verdict.retriable, false);
            assert.equal(verdict.effect, effectOf(second));
            assert.deepEqual(blocked.result.content.slice(1), first.content, 'nothing is lost');
            assert.equal(blocked.result.structuredContent, undefined);
        }
        const stopped = await client.call('wipe', { what: `other-${way}` });
        assertVerdict(stopped, 'LOOP_DETECTED', /until a person reopens it/);
        assert.equal(stopped.result.content.length, 1);
        assertFresh(await client.call('look', { what: 'still', script: 'answer' }));
        assert.equal((way === 'http' ? site.place : place).effects(args.what), 1);
        await client.close?.();
    });

    test(`${way}: a call that has just run is warned of in its own answer`, async () => {
        const client = await open();
        const args = { what: `fails-${way}`, script: 'fail answer' };
        for (let count = 1; count <= 4; count++) {
            const answer = await client.call('append', args);
            assert.equal(answer.result.isError, true, answer.line);
            assert.equal(answer.result._meta?.['semel/replayed'], undefined, 'it ran');
            if (count < 3) assertUnwarned(answer);
            else assertWarned(answer, [{ type: 'text', text: `${args.what}: 0` }], returned(count));
        }
        const blocked = await client.call('append', args);
        const verdict = assertVerdict(blocked, 'LOOP_DETECTED', /returned the same result 4 times/);
        assert.equal(verdict.count, 5);
        assert.deepEqual(blocked.result.content.slice(1), [{ type: 'text', text: `${args.what}: 0` }]);
        await client.close?.();
    });

    test(`${way}: a read is warned of if it returns the same, and only then`, async () => {
        const rows = [['look', 'answer', true], ['look', 'effect answer', false], ['secret', 'answer', false]];
        for (const [tool, script, warns] of rows) {
            const client = await open();
            const args = { what: `read-${way}-${script}`, script };
            for (let count = 1; count <= 10; count++) {
                const answer = assertFresh(await client.call(tool, args));
                if (warns && count >= 3) assertWarned({ result: answer }, [answer.content[0]], returned(count));
                else assertUnwarned({ result: answer, line: JSON.stringify(answer) });
            }
            await client.close?.();
        }
    });

    test(`${way}: a read whose contract blocks is blocked`, async () => {
        const client = await open();
        const args = { what: `strict-${way}`, script: 'answer' };
        for (let count = 1; count <= 3; count++) {
            const answer = await client.call('keyed', args);
            assertFresh(answer, `${args.what}: 0`);
            if (count < 3) assertUnwarned(answer);
            else assertWarned(answer, [answer.result.content[0]], returned(3));
        }
        assert.equal(assertVerdict(await client.call('keyed', args), 'LOOP_DETECTED').count, 4);
        await client.close?.();
    });
}

test('the note of a replay comes first, then the warning; beside structuredContent both are for programs, too', async () => {
    const client = await place.open({ scope: `run-${++runs}` });
    const args = { what: 'noted', script: 'effect structured meta answer' };
    const first = assertFresh(await client.call('put', args));
    await client.call('put', args);
    const third = assertReplayed(await client.call('put', args));
    assert.deepEqual(third.content.slice(0, first.content.length), first.content);
    assert.deepEqual(third.structuredContent, first.structuredContent);
    assert.equal(third._meta['example.org/trace'], 'noted');
    assert.equal(third._meta['semel/warning'], returned(3));
    const [note, warning, resource, ...rest] = third.content.slice(first.content.length);
    assert.match(note.text, /was NOT run again/);
    assert.deepEqual(warning, { type: 'text', text: returned(3) });
    assert.equal(JSON.parse(resource.resource.text)['semel/warning'], returned(3));
    assert.deepEqual(rest, []);
    await client.close();
});

test('a tool that no contract lists is only warned of', async () => {
    const free = new Place({ contract: { defaults: { repeat_after: '1h' }, tools: {} } });
    const client = await free.open();
    const args = { what: 'free' };
    assertFresh(await client.call('append', args), 'free: 1');
    for (let count = 2; count <= 12; count++) {
        const answer = await client.call('append', args);
        assertReplayed(answer, 'free: 1');
        assert.equal(answer.result._meta['semel/warning'], count < 3 ? undefined : returned(count));
    }
    assert.equal(free.effects('free'), 1);
    await client.close();
});

test('whoever waits for a call that runs repeats nothing', async () => {
    const client = await place.open({ scope: `run-${++runs}`, patient: true });
    const args = { what: 'joined', script: 'mark:joined-begun gate:joined-go effect answer' };
    const first = client.call('append', args);
    await place.passed('joined-begun');
    const others = Array.from({ length: 8 }, () => client.call('append', args));
    // Its answer comes behind theirs, so they were read.
    await client.call('look', { what: 'behind', script: 'answer' });
    place.mark('joined-go');
    for (const answer of await Promise.all([first, ...others])) {
        assert.equal(answer.result.content[0].text, 'joined: 1', answer.line);
        assertUnwarned(answer);
    }
    const again = await client.call('append', args);
    assertReplayed(again, 'joined: 1');
    assertUnwarned(again);
    assert.equal(place.effects('joined'), 1);
    await client.close();
});

await run();
