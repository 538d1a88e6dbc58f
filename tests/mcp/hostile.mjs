// Moments that go wrong: answers to what nobody asked, questions under somebody else's id, clients and
// servers that go in the middle of something, ids that are used twice. Whatever they do, no write is
// done that was not asked for, or twice; every request comes to an end, and so does the proxy.
//
// Most of the time is spent waiting, so the tests run side by side, a few at a time; each has a place
// of its own.

import { spawn, spawnSync } from 'node:child_process';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import {
    Place, assert, assertDone, assertFresh, assertReplayed, assertVerdict, node, textOf,
} from './harness.mjs';
import { run as runSemel, semel } from '../gateway/program.mjs';
import { eventually, later, run, sleep, test } from '../gateway/tap.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const contract = { tools: { append: { class: 'write' }, look: { class: 'read' } } };
const repeatMs = 2200; // after so long an equal call of a client that has the answer is a deliberate one

// ---- side by side

// Answers that nobody waits for any more, because a proxy or a test has ended, fail nothing by themselves.
process.on('unhandledRejection', () => {});

const lanes = 5;
const waiting = [];
let begun = false;

function begin() {
    if (begun) return;
    begun = true;
    const lane = async () => {
        for (let one = waiting.shift(); one; one = waiting.shift()) await one();
    };
    for (let i = 0; i < lanes; i++) lane();
}

// A test that may run beside the others.
function beside(name, body, options) {
    if (process.env.SEMEL_TEST_ONLY && !name.includes(process.env.SEMEL_TEST_ONLY)) return;
    const done = new Promise((resolve) => waiting.push(async () => {
        const outcome = body().then(() => null, (error) => error);
        resolve(outcome);
        await outcome;
    }));
    test(name, async () => {
        begin();
        const error = await done;
        if (error) throw error;
    }, { limitMs: 400_000, ...options });
}

// ---- what they share

function rogue(conduct, more = contract) {
    const place = new Place({ contract: more });
    place.server = [node, path.join(here, 'rogue.mjs'), place.directory, conduct];
    return place;
}

// A place with a ledger in a file, whatever the others have.
function onFile(tools) {
    const place = new Place({ contract: { tools } });
    place.ledger = `sqlite:${place.directory}/file.db`;
    return place;
}

// What hangs, or waits for a lease, is not there in time. A busy machine takes seconds.
async function soon(what, promise) {
    const late = Symbol('late');
    const first = await Promise.race([promise, sleep(25_000).then(() => late)]);
    assert.notEqual(first, late, `not in time: ${what}`);
    return first;
}

async function alive(client) {
    assert.deepEqual((await soon('an answer to ping', client.request('ping'))).result, {});
}

// The lines with this id.
const answersTo = (client, id) => client.messages.filter((one) => one.id === id && one.method === undefined);

const callOf = (id, name, args) => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: args } });

// ---- only a success that was delivered makes an equal call a deliberate repeat

beside('a client that was told of a doubt, and comes back when it is resolved, gets the result', async () => {
    const place = new Place();
    const client = await place.open();
    const args = { what: 'd', script: 'effect exit:3 | effect answer' };
    const { effect } = (await client.call('append', args)).result._meta['semel/verdict'];
    assert.match(effect, /^ef_/);
    place.json('resolve', effect, '--applied', '{"content":[]}', '--evidence', 'looked at it');
    await sleep(repeatMs);
    assertReplayed(await client.call('append', args));
    assert.equal(place.effects('d'), 1);
    await client.close();
});

beside('a client that was told of a failure, and gave the next attempt up, gets the late result of that', async () => {
    const place = new Place();
    const client = await place.open();
    const args = { what: 'f', script: 'fail answer | mark:f effect gate:f-go answer | effect answer' };
    assert.equal((await client.call('append', args)).result.isError, true);
    await sleep(repeatMs);
    const given = client.call('append', args);
    await place.passed('f');
    client.cancel(given.id);
    await alive(client);
    place.mark('f-go');
    await eventually('its result is recorded', () => place.list()[0].state === 'succeeded');
    await sleep(repeatMs);
    assertReplayed(await client.call('append', args), 'f: 1');
    assert.equal(place.effects('f'), 1);
    await client.close();
});

