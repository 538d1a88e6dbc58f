// The calls of published clients: over stdio, and over HTTP in front of servers of either kind. Every
// story is one call and its retries. Its argument identifies it, so stories run side by side; each test
// waits for its own.

import { Gateway } from '../gateway/harness.mjs';
import { Place, assert } from '../mcp/harness.mjs';
import { eventually, later, run, sleep, test } from '../gateway/tap.mjs';
import { childOf, counts, goServer, isAlive, kinds, otherGoServer, start } from './harness.mjs';
import { spawn } from 'node:child_process';

const contract = {
    tools: {
        transfer: { class: 'irreversible', key: { fields: ['/to'] }, approval: { expires: '1h' } },
        order: { class: 'write', on_repeat: 'run', repeat_after: '1h' }, // however slow the machine is
    },
};
const place = new Place({ contract, server: goServer, env: { SEMEL_COUNT: counts.file } });

// A server over HTTP, and where it is.
function distantServer(server) {
    const child = spawn('setpriv', ['--pdeathsig', 'KILL', ...server, '--http'], {
        env: place.env, stdio: ['ignore', 'pipe', 'ignore'],
    });
    later(() => child.kill('SIGKILL'));
    return new Promise((resolve) => child.stdout.once('data', (text) => resolve(String(text).trim())));
}

const gateway = async () => Gateway.start({
    contract: { version: 1, ...contract },
    ledger: place.ledger,
    env: place.env,
    config: {
        mcp: {
            near: { command: goServer, env: { SEMEL_COUNT: counts.file } },
            // One of their own for each: clients without sessions share a server.
            ...Object.fromEntries(Object.keys(kinds).map((kind) => [`mortal-${kind}`, { command: goServer, env: { SEMEL_COUNT: counts.file } }])),
            far: { url: await url },
            'far-mcp-go': { url: await otherUrl },
        },
    },
});
const url = distantServer(goServer);
const otherUrl = distantServer(otherGoServer); // mcp-go does not understand the other server's server/discover
const lasting = gateway();
const doomed = gateway(); // on the same ledger; it is killed

// Where clients connect to.
const viaGateway = (which) => async ({ gw = lasting, server = which } = {}) => {
    const { port, texts } = await gw;
    return { url: `http://127.0.0.1:${port}/mcp/${server}`, headers: { Authorization: `Bearer ${texts.agent}` } };
};
const targets = {
    stdio: () => ({ command: place.command(), env: place.env }),
    'http, a command': viaGateway('near'),
    'http, a url': viaGateway('far'),
};

const replayNote = /already (done|ran|made)|recorded/i;
const done = (tool, to) => new RegExp(`${tool} ${to}, call \\d+`);

// ---- the stories. Each gets `its`: how to open, the session that lives throughout, and a name.

