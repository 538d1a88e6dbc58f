// How the proxy behaves towards clients: results that a client would not take, waiting with progress,
// and ends that are as clean as without it.

import fs from 'node:fs';
import process from 'node:process';
import { Site } from './http_harness.mjs';
import { Place, assert, assertDone, assertFresh, assertReplayed, assertVerdict, sdk1, sdk2, textOf } from './harness.mjs';
import { eventually, full, run, sleep, test } from '../gateway/tap.mjs';

// ---- what is replayed without a result

const outputSchema = {
    type: 'object', properties: { what: { type: 'string' }, exact: { type: 'number' } }, required: ['what', 'exact'],
};

// A place whose tool `append` has an outputSchema.
function typed(contract = { tools: { append: { class: 'write', on_repeat: 'replay' } } }) {
    const place = new Place({ contract });
    const hints = `${place.directory}/hints.json`;
    fs.writeFileSync(hints, JSON.stringify({ append: { outputSchema } }));
    place.server[place.server.length - 1] = JSON.stringify({ hints });
    return place;
}

// A call whose server dies, so that a person has to resolve it; and its answer.
async function lose(place, args) {
    const client = await place.open();
    const { effect } = assertVerdict(await client.call('append', args), 'IN_DOUBT');
    await client.close();
    return effect;
}

const values = {
    'no value': '',
    'a text': 'it was there',
    'an object that is no result': '{"id":"ch_1"}',
    'a result without structured content': '{"content":[{"type":"text","text":"by hand"}]}',
    'an empty result': '{"content":[]}',
};

for (const [name, value] of Object.entries(values)) {
    test(`a client that checks results takes what was resolved by hand: ${name}`, async () => {
        const place = typed();
        const args = { what: 'lost', script: 'effect exit:3' };
        const effect = await lose(place, args);
        place.json('resolve', effect, '--applied', value, '--evidence', 'looked');
        for (const open of [sdk1, sdk2]) {
            const client = await open(place);
            await client.listTools();
            const result = await client.callTool({ name: 'append', arguments: args });
            assert.equal(result.isError, true, JSON.stringify(result));
            assert.match(result.content[0].text, /^This was done already, at .* nothing ran now\./);
            assert.match(result.content[0].text, /Do not call this tool again/);
            assert.doesNotMatch(result.content[0].text, /was not kept/);
            assert.equal(result._meta['semel/replayed'], true);
            assert.equal(result._meta['semel/effect'], effect);
            const said = /by hand|it was there|ch_1/.exec(value)?.[0];
            if (said) assert.ok(JSON.stringify(result.content.slice(1)).includes(said), JSON.stringify(result));
            else assert.equal(result.content.length, 1);
            await client.close();
        }
        assert.equal(place.effects('lost'), 1);
    }); // five processes, and two SDKs that are loaded
}

test('a result that the tool itself made is replayed to a client that checks it', async () => {
    const place = typed();
    const args = { what: 'made', script: 'effect structured answer' };
    for (const open of [sdk1, sdk2]) {
        const client = await open(place);
        await client.listTools();
        const result = await client.callTool({ name: 'append', arguments: args });
        assert.deepEqual(result.structuredContent, { what: 'made', exact: 12345 });
        assert.notEqual(result.isError, true);
        await client.close();
    }
    assert.equal(place.effects('made'), 1);
});

test('without an outputSchema, what a person recorded is a result like any other', async () => {
    const place = new Place({ contract: { tools: { append: { class: 'write' } } } });
    const args = { what: 'plain', script: 'effect exit:3' };
    const effect = await lose(place, args);
    place.json('resolve', effect, '--applied', '{"id":"ch_1"}', '--evidence', 'looked');
    const client = await place.open();
    const { structuredContent } = assertReplayed(await client.call('append', args));
    assert.deepEqual(structuredContent, { id: 'ch_1' });
    await client.close();
});

test('what was recorded elsewhere and is too large to be kept is told as done', async () => {
    const place = new Place({ contract: { tools: { append: { class: 'write' } } } });
    const begun = place.json('begin', '--scope', place.name, '--tool', 'append', '--args', '{"what":"large"}');
    const file = `${place.directory}/large`;
    fs.writeFileSync(file, 'x'.repeat(1024 * 1024 + 1));
    place.json('commit', begun.claim, '--value-file', file);
    const client = await place.open();
    const answer = await client.call('append', { what: 'large' });
    const { effect } = assertVerdict(answer, 'ALREADY_DONE', /Its result of 1048577 bytes was not kept/);
    assert.equal(effect, begun.effect);
    assert.equal(answer.result._meta['semel/replayed'], true);
    assert.equal(place.effects('large'), 0);
    await client.close();
});

