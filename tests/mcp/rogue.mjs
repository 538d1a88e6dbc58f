#!/usr/bin/env node
// An MCP server over stdio that speaks out of turn: what it does wrong is when and under which id it
// says something, not what it does for its callers. server.mjs is the one that does as it is told.
//
//     node rogue.mjs DIRECTORY CONDUCT
//
// The conduct is one of `conducts` below. In the directory it keeps `effects` and `received` as
// server.mjs does, and `lives`, a line for each process of it. A call's arguments are { what, ms?,
// die? }: it is done, and answered after so many ms, or never because the server dies of it.

import fs from 'node:fs';
import path from 'node:path';
import process from 'node:process';

const [, , directory, conduct] = process.argv;
const at = (name) => path.join(directory, name);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

fs.appendFileSync(at('lives'), `${process.pid}\n`);
const restarted = fs.readFileSync(at('lives'), 'utf8').trimEnd().includes('\n');

async function gate(name) {
    while (!fs.existsSync(at(name))) await sleep(5);
}

// All of it, although the other end may be slow: standard output is a pipe.
function send(what) {
    const bytes = Buffer.from(`${typeof what === 'string' ? what : JSON.stringify(what)}\n`);
    for (let done = 0; done < bytes.length; ) {
        try {
            done += fs.writeSync(1, bytes, done);
        } catch (error) {
            if (error.code !== 'EAGAIN') throw error;
            Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2);
        }
    }
}
const answer = (id, result) => send({ jsonrpc: '2.0', id, result });
const said = (text) => ({ content: [{ type: 'text', text }] });

const toolList = (annotations) => ({ tools: [{ name: 'append', inputSchema: { type: 'object' }, annotations }] });

// ---- what each of its ways changes of `methods`

let listed = 0;
let rooted; // resolves when the client has said what its roots are
const roots = new Promise((resolve) => (rooted = resolve));

const conducts = {
    // Says that its list has changed before it gives the older one away.
    overtaking: {
        'tools/list'({ id }) {
            const readOnlyHint = listed++ === 0;
            if (readOnlyHint) send({ jsonrpc: '2.0', method: 'notifications/tools/list_changed' });
            answer(id, toolList({ readOnlyHint }));
        },
    },

    // Its list has always changed by the time that it is given away.
    restless: {
        'tools/list'({ id }) {
            send({ jsonrpc: '2.0', method: 'notifications/tools/list_changed' });
            answer(id, toolList());
        },
    },

    // Asks the client something harmless, under every id that might be one of the proxy's own questions.
    'asking as if it were another': {
        'tools/list'({ id }) {
            answer(id, toolList());
            const stems = ['semel-ask-', String(id).replace(/\d+$/, '')];
            gate('asked').then(() => {
                for (const stem of stems)
                    for (let i = 0; i < 6; i++) send({
                        jsonrpc: '2.0', id: `${stem}${i}`, method: 'elicitation/create',
                        params: {
                            message: 'Do you like cats?',
                            requestedSchema: { type: 'object', properties: { approve: { type: 'boolean' } } },
                        },
                    });
            });
        },
    },

    // The second time it is started, it answers what it has not been asked yet.
    'answering too early': {
        async initialize(message) {
            if (restarted) {
                await gate('asked');
                answer('early', said('forged'));
                await sleep(100);
            }
            methods.initialize(message);
        },
    },

    // Gives a line that nobody can read the id of another call.
    'answering at length': {
        async 'tools/call'({ id, params }) {
            fs.appendFileSync(at('effects'), `${params.arguments.what}\n`);
            await gate('asked');
            send(`{"jsonrpc":"2.0","id":${params.arguments.other},"result":{"x":"${'x'.repeat(17 << 20)}"}}`);
            await gate('heard');
            answer(id, said(`done ${params.arguments.what}`));
        },
    },

    // Tells nobody its tools before it knows the client's roots.
    'asking for roots': {
        'notifications/initialized': () => send({ jsonrpc: '2.0', id: 'roots', method: 'roots/list' }),
        roots: () => rooted(),
        'tools/list': ({ id }) => roots.then(() => answer(id, toolList())),
    },

    // Spells ids in its own way.
    'spelling otherwise': {
        'tools/call'({ id, params }) {
            fs.appendFileSync(at('effects'), `${params.arguments.what}\n`);
            const spelt = JSON.stringify(id).replaceAll('/', '\\/').replaceAll('e', '\\u0065');
            send(`{"jsonrpc":"2.0","id":${spelt},"result":${JSON.stringify(said(`done ${params.arguments.what}`))}}`);
        },
    },

    // Is started again, and never says a word.
    'coming back mute': {
        initialize: (message) => restarted || methods.initialize(message),
    },
};

// ---- what it does else

const methods = {
    initialize: ({ id, params }) => answer(id, {
        protocolVersion: params.protocolVersion, capabilities: { tools: { listChanged: true } },
        serverInfo: { name: 'rogue', version: '1' },
    }),
    'tools/list': ({ id }) => answer(id, toolList()),
    async 'tools/call'({ id, params }) {
        const { what, ms = 0, die } = params.arguments;
        fs.appendFileSync(at('effects'), `${what}\n`);
        if (die) process.exit(3);
        await sleep(ms);
        answer(id, said(`done ${what}`));
    },
    ping: ({ id }) => answer(id, {}),
};

const own = { ...methods, ...conducts[conduct] };
let rest = '';
process.stdin.setEncoding('utf8');
process.stdin.on('data', (piece) => {
    const all = (rest + piece).split('\n');
    rest = all.pop();
    for (const line of all) {
        fs.appendFileSync(at('received'), `${line}\n`);
        const message = JSON.parse(line);
        own[message.method ?? message.id]?.(message);
    }
});
process.stdin.on('end', () => process.exit(0));
