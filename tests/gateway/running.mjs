// How it is run: signals, contracts reloaded, drained, Unix socket, TLS, and no secret anywhere.

import { spawn, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { connect as connectTls } from 'node:tls';
import { Client, Raw, bytesOf } from './client.mjs';
import { Gateway, assert, assertProblem, certificate, freePort, newPath, run as semel } from './harness.mjs';
import { newOrder, shop } from './shop.mjs';
import { eventually, run, sleep, test } from './tap.mjs';
import { Upstream } from './upstream.mjs';

const secret = `sk_live_${'s3cr3t'.repeat(4)}`;
const up = await Upstream.start();
const env = { SHOP_SECRET: secret };
const charge = (order) => ({ scope: 'shop/1', tool: 'charge', args: { order_id: order, amount: 1 } });

const logged = (gw) => gw.log.trim().split('\n').map((line) => JSON.parse(line));

test('SIGHUP takes a new contract; a bad one changes nothing and is told', async () => {
    const gw = await Gateway.start({ contract: shop(up), env });
    const fresh = { class: 'write', upstream: { url: `${up.url}/ok/fresh` } };
    const call = () => gw.agent.call({ scope: 'shop/1', tool: 'fresh', args: { order_id: newOrder() } });
    assert.equal((await call()).status, 404);
    gw.writeContract(shop(up, { fresh }));
    gw.signal('SIGHUP');
    await eventually('the new tool is known', async () => (await call()).status === 200);
    for (const bad of ['version: 1\ntools: { fresh: { clas: write } }\n', '{ nonsense', '']) {
        const before = gw.log.length;
        gw.writeContract(bad);
        gw.signal('SIGHUP');
        await eventually('the log says what is wrong', () => /error/i.test(gw.log.slice(before)));
        assert.equal((await call()).status, 200, 'the old one stays');
        if (bad.includes('clas:')) assert.match(gw.log.slice(before), /class/, 'what was meant');
    }
    const order = newOrder();
    await gw.agent.call(charge(order));
    const changed = shop(up);
    changed.tools.charge.key = { fields: ['/order_id', '/amount'] };
    const before = gw.log.length;
    gw.writeContract(changed);
    gw.signal('SIGHUP');
    await eventually('a change of identity is warned about', () => /warn/i.test(gw.log.slice(before)));
    fs.unlinkSync(gw.contractFile);
    gw.signal('SIGHUP');
    await sleep(200);
    assert.equal((await gw.client.get('/readyz')).status, 200);
    await gw.kill();
});

test('a call that waits across a change of identity ends under the contract it began with', async () => {
    const gw = await Gateway.start({ contract: shop(up), env });
    const order = newOrder();
    const body = { scope: 'shop/1', tool: 'slow', args: { order_id: order, note: 'one' } };
    const both = [gw.agent.call(body), sleep(50).then(() => gw.agent.call(body))];
    await eventually('the upstream works', () => up.times(order) === 1);
    await sleep(100);
    const changed = shop(up);
    changed.tools.slow.key = { fields: ['/order_id'] };
    const before = gw.log.length;
    gw.writeContract(changed);
    gw.signal('SIGHUP');
    await eventually('it is taken', () => gw.log.length > before);
    const [first, second] = await Promise.all(both);
    assert.equal(second.status, 200);
    assert.deepEqual(second.body, first.body);
    assert.equal(up.times(order), 1);
    await gw.kill();
});

// ---- a tool whose URL changes before its call is settled: what would be sent is another request

const doubted = {
    resend: { class: 'write', on_in_doubt: ['resend', 'hold'] },
    rerun: { class: 'write_idempotent', on_in_doubt: ['rerun'] },
    probe: {
        class: 'write',
        on_in_doubt: ['probe', 'hold'],
        probe: {
            tool: 'lookup',
            args: { '/order_id': '/order_id' },
            applied: { when: [{ field: '/data/0/id', exists: true }], outcome: '/data/0' },
            absent: { when: [{ field: '/data/0', exists: false }] },
            settle: '1s',
        },
        lease: '1s',
    },
};

const unanswered = new Map(); // responses, by order
up.habit('unanswered', (upstream, entry, response) => void unanswered.set(entry.order, response));

const movable = (tool, path) => {
    const idempotency = { header: 'Idempotency-Key', window: '24h' };
    return shop(up, { move: { ...tool, upstream: { url: `${up.url}${path}`, timeout: '60s', idempotency } } });
};
const move = (order) => ({ scope: 'shop/1', tool: 'move', args: { order_id: order }, wait_ms: 0 });

async function moveAway(gw, tool) {
    gw.writeContract(movable(tool, '/ok/moved'));
    gw.signal('SIGHUP');
    await eventually('it is taken', () => gw.log.includes('"reloaded"'));
}

// Until the gateway says that it does not make the call. Only these paths were asked, but for probes.
const pathsOf = (order) => up.asked(order).map((one) => one.path).filter((path) => path !== '/find');
async function assertLeft(gw, order, paths) {
    const refused = () => logged(gw).some((one) => /another/.test(one.why));
    await eventually('it is refused, or sent', () => refused() || pathsOf(order).length > paths.length);
    assert.deepEqual(pathsOf(order), paths);
}

for (const [step, tool] of Object.entries(doubted)) {
    test(`a call in doubt is not sent to another URL: ${step}`, async () => {
        const gw = await Gateway.start({ contract: movable(tool, '/unanswered'), env });
        const order = newOrder();
        const { effect } = assertProblem(await gw.agent.call(move(order)), 409, 'RETRY_IN_FLIGHT');
        await eventually('the upstream has it', () => unanswered.has(order));
        await moveAway(gw, tool);
        unanswered.get(order).socket.resetAndDestroy();
        await assertLeft(gw, order, ['/unanswered']);
        if (step === 'resend') {
            const again = assertProblem(await gw.agent.call(move(order)), 504, 'UPSTREAM_TIMEOUT');
            assert.equal(again.effect, effect);
            assert.deepEqual(pathsOf(order), ['/unanswered']);
        }
        if (step === 'rerun') {
            await sleep(2500); // it is looked at again, but not every second
            assert.equal(logged(gw).filter((one) => /another/.test(one.why)).length, 1);
        }
        await gw.kill();
    });
}

test('a call that was approved for one URL needs another approval for another', async () => {
    const tool = { class: 'write', approval: {} };
    const gw = await Gateway.start({ contract: movable(tool, '/ok/here'), env });
    const order = newOrder();
    const { effect, request } = assertProblem(await gw.agent.call(move(order)), 202, 'AWAITING_APPROVAL');
    await moveAway(gw, tool);
    const approved = await gw.approver.post(`/v1/effects/${effect}/approve`, { request });
    assert.equal(approved.status, 200, approved.text);
    await assertLeft(gw, order, []);
    const again = assertProblem(await gw.agent.call(move(order)), 202, 'AWAITING_APPROVAL');
    assert.notEqual(again.request, request);
    assert.deepEqual(pathsOf(order), []);
    await gw.kill();
});

test('SIGTERM: what is under way ends, nothing new begins, exit 0', async () => {
    const gw = await Gateway.start({ contract: shop(up), env });
    const order = newOrder();
    const body = { scope: 'shop/1', tool: 'slow', args: { order_id: order } };
    const keeping = new Client(gw.client.base, gw.texts.agent);
    await keeping.get('/v1/tools'); // a connection that is there before
    const running = gw.agent.call(body);
    await eventually('the upstream works', () => up.times(order) === 1);
    const joined = gw.agent2.call(body);
    await sleep(50);
    gw.signal('SIGTERM');
    await eventually('it drains', async () => {
        const answer = await keeping.call(charge(newOrder())).catch(() => ({ status: 503 }));
        return answer.status === 503;
    });
    const answer = await running;
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.json.order, order);
    const other = await joined; // it is not kept waiting, or it gets the same
    if (other.status !== 200) assertProblem(other, 409, 'RETRY_IN_FLIGHT');
    assert.deepEqual(await gw.exit, { code: 0, signal: null });
    keeping.close();
    await gw.up();
    const again = await gw.agent.call(body);
    assert.equal(again.headers['idempotent-replayed'], 'true', again.text);
    assert.equal(up.times(order), 1);
    await gw.kill();
});