test('a result of more values than the ledger reads is replayed as it was', async () => {
    const place = new Place({ contract: { tools: { append: { class: 'write' } } } });
    const client = await place.open();
    const args = { what: 'many', script: 'effect many:300000 answer' };
    const first = assertFresh(await client.call('append', args), 'many: 1');
    const second = assertReplayed(await client.call('append', args), 'many: 1');
    assert.equal(second.many.length, first.many.length);
    await client.close();
});

if (full) test('more answers than there is room for: who gets none is told so, and asks again', async () => {
    const place = new Place({ contract: { tools: { append: { class: 'write' } } } });
    const client = await place.open();
    const args = { what: 'large', script: 'effect big:16000000 answer' };
    assertFresh(await client.call('append', args));
    const answers = await Promise.all(Array.from({ length: 30 }, () => client.call('append', args)));
    assert.ok(answers.some((one) => one.error), 'there was not room for all');
    for (const one of answers) assert.match(one.error?.message ?? 'ask again', /ask again/);
    assertReplayed(await client.call('append', args));
    assert.equal(place.effects('large'), 1);
    await client.close();
});

if (full) test('batches that there is no room for: each request has an error', async () => {
    const place = new Place({ contract: { tools: { append: { class: 'write' } } } });
    const client = await place.open({ version: '2025-03-26' });
    const args = { what: 'large', script: 'effect big:16000000 answer' };
    assertFresh(await client.call('append', args));
    client.child.stdout.pause();
    const ids = [0, 1, 2].map((batch) => Array.from({ length: 7 }, (_, i) => `${batch}-${i}`));
    const answers = ids.flat().map((id) => client.answer(id));
    for (const batch of ids)
        client.send(batch.map((id) => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'append', arguments: args } })));
    await eventually('there is no room', () => client.stderr.includes('does not read'), 30_000);
    client.child.stdout.resume();
    const errors = (await Promise.all(answers)).filter((one) => one.error);
    const lost = ids.find((batch) => batch.includes(errors[0].id)); // which one is the last is a matter of turns
    assert.deepEqual(errors.map((one) => one.id), lost);
    for (const one of errors) assert.match(one.error.message, /ask again/);
    await client.close();
});

// ---- waiting

const waits = { tools: { append: { class: 'write' }, put: { class: 'write', approval: { expires: '1h' } } } };
const held = { what: 'held', script: 'mark:begun gate:go effect answer' };
const timed = async (promise) => {
    const since = Date.now();
    const answer = await promise;
    return { answer, ms: Date.now() - since };
};

// The progress for a token: growing values, with words; before the answer and not after it.
function assertProgress(client, token, words, least = 1) {
    const told = client.progress(token).map((one) => one.params);
    assert.ok(told.length >= least, JSON.stringify(client.notes));
    told.reduce((before, one) => {
        assert.ok(one.progress > before, JSON.stringify(told));
        return one.progress;
    }, -Infinity);
    assert.ok(told.some((one) => words.test(one.message)), JSON.stringify(told)); // a slow ledger is told of first
    return told;
}

// Two clients of one ledger over stdio, or of one gateway; and how both end.
const fronts = {
    stdio: async () => {
        const place = new Place({ contract: waits });
        const [one, two] = [await place.open(), await place.open()];
        return { place, one, two, end: () => Promise.all([one.close(), two.close()]) };
    },
    HTTP: async () => {
        const site = await Site.start({ contract: waits });
        return { place: site.place, one: await site.open(), two: await site.open(), end: () => site.gw.stop() };
    },
};

