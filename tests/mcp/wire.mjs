// What no good peer sends: junk, lines without end, ids that are none, floods. The protocol holds, the
// connection lives on, and memory is bounded.

import fs from 'node:fs';
import { Place, assert, assertDone, assertReplayed, assertVerdict, textOf } from './harness.mjs';
import { eventually, later, run, sleep, test } from '../gateway/tap.mjs';

const tools = { append: { class: 'write' } };
const limit = 16 * 1024 * 1024;

// The most memory that a process has had, in MB. A sanitizer keeps what was freed for a while, and tells
// nothing about this.
function peak(pid) {
    if (process.env.ASAN_OPTIONS) return 0;
    return Number(/^VmHWM:\s+(\d+) kB/m.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) / 1024;
}

async function alive(client) {
    assert.deepEqual((await client.request('ping')).result, {});
}

const bad = {
    'no JSON': 'garbage',
    'half a message': '{"jsonrpc":"2.0","id":1,"method":"ping"',
    'two messages': '{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}',
    'an empty object': '{}',
    'an empty batch': '[]',
    'a number': '17',
    'another version': '{"jsonrpc":"1.0","id":1,"method":"ping"}',
    'a method that is none': '{"jsonrpc":"2.0","id":1,"method":7}',
    'a method that is there twice': '{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}',
    'params that are text': '{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}',
    'bytes that are no UTF-8': Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x3a, 0x31, 0x7d, 0x0a]),
    'a NUL': '{"jsonrpc":"2.0","id":1,"method":"pi\u0000ng"}',
    'nesting without end': '['.repeat(100_000),
    'the id null': '{"jsonrpc":"2.0","id":null,"method":"ping"}',
    'the id true': '{"jsonrpc":"2.0","id":true,"method":"ping"}',
    'a fraction as id': '{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
    'an object as id': '{"jsonrpc":"2.0","id":{},"method":"ping"}',
    'a long id': `{"jsonrpc":"2.0","id":"${'x'.repeat(5000)}","method":"ping"}`,
};

test('bad lines are answered with an error, and never reach the server', async () => {
    const place = new Place({ contract: { tools } });
    const client = await place.open();
    client.nextId = 100;
    for (const [name, line] of Object.entries(bad)) {
        const seen = client.lines.length;
        if (Buffer.isBuffer(line)) client.child.stdin.write(line);
        else client.send(line);
        await alive(client);
        const said = client.lines.slice(seen, -1);
        assert.equal(said.length, 1, `${name}: ${said}`);
        const { error } = JSON.parse(said[0]);
        assert.ok([-32700, -32600, -32602].includes(error?.code), `${name}: ${said}`);
        assert.ok(error.message.length > 5, said[0]);
    }
    const methods = place.file('received').map((line) => JSON.parse(line).method);
    assert.deepEqual(new Set(methods.slice(2)), new Set(methods.includes('tools/list') ? ['ping', 'tools/list'] : ['ping']));
    await client.close();
});

test('blank lines and carriage returns are nothing', async () => {
    const client = await new Place().open();
    client.child.stdin.write('\n\r\n  \n{"jsonrpc":"2.0","id":"crlf","method":"ping"}\r\n');
    await client.answer('crlf');
    assert.equal(client.lines.length, 2);
    await client.close();
});

test('a message may come byte by byte', async () => {
    const client = await new Place().open();
    const answer = client.answer('slow');
    for (const byte of '{"jsonrpc":"2.0","id":"slow","method":"ping"}\n') {
        client.child.stdin.write(byte);
        await sleep(1);
    }
    await answer;
    await client.close();
});

test('16 MiB pass, and one byte more is answered with an error', async () => {
    const place = new Place({ contract: { tools }, options: { quiet: true } });
    const client = await place.open();
    // The id is at the end, where SDKs put it.
    const line = (id, length) => {
        const head = '{"method":"tools/call","params":{"name":"look","arguments":{"what":"long","pad":"';
        const tail = `"}},"jsonrpc":"2.0","id":${JSON.stringify(id)}}`;
        return head + 'x'.repeat(length - head.length - tail.length) + tail;
    };
    client.send(line('fits', limit));
    assertDone(await client.answer('fits'), 'long: 1');
    client.send(line('too long', limit + 1));
    const { error } = await client.answer('too long');
    assert.match(error.message, /16777217|16 MiB|16777216/);
    client.send(line(7, 3 * limit));
    assert.ok((await client.answer(7)).error);
    await alive(client);
    assert.equal(place.effects('long'), 1);
    assert.ok(peak(client.pid) < 120, `${peak(client.pid)} MB`);
    await client.close();
});