const stories = {
    // The client gives up and reads the answer late, or never. The retry comes when it can no longer be
    // taken for the same try.
    async 'a client that gives up and asks again later makes one effect'(its) {
        const seconds = kinds[its.kind].timeoutMs ? null : 3; // else what it has by itself
        const client = await its.open(seconds);
        const args = { to: its.name('late'), ms: (kinds[its.kind].timeoutMs ?? 3000) + 1000 };
        assert.doesNotMatch(await client.call('pay', args), done('pay', args.to));
        await counts.over(`pay ${args.to}`);
        await sleep(2500); // longer than repeat_after
        const again = kinds[its.kind].breaks && its.via !== 'stdio' ? its.client : client;
        const seen = await again.call('pay', args);
        assert.match(seen, done('pay', args.to));
        assert.match(seen, replayNote);
        assert.equal(counts.of(`pay ${args.to}`), 1);
    },

    async 'a client that cancels and asks again makes one effect'(its) {
        const args = { to: its.name('cancelled'), ms: 1000 };
        const call = its.client.call('pay', args);
        await counts.begun(`pay ${args.to}`);
        await call.cancel();
        await call;
        assert.match(await its.client.call('pay', args), done('pay', args.to));
        assert.equal(counts.of(`pay ${args.to}`), 1);
    },

    async 'two clients at once make one effect, and both get its answer'(its) {
        const args = { to: its.name('both'), ms: 500 };
        const other = await its.open();
        const seen = await Promise.all([its.client.call('pay', args), other.call('pay', args)]);
        for (const one of seen) assert.match(one, done('pay', args.to));
        assert.equal(counts.of(`pay ${args.to}`), 1);
        await other.close();
    },

    async 'a client that is killed makes one effect, and its successor gets the answer'(its) {
        const args = { to: its.name('killed'), ms: 1000 };
        const client = await its.open();
        client.call('pay', args);
        await counts.begun(`pay ${args.to}`);
        client.kill();
        assert.match(await its.client.call('pay', args), done('pay', args.to));
        assert.equal(counts.of(`pay ${args.to}`), 1);
    },

    async 'a server that is killed leaves a doubt, which the model is told, and nothing is tried again'(its) {
        const args = { to: its.name('served'), ms: 20_000 };
        const client = await its.open(null, { server: `mortal-${its.kind}` });
        const call = client.call('pay', args);
        await counts.begun(`pay ${args.to}`);
        process.kill(counts.pid(`pay ${args.to}`), 'SIGKILL');
        for (const seen of [await call, await client.call('pay', args)]) {
            assert.match(seen, /IN_DOUBT/);
            assert.match(seen, /do not/i);
        }
        assert.equal(counts.of(`pay ${args.to}`), 1);
        client.kill();
    },

    async 'a proxy that is killed makes one effect, and its successor says that it is in doubt'(its) {
        const args = { to: its.name('proxied'), ms: 600_000 }; // ends with its proxy
        const client = await (its.via === 'stdio' ? its.open() : its.open(null, { gw: doomed }));
        const call = client.call('pay', args);
        await counts.begun(`pay ${args.to}`);
        if (its.via === 'stdio') process.kill(childOf(client.pid, 'semel'), 'SIGKILL');
        else await its.everybodyIsAtTheDoomed();
        client.kill();
        await call;
        assert.match(await its.client.call('pay', args), /IN_DOUBT/);
        assert.equal(counts.of(`pay ${args.to}`), 1);
    },

    async 'a repeat after half a second is replayed, and the model is told'(its) {
        const args = { to: its.name('soon') };
        const began = Date.now();
        assert.match(await its.client.call('pay', args), done('pay', args.to));
        await sleep(500);
        const seen = await its.client.call('pay', args);
        assert.match(seen, done('pay', args.to));
        // On a machine that is so slow it may be meant.
        if (its.runsRepeats && Date.now() - began > 2000) return;
        assert.match(seen, replayNote);
        assert.equal(counts.of(`pay ${args.to}`), 1);
    },

    async 'a repeat after three seconds runs over stdio, and is replayed over HTTP'(its) {
        const args = { to: its.name('meant') };
        const began = Date.now();
        assert.match(await its.client.call('pay', args), done('pay', args.to));
        const took = Date.now() - began;
        await sleep(3000);
        const seen = await its.client.call('pay', args);
        assert.match(seen, done('pay', args.to));
        // An answer that took longer than delivered_within does not count as delivered.
        if (its.runsRepeats && took > 900) return;
        assert.equal(counts.of(`pay ${args.to}`), its.runsRepeats ? 2 : 1);
        if (!its.runsRepeats) assert.match(seen, replayNote);
    },

    async 'a replay of a tool with an output schema is told to the model too'(its) {
        const args = { to: its.name('ordered') };
        assert.match(await its.client.call('order', args), new RegExp(args.to));
        const seen = await its.client.call('order', args);
        assert.match(seen, new RegExp(args.to));
        if (its.kind === 'openai-agents-structured') assert.doesNotMatch(seen, replayNote); // as documented
        else assert.match(seen, replayNote);
        assert.equal(counts.of(`order ${args.to}`), 1);
    },

    async 'the model is told of an approval that it needs; approved, the call runs once'(its) {
        const args = { to: its.name('approved') };
        const seen = await its.client.call('transfer', args);
        assert.match(seen, /AWAITING_APPROVAL/);
        assert.match(seen, /do not/i);
        assert.doesNotMatch(seen, /semel approve/);
        assert.equal(counts.of(`transfer ${args.to}`), 0);
        place.json('approve', seen.match(/ap_\w+\.\d+/)[0]);
        assert.match(await its.client.call('transfer', args), done('transfer', args.to));
        assert.equal(counts.of(`transfer ${args.to}`), 1);
    },

    async 'a tool that takes 70 s makes one effect, whoever gives up'(its) {
        const args = { to: its.name('slow'), ms: 70_000 };
        const gives = kinds[its.kind].timeoutMs !== undefined; // up, by itself
        const seen = await (gives ? await its.open() : its.client).call('pay', args);
        if (gives) {
            assert.doesNotMatch(seen, done('pay', args.to));
            await counts.over(`pay ${args.to}`);
            assert.match(await its.client.call('pay', args), done('pay', args.to));
        } else {
            assert.match(seen, done('pay', args.to));
        }
        assert.equal(counts.of(`pay ${args.to}`), 1);
    },
};

// ---- all of them for all

// A server over HTTP is everybody's, and a gateway that is killed is the same for both kinds. One client
// differs from another only in what it makes of structured results.
function applies(name, kind, via) {
    if (kind === 'openai-agents-structured') return via === 'stdio' && name.includes('output schema');
    return via !== 'http, a url' || !/server that is killed|proxy that is killed|70 s/.test(name);
}