for (const [name, open] of Object.entries(fronts)) {
    test(`${name}: who waits without a progress token is answered before any client gives up`, async () => {
        const { place, one, two, end } = await open();
        const first = one.call('append', held);
        await place.passed('begun');
        const { answer, ms } = await timed(two.call('append', held));
        const verdict = assertVerdict(answer, 'RETRY_IN_FLIGHT', /make the same call again to get its result/);
        assert.ok(ms < 20_000, `${ms} ms`); // limits.h asserts that it is below 5 s
        assert.ok(verdict.retry_after_ms >= 5000);
        assert.deepEqual(two.notes, []);
        place.mark('go');
        assertFresh(await first);
        assertReplayed(await two.call('append', held));
        assert.equal(place.effects('held'), 1);
        await end();
    });

    test(`${name}: who waits with a progress token is told so, in time and until the end`, async () => {
        const { place, one, two, end } = await open();
        const first = one.call('append', held);
        await place.passed('begun');
        const tokens = ['a text', 17];
        const seconds = tokens.map((progressToken) => two.call('append', held, { _meta: { progressToken } }));
        await eventually('it is told', () => tokens.every((token) => two.progress(token).length > 0));
        await eventually('and again, beyond the short wait', () => tokens.every((token) => two.progress(token).length > 3));
        place.mark('go');
        assertFresh(await first);
        for (const second of seconds) assertReplayed(await second);
        for (const token of tokens) assertProgress(two, token, /^Waiting for the same call/, 4);
        const told = two.notes.length;
        await sleep(2000);
        assert.equal(two.notes.length, told, 'nothing is told after the answer');
        await end();
    });

    test(`${name}: who waits for an approval is told for which, and what runs then has its own progress`, async () => {
        const { place, one, end } = await open();
        const args = { what: 'approved', script: 'progress:3 effect answer' };
        const { request } = assertVerdict(await one.call('put', args), 'AWAITING_APPROVAL');
        const again = one.call('put', args, { _meta: { progressToken: 'p' } });
        await eventually('it is told', () => one.progress('p').length > 1);
        place.json('approve', request);
        assertFresh(await again, 'approved: 1');
        const told = assertProgress(one, 'p', new RegExp(`approval request ${request}`), 5);
        assert.deepEqual(told.slice(-3).map((each) => each.progress), [1, 2, 3]);
        await end();
    });
}

test('waiting calls with the same token are told values that grow', async () => {
    const { place, one, two, end } = await fronts.stdio();
    const first = one.call('append', held);
    await place.passed('begun');
    const seconds = [1, 2].map(() => two.call('append', held, { _meta: { progressToken: 'same' } }));
    await eventually('both are told', () => two.progress('same').length > 3);
    place.mark('go');
    await Promise.all([first, ...seconds]);
    assertProgress(two, 'same', /Waiting/, 4);
    await end();
});

test('a client is told nothing after a progress that no number is larger than', async () => {
    for (const value of ['1.7976931348623157e308', '1e999']) {
        const place = new Place({ contract: waits });
        const client = await place.open();
        const args = { what: 'leaps', script: `mark:begun gate:leap leap:${value} gate:go effect answer` };
        const first = client.call('append', args, { _meta: { progressToken: 'first' } });
        await place.passed('begun');
        const second = client.call('append', args, { _meta: { progressToken: 'second' } });
        await eventually('it waits', () => client.progress('second').length > 0);
        place.mark('leap');
        await eventually('both are told', () => ['first', 'second'].every((token) => client.progress(token).some((one) => one.params.progress > 1)));
        const told = client.progress('second').length;
        await sleep(2000); // longer than the pause between two of our own
        assert.equal(client.progress('second').length, told);
        assert.deepEqual(client.junk, []);
        place.mark('go');
        assertFresh(await first, 'leaps: 1');
        assertReplayed(await second, 'leaps: 1');
        await client.close();
    }
});

test('what cannot be a progress token is none', async () => {
    const { place, one, two, end } = await fronts.stdio();
    const first = one.call('append', held);
    await place.passed('begun');
    const odd = [null, true, {}, ['a'], '', -1.5];
    const answers = await Promise.all(odd.map((progressToken) => {
        const answer = two.call('append', held, { _meta: { progressToken } });
        return Promise.race([answer, sleep(4900)]);
    }));
    for (const answer of answers.slice(0, 4)) assertVerdict(answer, 'RETRY_IN_FLIGHT');
    place.mark('go');
    assertFresh(await first);
    await end();
});