test('clients that hang up while it drains leave nothing that is freed twice', async () => {
    for (let round = 0; round < 4; round++) {
        const contract = shop(up, { asks: { class: 'write', approval: { expires: '1h' }, upstream: { url: `${up.url}/ok` } } });
        const gw = await Gateway.start({ contract, env, ledger: 'memory:' });
        const own = Array.from({ length: 60 }, () => new Client(gw.client.base).as(gw.texts.agent));
        const waiting = own.map((one, n) => one
            .call({ scope: 'shop/1', tool: 'asks', args: { n }, wait_ms: 60_000 }).catch((error) => error));
        await eventually('they wait', async () => (await gw.metric(/^semel_requests_parked$/)) > 30);
        own.forEach((one) => one.close());
        assert.deepEqual(await gw.stop(), { code: 0, signal: null });
        await Promise.all(waiting);
    }
});

test('SIGTERM: what does not end in time is left, and is in doubt', async () => {
    const contract = shop(up, {
        stuck: { class: 'write', upstream: { url: `${up.url}/hang`, timeout: '60s' } },
    });
    const gw = await Gateway.start({ contract, env, config: { drain: '500ms' } });
    const order = newOrder();
    const body = { scope: 'shop/1', tool: 'stuck', args: { order_id: order } };
    const running = gw.agent.call(body).catch((error) => error);
    const waiting = gw.agent.call({ ...body, wait_ms: 60_000 }).catch((error) => error);
    await eventually('the upstream works', () => up.times(order) === 1);
    const began = Date.now();
    const { code } = await gw.stop();
    assert.equal(code, 0);
    assert.ok(Date.now() - began < 30_000, `${Date.now() - began} ms`);
    await Promise.all([running, waiting]);
    await gw.up();
    await eventually('it is in doubt', async () => {
        const answer = await gw.agent.call({ ...body, wait_ms: 0 });
        return answer.json.code === 'IN_DOUBT';
    });
    assert.equal(up.times(order), 1);
    await gw.kill();
});