test('long results pass and are replayed; what is too long for a line is an error, and never done twice', async () => {
    const place = new Place({ contract: { tools } });
    const client = await place.open();
    const args = (bytes) => ({ what: `b${bytes}`, script: `effect big:${bytes} answer` });
    for (const bytes of [100_000, 12_000_000]) {
        const first = await client.call('append', args(bytes));
        assertDone(first, `b${bytes}: 1`);
        assert.equal(first.result.content[1].text.length, bytes);
        const second = await client.call('append', args(bytes));
        assert.equal(place.effects(`b${bytes}`), 1);
        assertReplayed(second, `b${bytes}: 1`);
        assert.deepEqual(second.result.content, first.result.content);
    }
    // The server answered, so it is done; nobody has to find out.
    const first = await client.call('append', args(limit + 1000));
    const { effect } = assertVerdict(first, 'RESULT_EXPIRED', /^This was done; its result has 16\d{6} bytes, .* too large/);
    assert.equal(place.show(effect).state, 'succeeded');
    assertVerdict(await client.call('append', args(limit + 1000)), 'ALREADY_DONE', /done already/);
    assert.equal(place.effects(`b${limit + 1000}`), 1);
    await alive(client);
    await client.close();
});

test('junk from the server is dropped', async () => {
    const place = new Place({ contract: { tools }, options: { first: 'Welcome to my server!' } });
    const client = await place.open();
    for (const tool of ['look', 'append'])
        assertDone(await client.call(tool, { what: `junk-${tool}`, script: 'junk effect junk answer' }), `junk-${tool}: 1`);
    assert.deepEqual(client.junk, []);
    await client.close();
});

test('of two answers to a write the first one counts', async () => {
    const place = new Place({ contract: { tools } });
    const client = await place.open();
    const args = { what: 'twice', script: 'effect again answer' };
    const first = await client.call('append', args);
    await alive(client);
    const second = await client.call('append', args);
    assertReplayed(second);
    assert.deepEqual(second.result.content, first.result.content);
    assert.equal(place.effects('twice'), 1);
    await client.close();
});

test('batches of 2025-03-26: each request is answered once, and a write is a write', async () => {
    const place = new Place({ contract: { tools } });
    const client = await place.open({ version: '2025-03-26' });
    const batch = (n) => JSON.stringify([
        { jsonrpc: '2.0', id: `p${n}`, method: 'ping' },
        { jsonrpc: '2.0', id: `w${n}`, method: 'tools/call', params: { name: 'append', arguments: { what: 'batch' } } },
        { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 'nobody' } },
        { jsonrpc: '2.0', id: `r${n}`, method: 'tools/call', params: { name: 'look', arguments: { what: 'read' } } },
    ]);
    for (const n of [1, 2]) {
        const answers = Promise.all([`p${n}`, `w${n}`, `r${n}`].map((id) => client.answer(id)));
        client.send(batch(n));
        const [ping, write, read] = await answers;
        assert.deepEqual(ping.result, {});
        if (n === 1) assertDone(write, 'batch: 1');
        else assertReplayed(write, 'batch: 1');
        assertDone(read, `read: ${n}`);
    }
    assert.equal(place.effects('batch'), 1);
    const ids = client.messages.map((one) => one.id).filter((id) => typeof id === 'string');
    assert.equal(new Set(ids).size, ids.length);
    await client.close();
});

test('arguments that are none are refused, and the server never sees them', async () => {
    const place = new Place({ contract: { tools } });
    const client = await place.open();
    const send = (params) => {
        const id = client.nextId++;
        const answer = client.answer(id);
        client.send(`{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":${params}}`);
        return answer;
    };
    for (const params of [
        '{"name":"append","arguments":[1]}',
        '{"name":"append","arguments":{"what":"a","what":"b"}}',
        '{"name":"append","arguments":{"what":"a","x":"\\ud800"}}',
        '{"name":"append","name":"look","arguments":{"what":"a"}}',
        '{"name":7,"arguments":{"what":"a"}}',
        '{"arguments":{"what":"a"}}',
        '{"name":"append","arguments":{"what":"a"},"arguments":{"what":"b"}}',
        `{"name":"append","arguments":{"what":"a","deep":${'['.repeat(500)}${']'.repeat(500)}}}`,
    ]) {
        const answer = await send(params);
        assert.ok(answer.error ?? answer.result.isError, `${params}: ${answer.line}`);
        assert.ok((answer.error?.message ?? textOf(answer)).length > 10);
    }
    assert.deepEqual(place.received('tools/call'), []);
    await client.close();
});