test('a probe that is slower than clients wait goes on, and the next call has what it found', async () => {
    const contract = { tools: {
        append: {
            class: 'write', on_in_doubt: ['probe', 'hold'],
            probe: {
                tool: 'look', args: { '/of': '/what', '/script': '/probe' },
                applied: { when: [{ field: '/count', over: 0 }], outcome: '/receipt' },
                absent: { when: [{ field: '/count', under: 1 }] },
            },
        },
        look: { class: 'read' },
    } };
    const place = new Place({ contract });
    const client = await place.open();
    const args = { what: 'probed', script: 'effect exit:3', probe: 'mark:asked gate:go knows answer' };
    assertVerdict(await client.call('append', args), 'UPSTREAM_TIMEOUT');
    const { answer, ms } = await timed(client.call('append', args));
    assertVerdict(answer, 'UPSTREAM_TIMEOUT', /has not answered yet/);
    assert.ok(ms < 4900, `${ms} ms`);
    await place.passed('asked');
    place.mark('go');
    const { structuredContent } = assertReplayed(await client.call('append', args));
    assert.equal(structuredContent.of, 'probed');
    assert.equal(place.received('tools/call').filter((one) => one.params.name === 'look').length, 1);
    await client.close();
});

// ---- leaving

test('a client that leaves in the middle of a write hears no more, and what it left is recorded', async () => {
    const place = new Place({ contract: { tools: { append: { class: 'write' } } } });
    const client = await place.open();
    client.call('append', { what: 'left', script: 'mark:begun gate:go effect log answer' }).catch(() => {});
    client.call('look', { what: 'read', script: 'gate:go log answer' }).catch(() => {});
    await place.passed('begun');
    await sleep(1000); // it is silent for a moment, as one is that has timed out
    const heard = client.lines.length;
    client.child.stdin.end();
    await sleep(100);
    place.mark('go');
    assert.deepEqual(await client.exit, { code: 0, signal: null });
    assert.deepEqual(client.lines.slice(heard), []);
    assert.equal(place.list()[0].state, 'succeeded');
    assert.equal(place.effects('left'), 1);
});

// Resolves when `once` has taken less than the silence after which a client has left, or says why not.
async function quickly(once) {
    const took = [];
    for (let tries = 0; tries < 20; tries++) {
        const before = performance.now();
        await once();
        took.push(Math.round(performance.now() - before));
        if (took.at(-1) < 200) return;
    }
    throw new Error(`the machine is too slow for this test: ${took} ms`);
}

for (const together of [false, true]) {
    const who = together ? 'it was stopped together with the proxy' : 'the proxy was stopped before it saw the end';
    test(`whoever pipes a request in gets its answer, although ${who}`, async () => {
        const place = new Place({ contract: { tools: { append: { class: 'write' } } } });
        const client = await place.open();
        const answer = client.call('append', { what: 'piped', script: 'mark:begun gate:go effect answer' });
        await place.passed('begun');
        await quickly(async () => {
            process.kill(client.pid, 'SIGCONT');
            await client.request('ping');
            process.kill(client.pid, 'SIGSTOP');
        });
        if (!together) client.child.stdin.end();
        await sleep(2000);
        process.kill(client.pid, 'SIGCONT');
        if (together) client.child.stdin.end();
        place.mark('go');
        assertDone(await answer, 'piped: 1');
        assert.deepEqual(await client.exit, { code: 0, signal: null });
    });
}

test('whoever pipes requests in gets all answers, although the input has ended, and longer ago than a lease', async () => {
    const place = new Place({ contract: { tools: { append: { class: 'write', lease: '100ms' } } } });
    const client = place.start();
    const initialized = client.initialize();
    const answers = ['append', 'look'].map((tool) => client.call(tool, { what: tool, script: 'wait:700 effect answer' }));
    client.child.stdin.end();
    await initialized;
    for (const answer of answers) assertFresh(await answer);
    await client.exit;
});

test('over HTTP, a session that is ended in the middle of a write ends the stream without an answer', async () => {
    const site = await Site.start({ contract: { tools: { append: { class: 'write' } } } });
    const client = await site.open();
    const answer = client.call('append', { what: 'left', script: 'mark:begun gate:go effect answer' });
    await site.place.passed('begun');
    assert.equal((await client.end()).status, 200);
    const { status, type, messages } = await answer;
    assert.deepEqual({ status, type, messages }, { status: 200, type: 'text/event-stream', messages: [] });
    site.place.mark('go');
    await eventually('it is recorded', () => site.place.json('list').items[0].state === 'succeeded');
    assert.equal(site.place.effects('left'), 1);
    await site.gw.stop();
});