beside('a client that was told to come back later gets the late result', async () => {
    const place = new Place();
    const client = await place.open();
    const args = { what: 'i', script: 'mark:i effect gate:i-go answer | effect answer' };
    const given = client.call('append', args);
    await place.passed('i');
    client.cancel(given.id);
    assertVerdict(await client.call('append', args), 'RETRY_IN_FLIGHT');
    place.mark('i-go');
    await eventually('its result is recorded', () => place.list()[0].state === 'succeeded');
    await sleep(repeatMs);
    assertReplayed(await client.call('append', args), 'i: 1');
    assert.equal(place.effects('i'), 1);
    await client.close();
});

// ---- servers that speak out of turn

beside('a change of the list that overtakes an older list is not lost', async () => {
    const place = rogue('overtaking', { tools: {} });
    const client = await place.open();
    // It called itself read-only in the older list.
    for (let i = 0; i < 2; i++) assertDone(await client.call('append', { what: 'stale' }));
    assert.equal(place.effects('stale'), 1);
    assert.equal(place.list().length, 1);
    await client.close();
});

beside('a list that changes whenever it is asked for is asked for four times, and then the call goes on', async () => {
    const place = rogue('restless', { tools: { append: { class: 'write' } } });
    const client = await place.open();
    assertDone(await client.call('append', { what: 'restless' }), 'done restless');
    assert.equal(place.received('tools/list').length, 4);
    await client.close();
});

beside('a list of tools may have 1000 pages, and not one more', async () => {
    const tools = 7; // of its own
    for (const [pages, done] of [[1000, 1], [1001, 0]]) {
        const place = new Place({ contract, options: { page: 1, more: pages - tools } });
        const client = await place.open();
        const answer = await client.call('append', { what: 'paged' });
        if (done) assertFresh(answer, 'paged: 1');
        else assertVerdict(answer, 'UPSTREAM_FAILED', /its list has no end/);
        assert.equal(place.effects('paged'), done);
        assert.equal(place.received('tools/list').length, 1000);
        await client.close();
    }
});

beside("a server's question cannot approve a call, whatever id it has", async () => {
    const place = rogue('asking as if it were another', {
        tools: { append: { class: 'write', approval: { self_approval: true } } },
    });
    const client = await place.open({ capabilities: { elicitation: {} } });
    const questions = [];
    client.on('elicitation/create', ({ message }) => {
        questions.push(message);
        const cats = message.startsWith('Do you like');
        return cats ? { action: 'accept', content: { approve: true } } : new Promise(() => {});
    });
    client.call('append', { what: 'pay' });
    await eventually('the client is asked', () => questions.length === 1);
    place.mark('asked');
    await eventually('and asked about cats', () => questions.length === 13);
    await eventually('the server has the answers', () => place.file('received').filter((line) => /"action"/.test(line)).length === 12);
    await alive(client);
    assert.equal(place.effects('pay'), 0);
    assert.equal(place.list()[0].state, 'pending_approval');
    await client.kill();
});

beside('an answer to a call that was not sent yet is no answer', async () => {
    const place = rogue('answering too early');
    const client = await place.open();
    await client.call('append', { what: 'a', die: true });
    const answer = client.answer('early');
    client.send(callOf('early', 'append', { what: 'b' }));
    await eventually('the server is back', () => place.file('lives').length === 2);
    await sleep(100);
    place.mark('asked');
    assertFresh(await soon('the answer', answer), 'done b');
    assert.equal(place.effects('b'), 1);
    assertReplayed(await client.call('append', { what: 'b' }), 'done b');
    await client.close();
});