test('SIGTERM: whoever waits when the time is up is told to ask again', async () => {
    const contract = shop(up, {
        stuck: { class: 'write', upstream: { url: `${up.url}/hang`, timeout: '60s' } },
    });
    const gw = await Gateway.start({
        contract, env, config: { drain: '500ms', proxies: { api: { url: up.url } } },
    });
    const order = newOrder();
    const body = { scope: 'shop/1', tool: 'stuck', args: { order_id: order } };
    const running = gw.agent.call(body);
    const passing = gw.agent.get(`/proxy/api/hang?order_id=${order}`);
    await eventually('the upstream works', () => up.times(order) === 2);
    const { code } = await gw.stop();
    assert.equal(code, 0);
    for (const answer of [await running, await passing]) {
        const problem = assertProblem(answer, 503, 'DRAINING');
        assert.equal(problem.retriable, true);
        assert.ok(answer.headers['retry-after']);
    }
    const lines = logged(gw);
    assert.ok(!lines.some((one) => one.status === 499), 'nobody hung up but us');
    const left = lines.find((one) => /within the time to drain/.test(one.message));
    assert.equal(left.level, 'warn');
    assert.equal(left.effects, 1);
    assert.equal(left.requests, 2);
    const doubt = lines.find((one) => one.message === 'in doubt');
    assert.match(doubt.effect, /^ef_/, 'which effect was left');
});

