// The clients that people use, through the proxy: the SDK's of both generations, in all of their
// modes, and the inspector's command line.

import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import { Place, assert, assertCounted, everything, inspector, legacyVersion, modernVersion, noteProgress, sdk1, sdk2 } from './harness.mjs';
import { eventually, run, test } from '../gateway/tap.mjs';

const tools = { append: { class: 'write' }, wipe: { class: 'write', approval: { self_approval: true } } };
const place = new Place({ contract: { tools } });

const kinds = {
    'SDK 1': { open: sdk1 },
    'SDK 2': { open: sdk2 },
    'SDK 2 auto': { open: sdk2, mode: 'auto', modern: true },
    'SDK 2 modern': { open: sdk2, mode: { pin: modernVersion }, modern: true },
};

for (const [name, { open, mode, modern }] of Object.entries(kinds)) {
    const what = name.replaceAll(' ', '-');
    const call = (client, args, options) => name === 'SDK 1'
        ? client.callTool({ name: 'append', arguments: args }, undefined, options)
        : client.callTool({ name: 'append', arguments: args }, options);

    test(`${name}: lists, calls, progress and replays`, async () => {
        const client = await open(place, { mode });
        if (modern !== undefined) assert.equal(client.getProtocolEra(), 'modern');
        assert.equal(client.getServerVersion()?.name, 'scripted');
        const listed = await client.listTools();
        assert.ok(listed.tools.some((tool) => tool.name === 'append'));
        const progress = [];
        const args = { what, script: `effect progress:3 gate:seen-${what} structured answer` };
        const first = await call(client, args, { onprogress: noteProgress(progress, () => place.mark(`seen-${what}`)) });
        assert.equal(first.content[0].text, `${what}: 1`);
        assertCounted(progress);
        const second = await call(client, args);
        assert.deepEqual(second.content, first.content);
        assert.deepEqual(second.structuredContent, { what, exact: 12345 });
        assert.equal(second._meta['semel/replayed'], true);
        assert.equal(place.effects(what), 1);
        await client.close();
    });

    test(`${name}: a timeout and its retry are one effect`, async () => {
        const late = `late-${what}`;
        const client = await open(place, { mode });
        const args = { what: late, script: `effect mark:${late} gate:${late}-go answer` };
        await client.listTools(); // the server is up: the call is sent before its time is over
        await assert.rejects(call(client, args, { timeout: 2000 }));
        await place.passed(late);
        const retry = call(client, args, { timeout: 20_000 });
        place.mark(`${late}-go`);
        assert.equal((await retry).content[0].text, `${late}: 1`);
        assert.equal(place.effects(late), 1);
        await client.close();
    });

    test(`${name}: the user is asked for approval`, async () => {
        const forms = [];
        const client = await open(place, {
            mode,
            capabilities: { elicitation: { form: {} } },
            prepare: (one) => prepare(one, name, (params) => {
                forms.push(params);
                const properties = Object.entries(params.requestedSchema.properties ?? {});
                return {
                    action: 'accept',
                    content: Object.fromEntries(properties.map(([key, { type }]) => [key, type === 'boolean' ? true : 'yes'])),
                };
            }),
        });
        const done = await client.callTool({ name: 'wipe', arguments: { what: `wipe-${what}` } });
        assert.equal(done.content[0].text, `wipe-${what}: 1`);
        assert.equal(forms.length, 1);
        await client.close();
    });
}

// Names the handler of elicitations in the way of each generation.
async function prepare(client, name, handler) {
    if (name === 'SDK 1') {
        const { ElicitRequestSchema } = elicitation;
        client.setRequestHandler(ElicitRequestSchema, (request) => handler(request.params));
    } else {
        client.setRequestHandler('elicitation/create', (request) => handler(request.params));
    }
}
const elicitation = await import('@modelcontextprotocol/sdk/types.js');

test('what one client did, the others are told', async () => {
    const args = { what: 'shared' };
    const texts = [];
    for (const { open, mode } of Object.values(kinds)) {
        const client = await open(place, { mode });
        texts.push((await client.callTool({ name: 'append', arguments: args })).content[0].text);
        await client.close();
    }
    assert.deepEqual(new Set(texts), new Set(['shared: 1']));
});

test('a server of the old era behind a client that asks for the new one first', async () => {
    const old = new Place({ server: everything });
    const client = await sdk2(old, { mode: 'auto' });
    assert.equal(client.getProtocolEra(), 'legacy');
    assert.equal(client.getNegotiatedProtocolVersion?.() ?? legacyVersion, legacyVersion);
    const { content } = await client.callTool({ name: 'get-sum', arguments: { a: 2, b: 3 } });
    assert.match(content[0].text, /5/);
    await client.close();
});

test('a client that closes is soon gone, and so is the server', async () => {
    const client = await sdk1(place);
    await client.callTool({ name: 'look', arguments: { what: 'closing' } });
    const proxy = client.transport._process;
    await client.close();
    assert.equal(proxy.signalCode, null, 'it is not killed');
    const pid = place.serverOf('closing');
    await eventually('the server has ended', () => spawnSync('ps', ['-p', String(pid)]).status !== 0);
});

// From a file of configuration, as in clients: on its own command line the proxy's options would be
// taken for the inspector's.
test("the inspector's command line", () => {
    const [command, ...args] = place.command();
    const file = `${place.directory}/mcp.json`;
    fs.writeFileSync(file, JSON.stringify({ mcpServers: { once: { command, args } } }));
    const inspect = (...more) => {
        const [program, ...rest] = [...inspector, '--config', file, '--server', 'once', ...more];
        const env = { ...place.env, HOME: place.directory, MCP_INSPECTOR_SECRET_STORE: 'memory' };
        const done = spawnSync(program, rest, { env, encoding: 'utf8', timeout: 30_000 });
        assert.equal(done.status, 0, done.stderr);
        return JSON.parse(done.stdout);
    };
    assert.ok(inspect('--method', 'tools/list').tools.some((tool) => tool.name === 'append'));
    const call = ['--method', 'tools/call', '--tool-name', 'append', '--tool-arg', 'what=inspected'];
    const [first, second] = [inspect(...call), inspect(...call)];
    assert.equal(first.content[0].text, 'inspected: 1');
    assert.deepEqual(second.content, first.content);
    assert.equal(place.effects('inspected'), 1);
});

await run();