beside('a line that is too long answers no call that waits for another one', async () => {
    const place = rogue('answering at length');
    const client = await place.open();
    const args = { what: 'L', other: 71 };
    const first = client.request('tools/call', { name: 'append', arguments: args }, 70);
    await eventually('it is under way', () => place.effects('L') === 1);
    const patient = { _meta: { progressToken: 'long' } };
    const second = client.request('tools/call', { name: 'append', arguments: args, ...patient }, 71);
    await alive(client); // the second waits for the first
    await sleep(100);
    place.mark('asked');
    await eventually('the long line came', () => /bytes/.test(client.stderr));
    await alive(client);
    place.mark('heard');
    assertFresh(await first, 'done L');
    assertReplayed(await soon('the second answer', second), 'done L');
    assert.equal(place.effects('L'), 1);
    await client.close();
});

beside("answers to a server's questions wait for no call", async () => {
    const place = rogue('asking for roots');
    const client = await place.open({ capabilities: { roots: {} } });
    let asked = false;
    client.on('roots/list', async () => {
        asked = true;
        await eventually('a call waits', () => place.received('tools/list').length === 1);
        return { roots: [] };
    });
    const answer = client.call('append', { what: 'r' });
    assertFresh(await soon('the answer', answer), 'done r');
    assert.ok(asked);
    await client.close();
});

beside('an id that the server spells otherwise is the same id', async () => {
    const place = rogue('spelling otherwise');
    const client = await place.open();
    for (const id of ['req/1', 'e', 'a/e"\\/\u00e9']) {
        const answer = client.answer(id);
        client.send(callOf(id, 'append', { what: `of ${id}` }));
        assertFresh(await soon('the answer', answer), `done of ${id}`);
    }
    await eventually('all are recorded', () => place.list().every((one) => one.state === 'succeeded'));
    await client.close();
});

// ---- clients that do what is not done

beside('a tools/call without an id never reaches the server', async () => {
    const place = new Place({ contract: { unlisted: 'hide', tools: { append: { class: 'write', approval: {} }, look: { class: 'read' } } } });
    const client = await place.open();
    for (const name of ['append', 'look', 'secret'])
        client.send({ jsonrpc: '2.0', method: 'tools/call', params: { name, arguments: { what: name } } });
    await alive(client);
    assert.deepEqual(place.received('tools/call'), []);
    assert.deepEqual(place.list(), []);
    await eventually('it is told', () => /without an id/.test(client.stderr));
    await client.close();
});

beside('a scope or a step in _meta that is no text, or too long, is refused', async () => {
    const place = new Place({ contract });
    const client = await place.open();
    const bad = [1, '', null, {}, 'A'.repeat(600)];
    for (const name of ['semel/scope', 'semel/step']) {
        for (const value of bad) {
            const answer = await client.call('append', { what: 's' }, { _meta: { [name]: value } });
            assertVerdict(answer, 'BAD_ARGUMENTS', new RegExp(name));
        }
    }
    assert.deepEqual(place.received('tools/call'), []);
    await client.close();
});

beside('an id that is in use is refused for any request, and the first one gets its answer', async () => {
    const place = new Place({ contract });
    const client = await place.open();
    for (const tool of ['append', 'look']) {
        client.send(callOf(tool, tool, { what: tool, script: `mark:${tool} effect gate:${tool}-go answer` }));
        await place.passed(tool);
        for (const method of ['ping', 'example/echo', 'tools/list', 'tools/call'])
            client.send({ jsonrpc: '2.0', id: tool, method, params: { name: 'look', arguments: {} } });
        const answers = await eventually('all are answered', () => {
            const all = answersTo(client, tool);
            return all.length === 4 && all;
        });
        for (const { error } of answers) assert.equal(error?.code, -32600);
        place.mark(`${tool}-go`);
        const result = await eventually('its own answer', () => answersTo(client, tool)[4]?.result);
        assert.equal(result.content[0].text, `${tool}: 1`);
        // And now the id is free.
        assert.deepEqual((await client.request('ping', {}, tool)).result, {});
    }
    await client.close();
});