test('SIGTERM: what gets its claim after the time is up is not sent, and is not in doubt', async () => {
    const gw = await Gateway.start({ contract: shop(up), env, config: { drain: '100ms' } });
    const order = newOrder();
    const hog = spawn('sqlite3', [gw.ledger.slice('sqlite:'.length)], { stdio: ['pipe', 'pipe', 'inherit'] });
    hog.stdin.write('BEGIN IMMEDIATE;\nSELECT 1;\n');
    await new Promise((resolve) => hog.stdout.once('data', resolve));
    const connections = () => gw.metric(/^semel_http_connections$/);
    const before = await connections();
    const call = gw.agent.call(charge(order));
    await eventually('it asks the ledger', async () => (await connections()) > before);
    const stopped = gw.stop();
    assertProblem(await call, 503, 'DRAINING');
    // Whoever is told so is told before the HTTP client ends, which then takes no time.
    await new Promise((resolve) => setTimeout(resolve, 1500));
    hog.stdin.end('ROLLBACK;\n');
    assert.deepEqual(await stopped, { code: 0, signal: null });
    assert.equal(up.times(order), 0);
    await gw.up();
    const again = await gw.agent.call(charge(order));
    assert.equal(again.status, 200, again.text);
    assert.equal(up.times(order), 1);
    await gw.kill();
});

test('streams end when it drains', async () => {
    const { Events } = await import('./client.mjs');
    const gw = await Gateway.start({ contract: shop(up), env });
    const stream = await Events.open(gw.agent, '/v1/stream');
    const { code } = await gw.stop();
    assert.equal(code, 0);
    await stream.ended;
});

test('a Unix socket serves the same, and is gone afterwards', async () => {
    const socketPath = newPath('s.sock');
    const gw = await Gateway.start({
        contract: shop(up), env, socketPath, config: { listen: `unix:${socketPath}` },
    });
    assert.equal(fs.statSync(socketPath).mode & 0o007, 0, 'not for everybody');
    const order = newOrder();
    assert.equal((await gw.agent.call(charge(order))).status, 200);
    assert.equal((await gw.agent.call(charge(order))).headers['idempotent-replayed'], 'true');
    assertProblem(await gw.client.call(charge(order)), 401, 'UNAUTHENTICATED');
    await gw.kill();
    assert.ok(fs.existsSync(socketPath), 'a killed one leaves it');
    await gw.up();
    assert.equal((await gw.agent.call(charge(order))).status, 200, 'and the next one takes it');
    const second = semel(['serve', '--config', gw.configFile]);
    assert.notEqual(second.status, 0, 'one that is in use is not taken');
    assert.equal((await gw.agent.call(charge(order))).status, 200);
    await gw.stop();
    assert.ok(!fs.existsSync(socketPath));
});

test('TLS with a certificate of its own', async () => {
    const tls = certificate();
    const gw = await Gateway.start({
        contract: shop(up), env, config: { tls }, tls: { ca: fs.readFileSync(tls.certificate) },
    });
    const order = newOrder();
    assert.equal((await gw.agent.call(charge(order))).status, 200);
    const plain = new Client({ host: '127.0.0.1', port: gw.port }, gw.texts.agent);
    const answer = await plain.call(charge(order)).catch((error) => ({ status: 0, error }));
    assert.ok(answer.status === 0 || answer.status >= 400, 'not without TLS');
    await gw.kill();
});