// ---- floods

test('10,000 calls at once are all answered, some with "later", and memory is bounded', async () => {
    const place = new Place({ contract: { tools }, options: { quiet: true } });
    const client = await place.open();
    const call = (i) => client.call(i % 5 === 0 ? 'append' : 'look', { what: `f${i % 1000}`, script: 'answer' });
    const answers = await Promise.all(Array.from({ length: 10_000 }, (_, i) => call(i)));
    const refused = answers.filter((answer) => answer.result.isError);
    for (const answer of refused) assert.equal(assertVerdict(answer, 'RETRY_IN_FLIGHT').retriable, true);
    const reads = answers.filter((answer, i) => i % 5 !== 0 && !answer.result.isError).length;
    for (let i = 0; i < 1000; i += 5) assertDone(await call(i), `f${i}: 0`);
    assert.equal(place.file('starts').length, reads + 200, 'each write was begun once');
    assert.ok(peak(client.pid) < 150, `${peak(client.pid)} MB`);
    await client.close();
});

// More calls than may be on their way to the ledger, and nothing comes after them that would move those that wait.
test('what comes in one piece is all taken, also when its client is made to wait again', async () => {
    const place = new Place({ contract: { tools }, options: { quiet: true } });
    const client = await place.open();
    for (const round of ['a', 'b']) {
        const messages = Array.from({ length: 600 }, (_, i) => ({ jsonrpc: '2.0', id: `${round}${i}`, ...(i % 3 === 0
            ? { method: 'ping' } : { method: 'tools/call', params: { name: 'append', arguments: { what: `${round}${i}` } } }) }));
        const answers = messages.map((message) => client.answer(message.id));
        client.send(messages.map((message) => JSON.stringify(message)).join('\n'));
        for (const answer of await Promise.all(answers)) assert.ok(answer.result && !answer.result.isError, answer.line);
    }
    await client.close();
});

test('a client that does not read is waited for', async () => {
    const place = new Place({ options: { quiet: true } });
    const client = await place.open();
    client.child.stdout.pause();
    const answers = Array.from({ length: 1500 }, (_, i) => client.call('look', { what: `s${i}`, script: 'big:100000 answer' }));
    await sleep(2000);
    assert.ok(peak(client.pid) < 100, `${peak(client.pid)} MB`);
    client.child.stdout.resume();
    for (const answer of await Promise.all(answers)) assertDone(answer);
    await client.close();
});

// Those that wait for a new list of tools must count as well as those that wait for the server itself.
const standstills = {
    'a server that reads nothing is waited for': { ttl: 3_600_000, pause: 0 },
    'a server that reads nothing is waited for, also where its tools have to be listed anew': { ttl: 0, pause: 1200 },
};
for (const [name, { ttl, pause }] of Object.entries(standstills)) {
    test(name, async () => {
        const place = new Place({ options: { quiet: true, ttl } });
        const client = await place.open();
        await client.call('look', { what: 'pid' });
        const pid = place.serverOf('pid');
        process.kill(pid, 'SIGSTOP');
        // One that stands still ends by nothing else.
        later(() => fs.existsSync(`/proc/${pid}`) && process.kill(pid, 'SIGKILL'));
        await sleep(pause);
        const pad = 'x'.repeat(100_000);
        const call = (i) => client.call('look', { what: `t${i}`, pad, script: 'answer' });
        const answers = Array.from({ length: 1500 }, (_, i) => call(i));
        await sleep(2000);
        const most = peak(client.pid);
        process.kill(pid, 'SIGCONT');
        for (const answer of await Promise.all(answers)) assertDone(answer);
        assert.ok(most < 140, `${most} MB`); // all of them together have 150 MB, and would take more
        await client.close();
    });
}

test('ids that are used twice at once do no harm', async () => {
    const place = new Place({ contract: { tools } });
    const client = await place.open();
    const call = (what) => client.send({
        jsonrpc: '2.0', id: 'same', method: 'tools/call', params: { name: 'append', arguments: { what, script: 'wait:100 effect answer' } },
    });
    call('same-1');
    call('same-2');
    await eventually('an answer', () => client.messages.some((one) => one.id === 'same'));
    await sleep(300);
    await alive(client);
    assert.ok(place.effects('same-1') <= 1 && place.effects('same-2') <= 1);
    await client.close();
});

await run();
