// What is not a call that writes is passed on as it came: the whole transcript of a real server, ids,
// unknown methods, order, standard error, exit codes and signals.

import fs from 'node:fs';
import { Place, assert, assertDone, everything } from './harness.mjs';
import { eventually, run, sleep, test } from '../gateway/tap.mjs';

// ---- a transcript

// What differs from run to run of the server itself.
const volatile = [
    [/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g, 'TIME'],
    [/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, 'UUID'],
    [/"taskId":"[0-9a-f]{32}"/g, '"taskId":"TASK"'],
    [/\d+:\d\d:\d\d [AP]M/g, 'CLOCK'],
];
const steady = (line) => volatile.reduce((text, [pattern, word]) => text.replace(pattern, word), line)
    // The time of day is in what it says as base64, too.
    .replace(/"blob":"(UmVzb3VyY2Ug[^"]*)"/g, (whole, blob) => `"blob":"${Buffer.from(blob, 'base64').toString().replace(/ at .*/, '')}"`);
const random = /"method":"notifications\/(message|resources\/updated)"/; // when it likes

// Without the one thing that we add, members of _meta whose names begin with ours.
function stripped(line) {
    const message = JSON.parse(line);
    const meta = message.result?._meta ?? {};
    for (const name of Object.keys(meta)) if (name.startsWith('semel/')) delete meta[name];
    if (message.result?._meta && Object.keys(meta).length === 0) delete message.result._meta;
    return message;
}

const capabilities = {
    elicitation: { form: {}, url: {} },
    sampling: {},
    roots: { listChanged: true },
    tasks: { requests: { sampling: { createMessage: {} }, elicitation: { create: {} } } },
};

// Arguments for those that want some, and more of what such a call has.
const data = 'data:text/plain;base64,aGVsbG8=';
const calls = [
    ['echo', { message: 'h\u00e9llo\n"' }], ['echo', {}], ['echo', { message: 7 }],
    ['get-annotated-message', { messageType: 'error', includeImage: true }],
    ['get-env', {}], ['get-resource-links', { count: 2 }], ['get-resource-reference', {}],
    ['get-resource-reference', { resourceType: 'Blob', resourceId: 3 }],
    ['get-structured-content', { location: 'Chicago' }],
    ['get-sum', { a: 1, b: 2.5 }], ['get-tiny-image', {}],
    ['gzip-file-as-resource', { name: 'x.gz', data, outputType: 'resource' }],
    ['gzip-file-as-resource', { name: 'y.gz', data }],
    ['toggle-simulated-logging', {}], ['toggle-subscriber-updates', {}],
    ['trigger-long-running-operation', { duration: 0.2, steps: 2 }, { _meta: { progressToken: 'p' } }],
    ['get-roots-list', {}], ['trigger-elicitation-request', {}],
    ['trigger-url-elicitation', { url: 'https://example.org/a', elicitationId: 'e1' }],
    ['trigger-url-elicitation', { url: 'https://example.org/b', elicitationId: 'e2', errorPath: true }],
    ['trigger-sampling-request', { prompt: 'p' }], ['trigger-sampling-request-async', { prompt: 'p' }],
    ['trigger-elicitation-request-async', {}],
    ['simulate-research-query', { topic: 'tea' }], // which must be a task
    ['simulate-research-query', { topic: 'coffee' }, { task: { ttl: 60000 } }],
    ['no-such-tool', {}],
];

const others = [
    ['ping'], ['tools/list'], ['resources/list'], ['resources/templates/list'], ['prompts/list'],
    ['resources/read', { uri: 'demo://resource/dynamic/text/1' }], ['resources/read', { uri: 'no:such' }],
    ['prompts/get', { name: 'simple-prompt' }], ['prompts/get', { name: 'none' }],
    ['logging/setLevel', { level: 'error' }], ['no/such/method', { x: [1, 2.50] }],
    ['resources/subscribe', { uri: 'demo://resource/dynamic/text/1' }],
    ['completion/complete', {
        ref: { type: 'ref/resource', uri: 'demo://resource/dynamic/text/{resourceId}' },
        argument: { name: 'resourceId', value: '1' },
    }],
];