test('a TLS handshake that stalls is cut off like a request that does not come', async () => {
    const tls = certificate();
    const gw = await Gateway.start({
        contract: shop(up), env, config: { tls, limits: { request: '1s', idle: '60s' } },
        tls: { ca: fs.readFileSync(tls.certificate) },
    });
    const hello = Buffer.from('16030100c8010000c40303', 'hex'); // and no more of it
    const silent = await Raw.connect(gw.port);
    const stalled = await Raw.connect(gw.port);
    stalled.write(hello);
    for (const raw of [silent, stalled]) {
        const took = await Promise.race([raw.closed, sleep(6000).then(() => Infinity)]);
        assert.ok(took > 800 && took < 4000, `cut off after ${took} ms`);
    }
    assert.equal((await gw.client.get('/healthz')).status, 200);
    const secure = new Raw(connectTls({ port: gw.port, ca: fs.readFileSync(tls.certificate) }));
    secure.write(bytesOf('POST', '/v1/call', {
        Authorization: `Bearer ${gw.texts.agent}`, 'Transfer-Encoding': 'chunked',
    }));
    for (let n = 0; n < 40; n++) secure.write(`10000\r\n${'x'.repeat(65_536)}\r\n`);
    secure.write('0\r\n\r\n');
    assert.equal(await secure.status(), 413);
    secure.hangUp();
    await gw.kill();
});

test('several listeners are one gateway', async () => {
    const socketPath = newPath('t.sock');
    const port = await freePort();
    const gw = await Gateway.start({
        contract: shop(up), env, port, config: { listen: [`127.0.0.1:${port}`, `unix:${socketPath}`] },
    });
    const order = newOrder();
    const first = await gw.agent.call(charge(order));
    const local = new Client({ socketPath }, gw.texts.agent);
    const again = await local.call(charge(order));
    assert.equal(again.headers['idempotent-replayed'], 'true', again.text);
    assert.deepEqual(again.body, first.body);
    local.close();
    await gw.kill();
});

test('an address that others can reach is refused without TLS', async () => {
    for (const listen of ['0.0.0.0:0', '[::]:0', '10.1.2.3:8787']) {
        const file = newPath('config.yaml');
        fs.writeFileSync(file, JSON.stringify({ version: 1, listen, ledger: 'memory:' }));
        for (const more of [[], ['--check']]) {
            const refused = semel(['serve', '--config', file, ...more]);
            assert.notEqual(refused.status, 0, listen);
            assert.match(refused.stderr, /tls|behind_proxy/i);
        }
    }
});

test('a configuration with mistakes is not started, and all of them are told', async () => {
    const file = newPath('config.yaml');
    fs.writeFileSync(file, 'version: 1\nlisten: 127.0.0.1:0\nledgr: "memory:"\nlimits: { conections: 5 }\n');
    for (const more of [[], ['--check']]) {
        const refused = semel(['serve', '--config', file, ...more]);
        assert.equal(refused.status, 65, refused.stderr);
        assert.match(refused.stderr, /ledger/);
        assert.match(refused.stderr, /connections/);
        assert.match(refused.stderr, /:3/);
    }
    const absent = semel(['serve', '--config', newPath('nothing.yaml')]);
    assert.equal(absent.status, 66, absent.stderr);
});

test('a good configuration is checked without being started', async () => {
    const gw = new Gateway({ contract: shop(up), env });
    gw.port = await freePort();
    gw.writeConfig();
    const checked = semel(['serve', '--config', gw.configFile, '--check'], { env: { ...process.env, ...env } });
    assert.equal(checked.status, 0, checked.stderr);
});

test('a port that is taken is told', async () => {
    const gw = await Gateway.start({ contract: shop(up), env });
    const second = semel(['serve', '--config', gw.configFile], { env: { ...process.env, ...env } });
    assert.equal(second.status, 69, second.stderr);
    assert.match(second.stderr, new RegExp(String(gw.port)));
    assert.equal((await gw.agent.call(charge(newOrder()))).status, 200);
    await gw.kill();
});

test('an upstream whose secret is not set is not called', async () => {
    const bare = { ...process.env };
    delete bare.SHOP_SECRET;
    const gw = new Gateway({ contract: shop(up) });
    const order = newOrder();
    try {
        await gw.up();
    } catch {
        assert.match(gw.log, /SHOP_SECRET/); // refused at the start: that is right as well
        return;
    }
    const answer = await gw.agent.call(charge(order));
    assert.ok(answer.status >= 400, answer.text);
    assert.match(answer.text, /SHOP_SECRET/);
    assert.equal(up.times(order), 0);
    await gw.kill();
});

