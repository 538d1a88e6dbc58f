// Effects of real servers, counted: a file that is edited or moved, a graph that is added to. Whatever
// happens between the call and its answer, there is one effect.
//
// SEMEL_TEST_LEDGER is the ledger; a file of SQLite for each test if there is none.

import fs from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import {
    Place, assert, assertDone, assertReplayed, assertVerdict, filesystem, memory, node, sdk1, textOf,
} from './harness.mjs';
import { about, run, sleep, test } from '../gateway/tap.mjs';

about(process.env.SEMEL_TEST_LEDGER?.split(':')[0] || 'sqlite');
const delay = path.join(path.dirname(fileURLToPath(import.meta.url)), 'delay.mjs');
const contract = { tools: { edit_file: { class: 'write' }, move_file: { class: 'write' }, add_observations: { class: 'write' } } };

// Each tool: what it is called with, and how often it was done.
const kinds = {
    edit_file: {
        server: (directory) => filesystem(directory),
        prepare: (directory) => fs.writeFileSync(`${directory}/text`, 'line\n'),
        // Each run adds one more.
        args: (directory) => ({ path: `${directory}/text`, edits: [{ oldText: 'line', newText: 'line\nmore' }] }),
        count: (directory) => fs.readFileSync(`${directory}/text`, 'utf8').split('more').length - 1,
    },
    move_file: {
        server: (directory) => filesystem(directory),
        prepare: (directory) => fs.writeFileSync(`${directory}/from`, ''),
        // A second run would fail: there is nothing to move any more.
        args: (directory) => ({ source: `${directory}/from`, destination: `${directory}/to` }),
        count: (directory) => Number(fs.existsSync(`${directory}/to`)),
    },
    add_observations: {
        server: () => memory,
        env: (directory) => ({ MEMORY_FILE_PATH: `${directory}/memory.jsonl` }),
        prepare: (directory) => fs.writeFileSync(`${directory}/memory.jsonl`,
            '{"type":"entity","name":"tea","entityType":"drink","observations":[]}\n'),
        args: () => ({ observations: [{ entityName: 'tea', contents: ['green'] }] }),
        count: (directory) => fs.readFileSync(`${directory}/memory.jsonl`, 'utf8').split('green').length - 1,
    },
};

class Case extends Place {
    constructor(tool, { held = true } = {}) {
        const kind = kinds[tool];
        super({ contract });
        this.tool = tool;
        this.work = `${this.directory}/work`;
        fs.mkdirSync(this.work);
        kind.prepare(this.work);
        this.options.env = kind.env?.(this.work);
        this.server = [...(held ? [node, delay, this.directory] : []), ...kind.server(this.work)];
        this.args = kind.args(this.work);
        this.count = () => kind.count(this.work);
    }
    ask(client) {
        return client.call(this.tool, this.args);
    }
    // The effect has happened, and its answer is held back.
    held() {
        return this.passed('held');
    }
    heldBy() {
        return Number(fs.readFileSync(`${this.directory}/held`, 'utf8'));
    }
}

for (const tool of Object.keys(kinds)) {
    test(`${tool}: the client times out and asks again`, async () => {
        const one = new Case(tool);
        const client = await sdk1(one);
        const request = { name: tool, arguments: one.args };
        // Long enough for the call to reach the server: one that still waits is ended by the cancel.
        await assert.rejects(client.callTool(request, undefined, { timeout: 3000 }), /timed out/);
        await one.held();
        const retry = client.callTool(request, undefined, { timeout: 20_000 });
        await sleep(100);
        one.mark('go');
        assert.ok(!(await retry).isError);
        assert.equal(one.count(), 1);
        await client.close();
    });

    test(`${tool}: the client cancels and asks again`, async () => {
        const one = new Case(tool);
        const client = await one.open();
        const id = client.nextId;
        one.ask(client).catch(() => {});
        await one.held();
        client.cancel(id);
        one.mark('go');
        await sleep(100);
        assertReplayed(await one.ask(client));
        assert.equal(one.count(), 1);
        await client.close();
    });

    test(`${tool}: the proxy is killed between forward and answer`, async () => {
        const one = new Case(tool);
        const client = await one.open();
        one.ask(client).catch(() => {});
        await one.held();
        await client.kill();
        one.mark('go');
        const next = await one.open();
        const verdict = assertVerdict(await one.ask(next), 'IN_DOUBT');
        assert.equal(one.count(), 1);
        one.json('resolve', verdict.effect, '--applied', '', '--evidence', 'the file is there');
        // These tools have an outputSchema, and nobody recorded a result: the replay says that it is done.
        const replay = await one.ask(next);
        assert.equal(replay.result._meta['semel/replayed'], true, replay.line);
        assert.match(textOf(replay), /^This was done already/);
        assert.equal(one.count(), 1);
        await next.close();
    });

    test(`${tool}: the server is killed before its answer`, async () => {
        const one = new Case(tool);
        const client = await one.open();
        const lost = one.ask(client);
        await one.held();
        process.kill(one.heldBy(), 'SIGKILL');
        assertVerdict(await lost, 'IN_DOUBT');
        one.mark('go');
        assertVerdict(await one.ask(client), 'IN_DOUBT');
        assert.equal(one.count(), 1);
        await client.close();
    });

    test(`${tool}: two proxies at once`, async () => {
        const one = new Case(tool, { held: false });
        const clients = await Promise.all([one.open(), one.open()]);
        const answers = await Promise.all(clients.map((client) => one.ask(client)));
        for (const answer of answers) assertDone(answer);
        assert.equal(textOf(answers[0]), textOf(answers[1]));
        assert.equal(one.count(), 1);
        await Promise.all(clients.map((client) => client.close()));
    });

    test(`${tool}: without the proxy a repeat shows`, async () => {
        const one = new Case(tool, { held: false });
        const client = await one.open({ direct: true });
        const [first, second] = [await one.ask(client), await one.ask(client)];
        assert.notEqual(textOf(second), textOf(first));
        if (tool === 'edit_file') assert.equal(one.count(), 2);
        await client.close();
    });
}

await run();