async function transcript(place, direct) {
    const client = direct ? place.direct({ capabilities }) : place.start({ capabilities });
    client.on('elicitation/create', () => ({ action: 'accept', content: { name: 'x' } }));
    client.on('sampling/createMessage', () => ({
        role: 'assistant', model: 'none', content: { type: 'text', text: 'said' },
    }));
    client.on('roots/list', () => ({ roots: [{ uri: 'file:///tmp', name: 'tmp' }] }));
    await client.initialize();
    await eventually('the roots were asked for', () => client.messages.some((one) => one.method === 'roots/list'));
    await sleep(300); // what it has to say about that
    for (const [method, params] of others) await client.request(method, params);
    for (const [name, args, more] of calls) {
        const answer = await client.call(name, args, more);
        const taskId = answer.result?.task?.taskId;
        if (taskId) await client.request('tasks/result', { taskId });
    }
    const tools = (await client.request('tools/list')).result.tools.map((tool) => tool.name);
    const end = await client.close();
    const lines = client.lines.filter((line) => !random.test(line)).map(steady);
    return { lines, tools, end, stderr: steady(client.stderr) };
}

test('all that server-everything says is the same through the proxy', async () => {
    const place = new Place({ server: everything, bare: true });
    const [direct, proxied] = await Promise.all([transcript(place, true), transcript(place, false)]);
    const called = new Set(calls.map(([name]) => name));
    assert.deepEqual(direct.tools.filter((name) => !called.has(name)), [], 'every tool is called');
    for (const [i, line] of direct.lines.entries()) {
        if (proxied.lines[i] === line) continue;
        assert.deepEqual(stripped(proxied.lines[i] ?? 'null'), JSON.parse(line), `line ${i}`);
    }
    assert.equal(proxied.lines.length, direct.lines.length);
    // With what was toggled it does not end by itself.
    assert.deepEqual(direct.end, { code: null, signal: 'SIGTERM' });
    assert.ok(proxied.end.signal === 'SIGTERM' || proxied.end.code === 143, JSON.stringify(proxied.end));
    for (const line of direct.stderr.split('\n')) assert.ok(proxied.stderr.includes(line), line);
});

// ---- lines, byte for byte

test('lines pass in both directions byte for byte', async () => {
    const place = new Place();
    const client = await place.open();
    const lines = [
        '{ "id" : "a b" ,"params":{"n":1.50,"big":123456789012345678901234567890,"s":"\\u00e9\\/"},'
            + '"method":"example\\/echo", "jsonrpc":"2.0" , "later":[ ] }',
        '{"jsonrpc":"2.0","method":"notifications/what","params":{"x":1e5}}',
        '{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":"look","arguments":{"what":"b", "n":1.0},'
            + '"_meta":{"progressToken":0,"vendor":{"y":[]}},"unknown":null}}',
    ];
    for (const line of lines) client.send(line);
    await Promise.all([client.answer('a b'), client.answer(0)]);
    const received = place.file('received');
    for (const line of lines) assert.ok(received.includes(line), `${line} came as it was`);
    await client.close();
});

test('ids of every kind come back as they were written, for reads, writes and replays', async () => {
    const place = new Place({ contract: { tools: { append: { class: 'write' } } } });
    const client = await place.open();
    const ids = ['0', '-1', '17', '""', '"1"', '1', '"\\u0041"', '"a\\"b\\\\"', '9007199254740993',
        '123456789012345678901234567890', '"\u00e9\u{1f600}"', `"${'x'.repeat(1000)}"`];
    const ask = async (name, what, id) => {
        const seen = client.lines.length;
        client.send(`{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"${name}","arguments":{"what":"${what}"}}}`);
        await eventually(`an answer for ${id}`, () => client.lines.length > seen);
        const line = client.lines[seen];
        assert.ok(line.includes(`"id":${id}`) || line.includes(`"id": ${id}`), `${id}: ${line}`);
        assert.ok(JSON.parse(line).result, line);
    };
    for (const [i, id] of ids.entries()) {
        await ask('look', `r${i}`, id);
        await ask('append', `w${i}`, id);
        await ask('append', `w${i}`, id);
        assert.equal(place.effects(`w${i}`), 1);
    }
    await client.close();
});