beside('a cancelled read leaves nothing behind: its id can be used again', async () => {
    const place = new Place({ contract });
    const client = await place.open();
    for (let i = 0; i < 3; i++) {
        client.send(callOf('again', 'look', { what: `r${i}`, script: `mark:r${i} never` }));
        await place.passed(`r${i}`);
        client.cancel('again');
        assert.deepEqual((await soon('an answer', client.request('ping', {}, 'again'))).result, {});
    }
    assert.equal(answersTo(client, 'again').length, 3);
    await eventually('the server was told', () => place.file('cancelled').length === 3);
    await client.close();
});

// ---- batches

beside('a batch is answered whole, although an id is in it twice or a member is cancelled', async () => {
    const place = new Place({ contract });
    const client = await place.open({ version: '2025-03-26' });
    const batches = () => client.lines.map((line) => JSON.parse(line)).filter(Array.isArray);
    client.send([
        callOf(50, 'append', { what: 'a' }), callOf(50, 'append', { what: 'b' }), callOf(51, 'append', { what: 'c' }),
    ]);
    const [twice] = await eventually('the first batch is answered', () => batches().length === 1 && batches());
    assert.deepEqual(twice.map((one) => one.id).sort(), [50, 50, 51]);
    assert.equal(twice.filter((one) => one.error?.code === -32600).length, 1);
    assert.deepEqual(['a', 'b', 'c'].map((what) => place.effects(what)), [1, 0, 1]);

    client.send([callOf(60, 'look', { what: 'r', script: 'mark:r never' }), callOf(61, 'append', { what: 'e' })]);
    await place.passed('r');
    client.cancel(60);
    const [, cancelled] = await eventually('the second batch is answered', () => batches().length === 2 && batches());
    assert.deepEqual(cancelled.map((one) => one.id), [61]);
    assert.equal(cancelled[0].result.content[0].text, 'e: 1');

    client.send([callOf(70, 'look', { what: 'q', script: 'mark:q never' })]);
    await place.passed('q');
    client.cancel(70);
    await alive(client);
    assert.equal(batches().length, 2, 'nobody is left to be answered');
    await client.close();
});

beside('a call in a batch that can be read in two ways is refused, and the server gets nothing of it', async () => {
    const place = new Place({ contract });
    const client = await place.open({ version: '2025-03-26' });
    const members = [
        '"name":"look","name":"append"', '"name":"append","name":"look"', '"name":"look","Name":"append"',
        '"name":"look","arguments":{"what":"read"}',
    ];
    const calls = members.map((member, i) =>
        `{"jsonrpc":"2.0","id":${80 + i},"method":"tools/call","params":{"arguments":{"what":"two"},${member}}}`);
    client.send(`[${calls},${JSON.stringify(callOf(90, 'append', { what: 'plain' }))}]`);
    const answers = await eventually('the batch is answered', () => client.lines.map((line) => JSON.parse(line)).find(Array.isArray));
    assert.deepEqual(answers.map((one) => one.id).sort(), [80, 81, 82, 83, 90]);
    for (const { id, error, result } of answers)
        if (id === 90) assert.equal(result.content[0].text, 'plain: 1');
        else assert.equal(error?.code, -32602, JSON.stringify(result));
    await alive(client);
    assert.deepEqual(place.received('tools/call').map((one) => one.id), [90]);
    assert.equal(place.list().length, 1);
    await client.close();
});