// Every file below a directory that holds a text, and every process that shows it.
function whereIs(text, directory) {
    const found = [];
    for (const name of fs.readdirSync(directory, { recursive: true })) {
        const file = path.join(directory, name);
        if (fs.statSync(file).isFile() && fs.readFileSync(file).includes(text)) found.push(file);
    }
    for (const pid of fs.readdirSync('/proc').filter((one) => /^\d+$/.test(one))) {
        try {
            if (fs.readFileSync(`/proc/${pid}/cmdline`).includes(text)) found.push(`process ${pid}`);
        } catch {
            // It has ended.
        }
    }
    return found;
}

test('secrets are in no log, no ledger, no file and no command line', async () => {
    const gw = await Gateway.start({
        contract: shop(up), env, config: { log: { format: 'text', level: 'debug', requests: 'all' } },
    });
    const order = newOrder();
    await gw.agent.call(charge(order));
    await gw.agent.call(charge(order));
    assert.equal(up.work.at(-1).headers.authorization, `Bearer ${secret}`, 'it was used');
    const begun = await gw.agent.post('/v1/begin', { scope: 'shop/1', tool: 'own', args: {} });
    await gw.agent.call({ scope: 'shop/1', tool: 'lost', args: { order_id: newOrder() } });
    const token = gw.texts.agent;
    await gw.client.call(charge(order), { headers: { authorization: `Bearer ${token}x` } });
    for (const text of [secret, token, token.split('_').slice(2).join('_'), begun.json.claim]) {
        assert.deepEqual(whereIs(text, gw.directory), []);
        assert.ok(!gw.log.includes(text), 'not in the log');
    }
    await gw.stop();
    for (const text of [secret, token, begun.json.claim]) {
        assert.deepEqual(whereIs(text, gw.directory), []);
        assert.ok(!gw.log.includes(text), 'not in the log');
    }
});

test('the log tells the code of what was refused, and warns of what went wrong', async () => {
    const gw = await Gateway.start({ contract: shop(up), env });
    await gw.agent.get('/v1/nothing');
    await gw.agent.call(charge(newOrder()));
    await gw.agent.call({ scope: 'shop/1', tool: 'lost', args: { order_id: newOrder() } });
    await gw.stop();
    const requests = logged(gw).filter((one) => one.message === 'request');
    const of = (status, path) => requests.find((one) => one.status === status && one.path === path);
    assert.equal(of(404, '/v1/nothing').code, 'NO_ROUTE');
    assert.equal(of(404, '/v1/nothing').level, 'info');
    assert.equal(of(200, '/v1/call').code, undefined);
    assert.equal(of(409, '/v1/call').code, 'IN_DOUBT');
    assert.equal(of(409, '/v1/call').level, 'warn');
});

test('why the ledger fails is for the log and for operators, and told once a second', async () => {
    const gw = await Gateway.start({ contract: shop(up), env });
    assert.equal((await gw.agent.call(charge(newOrder()))).status, 200);
    // Another process has the file for itself: nothing can be recorded.
    const file = gw.ledger.slice('sqlite:'.length);
    const hog = spawn('sqlite3', [file], { stdio: ['pipe', 'pipe', 'inherit'] });
    hog.stdin.write('BEGIN EXCLUSIVE;\nSELECT 1;\n');
    await new Promise((resolve) => hog.stdout.once('data', resolve));
    const before = gw.log.length;
    const calls = Array.from({ length: 20 }, () => gw.agent.call(charge(newOrder())));
    const answers = await Promise.all(calls);
    for (const answer of answers) {
        const problem = assertProblem(answer, 503, 'LEDGER_UNAVAILABLE');
        assert.equal(problem.message, 'The ledger cannot be used now, so nothing may run.');
        assert.ok(!answer.text.includes(file));
    }
    const told = await gw.admin.call(charge(newOrder()));
    assert.notEqual(told.json.message, answers[0].json.message, 'those who run it are told more');
    hog.stdin.end('ROLLBACK;\n');
    await new Promise((resolve) => hog.on('close', resolve));
    await eventually('it works again, and that is told', async () => {
        await gw.agent.call(charge(newOrder()));
        return /the ledger can be used again/.test(gw.log.slice(before));
    });
    const troubles = logged(gw).filter((one) => one.message === 'the ledger cannot be used');
    assert.ok(troubles.length >= 1 && troubles.length <= 15, `${troubles.length} lines`);
    assert.equal(troubles[0].level, 'error');
    assert.ok(troubles[0].reason.length > 5);
    await gw.kill();
});