const only = process.env.SEMEL_TEST_ONLY ?? '';
let atTheDoomed = 0;
const expectedAtTheDoomed = Object.keys(kinds).length - 1; // but the one that differs in nothing there
const gone = Promise.withResolvers();

async function everybodyIsAtTheDoomed() {
    if (++atTheDoomed === expectedAtTheDoomed) {
        process.kill((await doomed).pid, 'SIGKILL');
        gone.resolve();
    }
    return gone.promise;
}

function about(kind, via) {
    const word = `${kind}-${via.replace(/\W+/g, '-')}`;
    const its = {
        kind, via, everybodyIsAtTheDoomed,
        runsRepeats: via === 'stdio' && !kinds[kind].perCall,
        name: (text) => `${text}-${word}`,
        open: async (timeout = null, where = {}) => (await start(kind)).open(await targets[via]({ server: kinds[kind].far && via === 'http, a url' ? kinds[kind].far : undefined, ...where }), timeout),
    };
    return its;
}

// ---- leaving

// The output of mcp 1.x when it leaves its session during a call that writes, with the proxy and
// without it.
async function leaves(target, name) {
    const args = { to: name, ms: 3000 };
    const client = await (await start('mcp1')).open(target);
    const call = client.call('pay', args);
    await counts.begun(`pay ${name}`);
    await sleep(400); // less, and it may be requests that are piped in, which are all answered
    const troubles = await client.close();
    await call;
    return troubles;
}

async function leavesCleanly(via) {
    const direct = via === 'stdio' ? { command: goServer, env: place.env } : { url: await url, headers: {} };
    const name = `left-${via.replace(/\W+/g, '-')}`;
    assert.deepEqual(await leaves(await targets[via](), name), await leaves(direct, `direct-${name}`));
    // The call has gone on, and is not in doubt.
    const successor = await (await start('mcp1')).open(await targets[via]());
    assert.match(await successor.call('pay', { to: name, ms: 3000 }), done('pay', name));
    assert.equal(counts.of(`pay ${name}`), 1);
}

// A client that ends the proxy's whole process group, as mcp 1.x does when it has waited for too long.
// The proxy gives the call 1.5 s to end. A machine that is too busy to end it by then shows nothing, and is asked again.
async function groupIsEnded(signal) {
    for (let n = 0; ; n++) {
        const args = { to: `ended-by-${signal}-${n}`, ms: 300 };
        const client = await (await start('mcp1')).open(await targets.stdio());
        const call = client.call('pay', args).catch(() => null); // mcp 1.x waits for ever for a server that is gone
        await counts.begun(`pay ${args.to}`);
        const proxy = childOf(client.pid, 'semel');
        const killed = Date.now();
        process.kill(-proxy, signal);
        await Promise.race([call, eventually('the proxy has ended', () => !isAlive(proxy))]);
        if (Date.now() - killed > 1200) continue;
        const successor = await (await start('mcp1')).open(await targets.stdio());
        assert.match(await successor.call('pay', args), done('pay', args.to));
        assert.equal(counts.of(`pay ${args.to}`), 1);
        return;
    }
}

// So many at a time; what only waits (the last story) does not count.
let free = 16;
const queue = [];
async function turn(body) {
    if (free === 0) await new Promise((resolve) => queue.push(resolve));
    else free--;
    try {
        return await body();
    } finally {
        if (queue.length > 0) queue.shift()();
        else free++;
    }
}

for (const via of Object.keys(targets)) {
    for (const kind of Object.keys(kinds)) {
        const its = about(kind, via);
        const names = Object.keys(stories).filter((name) => applies(name, kind, via) && `${kind}, ${via}: ${name}`.includes(only));
        if (names.length === 0) continue;
        // A client that gives up by itself has time here: the stories about that open their own.
        const patience = kinds[kind].timeoutMs === undefined ? null : 120;
        const opened = turn(() => its.open(patience).then((client) => (its.client = client)));
        opened.catch(() => {});
        for (const name of names) {
            const story = stories[name];
            const waits = /70 s|proxy that is killed/.test(name);
            const told = opened.then(() => (waits ? story(its) : turn(() => story(its))));
            told.catch(() => {});
            test(`${kind}, ${via}: ${name}`, () => told);
        }
    }
}

const more = Object.keys(targets).map((via) => [`mcp1, ${via}: leaving during a call is as clean as directly, and the call goes on`, () => leavesCleanly(via)]);
more.push(['mcp1, stdio: a client that ends the process group causes no doubt', () => groupIsEnded('SIGTERM')]);
for (const [name, story] of more.filter(([name]) => name.includes(only))) {
    const told = turn(story);
    told.catch(() => {});
    test(name, () => told);
}

await run();