beside('a batch whose answers are too large together: each that finds no room is an error of its own', async () => {
    const place = new Place({ contract, options: { quiet: true } });
    const client = await place.open({ version: '2025-03-26' });
    const ids = Array.from({ length: 9 }, (_, i) => i + 10);
    client.send(ids.map((id) => callOf(id, 'look', { what: `B${id}`, script: 'big:16000000 answer' })));
    const answer = await eventually('an answer', () => client.lines[1]);
    assert.deepEqual(client.junk, []);
    const all = JSON.parse(answer);
    assert.deepEqual(all.map((one) => one.id).sort(), ids);
    const errors = all.filter((one) => one.error);
    assert.equal(errors.length, 1);
    assert.deepEqual([errors[0].error.code, /ask again/.test(errors[0].error.message)], [-32603, true]);
    await alive(client);
    await client.close();
});

// ---- ends

beside('a client that goes while it is given the progress of a call that waits: the call is recorded', async () => {
    const place = new Place({ contract });
    const client = await place.open();
    const args = { what: 'P', script: 'mark:P gate:P-go progress:3 effect answer' };
    const given = client.call('append', args, { _meta: { progressToken: 't1' } });
    await place.passed('P');
    client.cancel(given.id);
    client.call('append', args, { _meta: { progressToken: 't2' } });
    await alive(client);
    await sleep(100); // until it waits for the first
    client.child.stdout.destroy();
    place.mark('P-go');
    const { code, signal } = await soon('its end', client.exit);
    assert.deepEqual([code, signal], [0, null], client.stderr);
    assert.equal(place.list()[0].state, 'succeeded');
    assert.equal(place.effects('P'), 1);
});

beside('the input ends while the client is asked: nothing is done, and the proxy ends', async () => {
    const place = new Place({ contract: { tools: { append: { class: 'write', approval: { self_approval: true } } } } });
    const client = await place.open({ capabilities: { elicitation: {} } });
    const asked = new Promise((resolve) => client.on('elicitation/create', () => {
        resolve();
        return new Promise(() => {});
    }));
    const answer = client.call('append', { what: 'z' });
    await asked;
    client.notify('notifications/roots/list_changed'); // as whoever pipes messages in, and reads on
    client.child.stdin.end();
    assertVerdict(await soon('an answer', answer), 'AWAITING_APPROVAL');
    assert.deepEqual(await soon('its end', client.exit), { code: 0, signal: null });
    assert.equal(place.effects('z'), 0);
});

// Ends the proxy of a server that has crashed so often that the pause before its next start is a long
// one. How it ended, without that start.
async function endPaused(end) {
    const place = new Place({ contract });
    const client = await place.open();
    const crashes = 5;
    for (let i = 0; i < crashes; i++)
        assertVerdict(await client.call('append', { what: `k${i}`, script: 'effect exit:3' }), 'IN_DOUBT');
    end(client.child);
    const ended = await soon('its end', client.exit);
    assert.equal(place.received('initialize').length, crashes);
    return ended;
}

beside('the input ends while a crashed server is not started again yet: the proxy ends as the server did', async () => {
    assert.deepEqual(await endPaused((child) => child.stdin.end()), { code: 3, signal: null });
});

beside('SIGTERM while a crashed server is not started again yet ends the proxy', async () => {
    const { code, signal } = await endPaused((child) => child.kill('SIGTERM'));
    assert.ok(signal === 'SIGTERM' || code === 143, `${code} ${signal}`);
});

const unsaid = {
    nothing: () => {},
    'a notification': (client) => client.notify('notifications/roots/list_changed'),
    'a request': (client) => client.request('ping'),
    'a write': (client) => client.call('append', { what: 'b' }),
};
for (const [what, say] of Object.entries(unsaid)) {
    beside(`the input ends while a server that was started again is mute, and ${what} waits: the proxy ends`, async () => {
        const place = rogue('coming back mute');
        const client = await place.open();
        await client.call('append', { what: 'a', die: true });
        await eventually('it was started again', () => place.received('initialize').length === 2);
        const before = place.file('received').length;
        const answer = say(client);
        client.child.stdin.end();
        if (answer) {
            const { error, result } = await soon('an answer', answer);
            assert.ok(error ?? result.isError);
        }
        assert.deepEqual(await soon('its end', client.exit), { code: 0, signal: null });
        assert.equal(place.file('received').length, before, 'it was told nothing before it had answered');
        assert.equal(place.effects('b'), 0);
    });
}