// Whether the gateway says that it is ready, in both ways in which it is asked.
async function readiness(gw) {
    const ready = await gw.client.get('/readyz');
    const metrics = (await gw.admin.get('/metrics')).text;
    const up = Number(/^semel_ledger_up (\d)$/m.exec(metrics)[1]);
    return ready.status === 200 && up === 1 ? 'yes' : ready.status === 503 && up === 0 ? 'no' : '';
}

test('ready says what a write would meet, and again when that has healed', async () => {
    const gw = await Gateway.start({ contract: shop(up), env });
    const file = gw.ledger.slice('sqlite:'.length);
    const limit = (bytes) =>
        assert.equal(spawnSync('prlimit', ['--pid', gw.pid, `--fsize=${bytes}:`]).status, 0);
    const troubles = [
        ['moved', () => fs.renameSync(file, `${file}.aside`), () => fs.renameSync(`${file}.aside`, file)],
        ['replaced', () => {
            fs.renameSync(file, `${file}.aside`);
            fs.writeFileSync(file, '');
        }, () => fs.renameSync(`${file}.aside`, file)],
        ['over a limit', () => limit(fs.statSync(`${file}-wal`).size + 10), () => limit('unlimited')],
    ];
    for (const [name, breakIt, mendIt] of troubles) {
        const order = newOrder();
        assert.equal((await gw.agent.call(charge(newOrder()))).status, 200, name);
        breakIt();
        await eventually(`${name}: it says that it is not ready`, async () => (await readiness(gw)) === 'no');
        assertProblem(await gw.agent.call(charge(order)), 503, 'LEDGER_UNAVAILABLE');
        assert.equal((await gw.client.get('/healthz')).status, 200, name);
        mendIt();
        await eventually(`${name}: it says that it is ready again`, async () => (await readiness(gw)) === 'yes');
        assert.equal((await gw.agent.call(charge(order))).status, 200, name);
        assert.equal(up.times(order), 1, name);
    }
    assert.match(gw.log, /no space left for/);
    fs.unlinkSync(file);
    await eventually('deleted: it says that it is not ready', async () => (await readiness(gw)) === 'no');
    await gw.kill();
});

test('a ledger that cannot be used refuses, and nothing runs', async () => {
    const gw = new Gateway({
        contract: shop(up), env, ledger: 'postgres://nobody@127.0.0.1:1/none', config: { ledger: 'postgres://nobody@127.0.0.1:1/none' },
    });
    const order = newOrder();
    let status = 0;
    gw.ready = async () => {
        if (gw.ended) return true;
        const answer = await gw.client.get('/readyz').catch(() => null);
        status = answer?.status ?? 0;
        return status !== 0;
    };
    await gw.up();
    if (gw.ended) assert.notEqual((await gw.exit).code, 0);
    else {
        assert.equal(status, 503);
        assertProblem(await gw.agent.call(charge(order)), 503, 'LEDGER_UNAVAILABLE');
    }
    assert.equal(up.times(order), 0);
    await gw.kill();
});

await run();