test("the server's requests reach the client, and its answers the server, also in a write", async () => {
    const place = new Place({ contract: { tools: { append: { class: 'write' } } } });
    const client = await place.open({ capabilities: { elicitation: {}, sampling: {} } });
    client.on('elicitation/create', (params) => {
        assert.equal(params.message, 'Which one?');
        return { action: 'accept', content: { name: 'this' } };
    });
    client.on('sampling/createMessage', () => ({ role: 'assistant', model: 'm', content: { type: 'text', text: 's' } }));
    for (const tool of ['look', 'append']) {
        const answer = await client.call(tool, { what: `asks-${tool}`, script: 'elicit effect sample answer' });
        assertDone(answer, `asks-${tool}: 1`);
        assert.deepEqual(JSON.parse(answer.result.content[1].text), { action: 'accept', content: { name: 'this' } });
    }
    await client.close();
});

test('notifications of the server come in their order', async () => {
    const place = new Place();
    const client = await place.open();
    await client.call('look', { what: 'n', script: 'log progress:2 changed stray answer' }, { _meta: { progressToken: 5 } });
    assert.deepEqual(client.notes.map((note) => note.method), [
        'notifications/message', 'notifications/progress', 'notifications/progress',
        'notifications/tools/list_changed',
    ]);
    assert.deepEqual(client.progress(5).map((note) => note.params.progress), [1, 2]);
    await client.close();
});

test('lists come page by page, as the server cuts them', async () => {
    const place = new Place({ options: { page: 3, more: 10 } });
    const [client, direct] = [await place.open(), await place.open({ direct: true })];
    const pages = async (one) => {
        const lines = [];
        for (let cursor; ; ) {
            const answer = await one.request('tools/list', cursor === undefined ? {} : { cursor });
            lines.push(JSON.stringify(answer.result));
            cursor = answer.result.nextCursor;
            if (cursor === undefined) return lines;
        }
    };
    assert.deepEqual(await pages(client), await pages(direct));
    // A tool of a later page is known as what it is.
    assertDone(await client.call('more_9', { what: 'late' }), 'late: 1');
    await Promise.all([client.close(), direct.close()]);
});

// ---- processes

test('the exit code of the server is that of the proxy', async () => {
    for (const exit of [0, 4]) {
        const client = await new Place({ options: { exit } }).open();
        assert.deepEqual(await client.close(), { code: exit, signal: null });
    }
});

test('a signal to the proxy ends the server, and both end as the server does', async () => {
    const place = new Place();
    const client = await place.open();
    await client.call('look', { what: 'pid' });
    const pid = place.serverOf('pid');
    client.child.kill('SIGTERM');
    const { code, signal } = await client.exit;
    assert.ok(signal === 'SIGTERM' || code === 143, `${code} ${signal}`);
    await eventually('the server has ended', () => !fs.existsSync(`/proc/${pid}`));
});

test('when the proxy is killed, the server ends too', async () => {
    const place = new Place();
    const client = await place.open();
    await client.call('look', { what: 'orphan' });
    await client.kill();
    const pid = place.serverOf('orphan');
    await eventually('the server has ended', () => !fs.existsSync(`/proc/${pid}`));
});

test('standard error is passed through', async () => {
    const client = await new Place().open();
    await client.call('look', { what: 'e', script: 'stderr:complaint answer' });
    await eventually('it comes', () => client.stderr.includes('complaint\n'));
    await client.close();
});

test('a server that cannot be started is told, and nothing is printed', async () => {
    const place = new Place({ server: ['/no/such/server'] });
    const client = place.start();
    const { code } = await client.exit;
    assert.notEqual(code, 0);
    assert.match(client.stderr, /\/no\/such\/server/);
    assert.deepEqual(client.lines, []);
});

await run();