// ---- a ledger that is stuck

beside('a read behind a write whose ledger is stuck is passed on; the write is refused, without details', async () => {
    const place = onFile(contract.tools);
    const client = await place.open();
    await client.call('append', { what: 'x' });
    const hog = spawn('sqlite3', [place.ledger.slice('sqlite:'.length)], { stdio: ['pipe', 'pipe', 'inherit'] });
    later(() => hog.kill());
    hog.stdin.write('BEGIN EXCLUSIVE;\nSELECT 1;\n');
    await new Promise((resolve) => hog.stdout.once('data', resolve));
    let over = false;
    const write = client.call('append', { what: 'y' }).finally(() => (over = true));
    const read = client.call('look', { what: 'r' });
    const ping = client.request('ping');
    assertDone(await soon('the read', read), 'r: 1');
    await soon('the ping', ping);
    assert.ok(!over, 'the ledger is stuck');
    const verdict = assertVerdict(await write, 'LEDGER_UNAVAILABLE');
    assert.equal(verdict.message, 'The ledger cannot be used now, so nothing was done.');
    await eventually('people are told', () => /the ledger cannot be used: ./.test(client.stderr));
    hog.stdin.end('ROLLBACK;\n');
    await new Promise((resolve) => hog.on('close', resolve));
    assertDone(await client.call('append', { what: 'y' }), 'y: 1');
    assert.equal(place.effects('y'), 1);
    await client.close();
});

// ---- approvals and questions of the server together

beside("an approval, and the server's own questions, come to an end together (modern)", async () => {
    const place = new Place({ contract: { tools: { append: { class: 'write', approval: { self_approval: true } } } } });
    const client = await place.open({ modern: true, capabilities: { elicitation: {} } });
    const args = { what: 'leg', script: 'input effect answer' };
    let more = {};
    let answer;
    for (let i = 0; i < 6; i++) {
        answer = await client.call('append', args, more);
        const { resultType, inputRequests, requestState } = answer.result;
        if (resultType !== 'input_required') break;
        const accept = ([name, { params }]) => {
            const content = params.requestedSchema.properties.approve ? { approve: true } : { name: 'x' };
            return [name, { action: 'accept', content }];
        };
        more = { requestState, inputResponses: Object.fromEntries(Object.entries(inputRequests).map(accept)) };
    }
    assertDone(answer, 'leg: 1');
    // What the server asked for has reached it, as the client said it.
    assert.equal(answer.result.content[1].text, '[{"which":{"action":"accept","content":{"name":"x"}}},"state 1 of leg"]');
    assert.equal(place.effects('leg'), 1);
    await client.close();
});

// ---- what people are told

// Runs a command of a text as somebody does who copies it.
function paste(place, text, pattern, edit = (line) => line) {
    const [command] = pattern.exec(text) ?? assert.fail(text);
    const PATH = `${path.dirname(semel)}:${process.env.PATH}`;
    const { SEMEL_LEDGER, SEMEL_CONTRACT, ...env } = place.env;
    return spawnSync('sh', ['-c', edit(command)], { encoding: 'utf8', env: { ...env, PATH }, timeout: 20_000 });
}

// What happened and what to do, in sentences that end.
function assertSentences(answer) {
    const { message, corrective_action: action } = answer.result._meta['semel/verdict'];
    const [sentences] = textOf(answer).split('\n');
    assert.equal(sentences, `${message}${/[.!?]$/.test(message) ? '' : '.'} ${action}`);
    assert.match(sentences, /[.!?]$/);
}