// ---- processes

const alive = (pid) => {
    try {
        process.kill(pid, 0);
        return !/^State:\s+Z/m.test(fs.readFileSync(`/proc/${pid}/status`, 'utf8'));
    } catch {
        return false;
    }
};
const groupOf = (pid) => Number(fs.readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ')[2]);
const write = { tools: { append: { class: 'irreversible', key: { fields: ['/what'] } } } };

test('a client that ends its process group in the middle of a write leaves no doubt', async () => {
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) {
        const place = new Place({ contract: write });
        const client = await place.open({ detached: true });
        const answer = client.call('append', { what: signal, script: 'mark:begun gate:go effect answer' });
        answer.catch(() => {});
        await place.passed('begun');
        const server = place.serverOf(signal);
        assert.equal(groupOf(server), server);
        process.kill(-client.pid, signal);
        place.mark('go');
        const ended = await client.exit;
        assert.deepEqual(ended, { code: null, signal });
        assert.equal(place.list()[0].state, 'succeeded');
        assert.equal(place.effects(signal), 1);
        await eventually('the server has ended', () => !alive(server));
    }
});

test('who asks twice waits for no write', async () => {
    const start = async (what) => {
        const place = new Place({ contract: write });
        const client = await place.open({ detached: true });
        client.call('append', { what, script: 'mark:begun effect never' }).catch(() => {});
        await place.passed('begun');
        return { place, client, ended: client.exit.then(() => what) };
    };
    const [once, twice] = await Promise.all([start('once'), start('twice')]);
    for (const { client } of [once, twice]) process.kill(-client.pid, 'SIGTERM');
    process.kill(-twice.client.pid, 'SIGINT');
    assert.equal(await Promise.race([once.ended, twice.ended]), 'twice');
    await once.ended;
    for (const { place } of [once, twice]) assert.equal(place.list()[0].state, 'in_doubt');
});

test('a signal that is sent once reaches the server once, whatever ends after it', async () => {
    const place = new Place({ contract: { tools: { look: { class: 'read' } } }, options: { stubborn: true } });
    const client = await place.open();
    const read = client.call('look', { what: 'read', script: 'mark:begun gate:go answer' });
    await place.passed('begun');
    client.child.kill('SIGTERM');
    await eventually('the server has got it', () => place.file('signals').length > 0);
    place.mark('go');
    assertDone(await read, 'read: 0');
    assertDone(await client.call('look', { what: 'next', script: 'answer' }), 'next: 0');
    assert.deepEqual(await client.close(), { code: 0, signal: null });
    assert.deepEqual(place.file('signals'), ['SIGTERM']);
});

test('a proxy that is killed takes its server with it', async () => {
    const place = new Place({ contract: write, options: { linger: 3_600_000 } });
    const client = await place.open();
    client.call('append', { what: 'killed', script: 'mark:begun effect never' }).catch(() => {});
    await place.passed('begun');
    const server = place.serverOf('killed');
    await client.kill();
    await eventually('the server has ended', () => !alive(server));
    const again = await place.open();
    assertVerdict(await again.call('append', { what: 'killed' }), 'IN_DOUBT');
    await again.close();
});

test('what a server has started ends with it when it is asked to, and not when it ends by itself', async () => {
    // A shell that starts a process, which ignores signals, and becomes the server.
    for (const asked of [true, false]) {
        const place = new Place();
        const file = `${place.directory}/left`;
        const inner = place.server.map((word) => `'${word}'`).join(' ');
        place.server = ['sh', '-c', `(trap '' TERM; exec >&- 2>&- <&-; exec sleep 60) & echo $! > ${file}; exec ${inner}`];
        const client = await place.open();
        const left = Number(fs.readFileSync(file, 'utf8'));
        assert.ok(alive(left));
        if (asked) client.child.kill('SIGTERM');
        else client.child.stdin.end();
        await client.exit;
        if (asked) await eventually('nothing is left', () => !alive(left));
        else assert.ok(alive(left));
        if (!asked) process.kill(left, 'SIGKILL');
    }
});

await run();