beside('what a model is told are sentences', async () => {
    const client = await new Place({ contract }).open();
    for (const args of [[1], 'x', { what: 'a', deep: JSON.parse(`${'['.repeat(300)}${']'.repeat(300)}`) }]) {
        const answer = await client.call('append', args);
        assertVerdict(answer, 'BAD_ARGUMENTS');
        assertSentences(answer);
    }
    await client.close();
});

beside('where the user may approve, the command for that works as it is told', async () => {
    const place = onFile({ put: { class: 'write', approval: { expires: '1h', self_approval: true } } });
    const client = await place.open();
    const answer = await client.call('put', { what: 'p' });
    assertVerdict(answer, 'AWAITING_APPROVAL');
    assertSentences(answer);
    const done = paste(place, textOf(answer), /semel approve ap_\S+( --ledger \S+)?/);
    assert.equal(done.status, 0, done.stderr);
    assertFresh(await client.call('put', { what: 'p' }), 'p: 1');
    await client.close();
});

// A model with a shell would run a command that it reads.
const command = /semel +(approve|deny|resolve|forget|cancel)|curl|\/v1\//;

beside('no text for a model has a command by which it could decide itself', async () => {
    const place = onFile({
        put: { class: 'write', approval: { expires: '1h' } },
        append: { class: 'write', approval: { expires: '1h', via: 'gateway', self_approval: true } },
        wipe: { class: 'irreversible', key: { fields: ['/what'] } },
    });
    const client = await place.open();
    const waits = await client.call('put', { what: 'p' });
    const { request } = assertVerdict(waits, 'AWAITING_APPROVAL', /an operator of the ledger/);
    assert.match(textOf(waits), new RegExp(`Do not call this tool again .* request ${request} is waiting`));
    assertVerdict(await client.call('append', { what: 'a' }), 'AWAITING_APPROVAL', /an approver of the gateway/);
    const doubt = await client.call('wipe', { what: 'one', script: 'effect exit:3' });
    const { effect } = assertVerdict(doubt, 'IN_DOUBT', /an operator of the ledger has to find out/);
    assert.match(textOf(doubt), new RegExp(`Do not call this tool again with these arguments, .* effect ${effect} is in doubt`));
    assertVerdict(await client.call('wipe', { what: 'one' }), 'IN_DOUBT');
    for (const line of client.lines) assert.doesNotMatch(line, command);
    await client.close();
});

beside('a doubt that is in the way of another call is named', async () => {
    const place = onFile({ wipe: { class: 'irreversible', key: { fields: ['/what'] } } });
    const client = await place.open();
    const first = assertVerdict(await client.call('wipe', { what: 'one', script: 'effect exit:3' }), 'IN_DOUBT');
    const answer = await client.call('wipe', { what: 'two' });
    const verdict = assertVerdict(answer, 'IN_DOUBT', /before that is resolved/);
    assert.equal(verdict.blocked_by, first.effect);
    assertSentences(answer);
    assert.ok(textOf(answer).split('\n')[0].includes(first.effect), textOf(answer));
    place.json('resolve', first.effect, '--not-applied', '--evidence', 'looked');
    assertFresh(await client.call('wipe', { what: 'two' }), 'two: 1');
    await client.close();
});

beside('--suggest with a server that ends says how it ended', async () => {
    const suggest = (script) => runSemel(['mcp', '--suggest', '--', 'sh', '-c', script]);
    for (const [script, words] of [['exit 7', /ended with status 7/], ['read x; kill -9 $$', /signal 9/]]) {
        const done = suggest(script);
        assert.equal(done.status, 69, done.stderr);
        assert.match(done.stderr, words);
        assert.equal(done.stdout, '');
    }
});

beside('an option without its value is refused, and "--" is none', async () => {
    for (const option of ['--scope', '--name', '--ledger', '--contract', '--upstream']) {
        const done = runSemel(['mcp', option, '--', 'cat'], { input: '' });
        assert.equal(done.status, 64, `${option}: ${done.stderr}`);
        assert.equal(done.stdout, '');
    }
});

await run();
