// Upstreams that misbehave, each in its own way: what is recorded, what callers are told, and how
// often the work was done. On the ledger that SEMEL_TEST_LEDGER names, else on one of its own.

import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import https from 'node:https';
import process from 'node:process';
import { Gateway, assert, assertProblem, freePort, newPath, run as semel, starts } from './harness.mjs';
import { newOrder } from './shop.mjs';
import { about, eventually, later, run, sleep, test } from './tap.mjs';
import { Upstream, habits, reply } from './upstream.mjs';

const up = await Upstream.start();
const deadPort = await freePort();
const ledger = process.env.SEMEL_TEST_LEDGER;
about(ledger ? ledger.replace(/:.*/s, '') : 'sqlite');

function certificate(name) {
    const key = newPath(`${name}.key`);
    const cert = newPath(`${name}.pem`);
    const made = spawnSync('openssl', [
        'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes',
        '-keyout', key, '-out', cert, '-days', '2', '-subj', '/CN=127.0.0.1',
        '-addext', 'subjectAltName=IP:127.0.0.1',
    ]);
    assert.equal(made.status, 0, String(made.stderr));
    return { key: fs.readFileSync(key), cert: fs.readFileSync(cert), file: cert };
}

// An upstream that speaks TLS, with the same habits.
async function secure({ key, cert }) {
    const server = https.createServer({ key, cert }, (request, response) => up.handle(request, response));
    server.on('tlsClientError', () => {});
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    later(() => {
        server.closeAllConnections?.();
        server.close();
    });
    return `https://127.0.0.1:${server.address().port}`;
}

const trusted = certificate('trusted');
const trustedUrl = await secure(trusted);
const untrustedUrl = await secure(certificate('untrusted'));

const at = (path, more = {}) => ({
    url: path.startsWith('http') ? path : `${up.url}${path}`,
    timeout: '1s',
    retry: { attempts: 1 },
    ...more,
});
const keyed = { idempotency: { header: 'Idempotency-Key', window: '24h' } };
const write = (path, more = {}) => ({ class: 'write', upstream: at(path, more) });
const probed = (path, find, more = {}) => ({
    class: 'write',
    on_in_doubt: ['probe', 'hold'],
    probe: {
        tool: find,
        args: { '/order_id': '/order_id' },
        applied: { when: [{ field: '/data/0/id', exists: true }], outcome: '/data/0' },
        absent: { when: [{ field: '/data/0', exists: false }] },
        settle: '1s',
    },
    lease: '1s',
    upstream: at(path),
    ...more,
});
const many = { retry: { attempts: 4, backoff: '50ms', max_backoff: '200ms' } };

const tools = {
    ok: write('/ok/plain', keyed),
    long: write('/slow/20000', { timeout: '60s' }),
    hang: write('/hang'),
    'hang.keyed': {
        class: 'irreversible', key: { fields: ['/order_id'] }, barrier: 'off',
        on_in_doubt: ['resend', 'hold'], upstream: at('/once-hang', keyed),
    },
    'lost.keyed': {
        class: 'write', on_in_doubt: ['resend', 'hold'], upstream: at('/once-lost', keyed),
    },
    'busy.keyed': {
        class: 'write', on_in_doubt: ['resend', 'hold'], upstream: at('/once-busy', keyed),
    },
    'late.keyed': {
        class: 'write', lease: '1s', on_in_doubt: ['resend', 'hold'],
        upstream: at('/once-hang', {
            timeout: '1500ms', idempotency: { header: 'Idempotency-Key', window: '1s' },
        }),
    },
    'brief.keyed': {
        class: 'write', lease: '1s', on_in_doubt: ['resend', 'hold'],
        upstream: at('/once-shut', { ...many, idempotency: { header: 'Idempotency-Key', window: '4s' } }),
    },
    'probe.applied': probed('/reset-after', 'find'),
    'probe.absent': probed('/drop-once', 'find'),
    redacted: probed('/drop-once/redacted', 'find', { redact: ['/card'] }),
    'probe.unknown': probed('/reset-after/u', 'find.never'),
    'probe.broken': probed('/reset-after/b', 'find.broken'),
    find: { class: 'read', upstream: at('/find?order_id={order_id}', { method: 'GET' }) },
    'find.never': { class: 'read', upstream: at('/find-never?order_id={order_id}', { method: 'GET' }) },
    'find.broken': { class: 'read', upstream: at('/find-broken?order_id={order_id}', { method: 'GET' }) },
    again: { class: 'write_idempotent', upstream: at('/hang/again') },
    watched: { class: 'write', mode: 'observe', upstream: at('/reset-after/watched', many) },
    unique: { class: 'write', key: 'unique', upstream: at('/reset-after/unique', many) },
    nameless: { class: 'write', key: 'none', upstream: at('/reset-after/nameless', many) },
    broken: write('/status/500', many),
    unavailable: write('/status/503', many),
    busy: write('/busy/429', { ...many, ...keyed, timeout: '5s' }),
    'busy.declared': write('/busy/503', { ...many, ...keyed, timeout: '5s', rejects_before_work: 'on' }),
    'busy.always': write('/refuse/429', { retry: { attempts: 2, backoff: '10ms', max_backoff: '20ms' } }),
    'reset.before': write('/reset-before', many),
    'reset.after': write('/reset-after', many),
    closed: write('/close-after', many),
    'closed.bare': { class: 'write', upstream: at('/close-after?order_id={order_id}', { method: 'DELETE', body: 'none' }) },
    dead: write(`http://127.0.0.1:${deadPort}/ok`),
    'dead.once': {
        class: 'irreversible', key: { fields: ['/order_id'] }, upstream: at(`http://127.0.0.1:${deadPort}/ok`),
    },
    nowhere: write('http://no-such-host.invalid/ok', { timeout: '5s' }),
    'slow.body': write('/slow-body', { timeout: '30s' }),
    'stuck.body': write('/stuck-body'),
    'half.body': write('/half-body'),
    large: write('/huge/1500000', { timeout: '5s' }),
    huge: write('/huge/9000000', { timeout: '5s' }),
    redirect: write('/redirect'),
    rejected: write('/refuse/404'),
    template: { class: 'write', upstream: at('/echo/items/{id}?q={q}&fixed=1', { body: 'none' }) },
    quoted: write('/echo', { idempotency: { header: 'X-Key', style: 'quoted', window: '24h' } }),
    argument: write('/echo', { idempotency: { argument: '/request_key', window: '24h' } }),
    form: write('/echo', { body: 'form' }),
    tls: write(`${trustedUrl}/ok/tls`),
    'tls.untrusted': write(`${untrustedUrl}/ok/tls`),
};

// Does the work and loses the answer; turns the next two away; then answers with what was saved.
up.habit('once-busy', (upstream, entry, response) => {
    const asked = upstream.asked(entry.order).length;
    if (asked > 1 && asked < 4) return habits.refuse(upstream, { ...entry, path: '/refuse/429' }, response);
    return habits['once-lost'](upstream, entry, response);
});

// Does the work and loses the answer; then it is closed until its key is forgotten.
up.habit('once-shut', (upstream, entry, response) => {
    if (upstream.asked(entry.order).length === 1) return habits['reset-after'](upstream, entry, response);
    reply(response, 503, { shut: true }, { 'retry-after': '10' });
});

up.habit('drop-once', (upstream, entry, response) => {
    if (upstream.asked(entry.order).length > 1) return habits.ok(upstream, entry, response);
    response.socket.resetAndDestroy();
});

const gw = await Gateway.start({
    contract: { version: 1, tools },
    ledger: ledger || undefined,
    config: { ca_file: trusted.file, limits: { result: '4MiB' } },
});
const ask = (tool, order, more = {}) =>
    gw.agent.call({ scope: `shop/${order}`, tool, args: { order_id: order }, ...more });

// A behaviour that leaves doubt: told so, recorded so, and never sent again by itself.
function doubtful(name, tool, work) {
    test(name, async () => {
        const order = newOrder();
        const first = await ask(tool, order);
        const problem = assertProblem(first, 409, 'IN_DOUBT');
        assert.equal(problem.retriable, false);
        const shown = await gw.state(problem.effect, 'in_doubt');
        assert.equal(starts(shown), 1);
        for (let n = 0; n < 3; n++) {
            await sleep(n * 400);
            assertProblem(await ask(tool, order), 409, 'IN_DOUBT');
        }
        assert.equal(up.times(order), work);
        assert.ok(up.asked(order).length <= 1, 'one request');
    });
}

// It takes longer than a lease; its end is looked at further down.
const longOrder = newOrder();
let longCall = null;
test('a call that will take longer than its lease is begun', async () => {
    longCall = ask('long', longOrder);
    longCall.catch(() => {}); // told where it is looked at
    await eventually('the upstream works', () => up.times(longOrder) === 1);
});

doubtful('one that does the work and never answers: in doubt, never sent again', 'hang', 1);
doubtful('a 500 after the work: in doubt', 'broken', 1);
doubtful('a 503 that may have done something: in doubt', 'unavailable', 1);
doubtful('a reset before the request was read: bytes were sent, so in doubt', 'reset.before', 0);
doubtful('a reset after the work: in doubt', 'reset.after', 1);
doubtful('a close without an answer: in doubt', 'closed', 1);
doubtful('a body that stops coming: in doubt', 'stuck.body', 1);
doubtful('half a body: in doubt', 'half.body', 1);

for (const [name, tool] of [['hangs', 'hang.keyed'], ['loses its answer', 'lost.keyed']]) {
    test(`a keyed upstream that ${name} is sent the same again: one effect, one key (I15)`, async () => {
        const order = newOrder();
        const first = await ask(tool, order);
        if (first.status !== 200) assertProblem(first, 504, 'UPSTREAM_TIMEOUT');
        const done = await eventually('it is settled', async () => {
            const answer = await ask(tool, order);
            return answer.status === 200 && answer;
        });
        assert.equal(done.json.order, order);
        assert.equal(up.times(order), 1);
        const asked = up.asked(order);
        assert.ok(asked.length >= 2, `${asked.length} requests`);
        assert.equal(new Set(asked.map((one) => one.key)).size, 1);
        assert.equal(new Set(asked.map((one) => one.body)).size, 1, 'the same bytes');
        const again = await ask(tool, order);
        assert.deepEqual(again.body, done.body);
        assert.equal(again.headers['idempotent-replayed'], 'true');
    });
}

test('what is in doubt is settled even if its caller never comes back', async () => {
    const order = newOrder();
    const body = { scope: 'shop/1', tool: 'hang.keyed', args: { order_id: order } };
    const abort = new AbortController();
    const first = gw.agent.call(body, { signal: abort.signal }).catch(() => null);
    await eventually('the work is done', () => up.times(order) === 1);
    abort.abort();
    await first;
    await eventually('it is sent again', () => up.asked(order).length >= 2);
    const list = await gw.admin.get('/v1/effects?scope=shop/1&tool=hang.keyed');
    await gw.state(list.json.items[0].effect, 'succeeded');
    assert.equal(up.times(order), 1);
});

test('outside the window of its key nothing is sent again', async () => {
    const order = newOrder();
    const first = await ask('late.keyed', order);
    assert.ok([409, 504].includes(first.status), first.text);
    await sleep(2500);
    assertProblem(await ask('late.keyed', order), 409, 'IN_DOUBT');
    assert.equal(up.asked(order).length, 1);
});

test('an upstream that says to come back when its key is forgotten is not sent it again', async () => {
    const order = newOrder();
    await ask('brief.keyed', order, { wait_ms: 0 });
    const asked = up.asked(order);
    await eventually('it is held for a person, or sent too late', async () =>
        (await ask('brief.keyed', order, { wait_ms: 0 })).json.code === 'IN_DOUBT' || asked.length > 2);
    // The key is kept for 4 s, and Retry-After is 10 s. What is sent within the 4 s may be late on a busy machine.
    assert.deepEqual(asked.map((one) => one.at - asked[0].at).filter((ms) => ms >= 10_000), []);
    assert.equal(up.times(order), 1);
});

test('a probe that finds it done settles it with what it found', async () => {
    const order = newOrder();
    const first = await ask('probe.applied', order);
    if (first.status !== 200) assertProblem(first, 504, 'UPSTREAM_TIMEOUT');
    const done = await eventually('it is settled', async () => {
        const answer = await ask('probe.applied', order);
        return answer.status === 200 && answer;
    }, 20_000);
    assert.equal(done.json.order, order);
    assert.match(done.json.id, /^ch_/);
    assert.equal(up.times(order), 1);
});

test('a probe that finds nothing, once it has settled, lets it run', async () => {
    const order = newOrder();
    const first = await ask('probe.absent', order);
    if (first.status !== 200) assertProblem(first, 504, 'UPSTREAM_TIMEOUT');
    const done = await eventually('it is settled', async () => {
        const answer = await ask('probe.absent', order);
        return answer.status === 200 && answer;
    }, 25_000);
    assert.equal(done.json.order, order);
    assert.equal(up.times(order), 1);
});

for (const [name, tool] of [['that is new each time', 'unique'], ['that nobody records', 'nameless']]) {
    test(`a call ${name} is not sent again either when nobody knows of it`, async () => {
        const order = newOrder();
        const problem = assertProblem(await ask(tool, order), 409, 'IN_DOUBT');
        assert.equal(problem.retriable, false);
        await sleep(300);
        assert.equal(up.times(order), 1);
    });
}

test('a resend that is turned away for now is tried again later', async () => {
    const order = newOrder();
    const done = await eventually('it is settled', async () => {
        const answer = await ask('busy.keyed', order);
        return answer.status === 200 && answer;
    }, 25_000);
    assert.equal(done.json.order, order);
    assert.equal(up.times(order), 1);
    assert.equal(up.asked(order).length, 4);
});

test('an irreversible call that could not be sent leaves its key free', async () => {
    const order = newOrder();
    for (let n = 0; n < 2; n++) {
        const answer = await ask('dead.once', order);
        assertProblem(answer, 502, 'UPSTREAM_FAILED');
        assert.equal(answer.headers['idempotent-replayed'], undefined);
    }
});

test('what may run again does so in the background, with growing pauses, however many wait', async () => {
    const order = newOrder();
    const all = await Promise.all(Array.from({ length: 10 }, () => ask('again', order, { wait_ms: 3500 })));
    for (const one of all) assert.ok([409, 504].includes(one.status), one.text); // at work, or waiting
    const times = up.times(order);
    assert.ok(times >= 2 && times <= 3, `${times} times`);
});

test('what was found absent runs again, also if it may be sent only once', async () => {
    const order = newOrder();
    const answer = await ask('probe.absent', order, { wait_ms: 20_000 });
    assert.equal(answer.status, 200, answer.text);
    assert.equal(up.times(order), 1);
});

test('redacted arguments are never sent from the ledger', async () => {
    const order = newOrder();
    const answer = await ask('redacted', order, { args: { order_id: order, card: '4242' }, wait_ms: 0 });
    assert.ok([409, 504].includes(answer.status), answer.text);
    await sleep(3500);
    assert.equal(up.asked(order).filter((one) => one.body?.includes?.('redacted')).length, 0);
    const again = await ask('redacted', order, { args: { order_id: order, card: '4242' } });
    assert.equal(again.status, 200, again.text);
    assert.equal(up.times(order), 1);
});

test('a write that is only observed is not sent again when nobody knows of it', async () => {
    const order = newOrder();
    assertProblem(await ask('watched', order), 409, 'IN_DOUBT');
    assert.equal(up.times(order), 1);
});

for (const tool of ['probe.unknown', 'probe.broken']) {
    test(`${tool}: a probe that cannot tell leaves it in doubt`, async () => {
        const order = newOrder();
        const first = await ask(tool, order, { wait_ms: 0 });
        assert.ok([409, 504].includes(first.status), first.text);
        await sleep(2500);
        const shown = await gw.state(first.json.effect, 'in_doubt');
        assert.equal(starts(shown), 1);
        assert.equal(up.times(order), 1);
    });
}

for (const [name, tool] of [['429', 'busy'], ['503 where it is declared', 'busy.declared']]) {
    test(`${name} is tried again when the upstream says, with the same key`, async () => {
        const order = newOrder();
        const answer = await ask(tool, order);
        assert.equal(answer.status, 200, answer.text);
        const asked = up.asked(order);
        assert.equal(asked.length, 3);
        assert.equal(up.times(order), 1);
        assert.equal(new Set(asked.map((one) => one.key)).size, 1);
        for (let n = 1; n < 3; n++)
            assert.ok(asked[n].at - asked[n - 1].at >= 950, 'Retry-After: 1 is kept to');
    });
}

test('one that stays busy: not applied, told so, and the next call tries again', async () => {
    const order = newOrder();
    const first = await ask('busy.always', order);
    assert.ok([429, 502].includes(first.status), first.text);
    assert.equal(up.asked(order).length, 2);
    await ask('busy.always', order);
    assert.equal(up.asked(order).length, 4);
    assert.equal(up.times(order), 0);
});

test('nobody listens: 502, not applied, and the next call runs', async () => {
    const order = newOrder();
    const first = await ask('dead', order);
    const problem = assertProblem(first, 502, 'UPSTREAM_FAILED');
    assert.equal(problem.retriable, true);
    const shown = await gw.effect(problem.effect);
    assert.equal(shown.state, 'failed');
    assert.notEqual(shown.outcome?.applied, 'yes');
    const alive = new Upstream({});
    await alive.listen(deadPort);
    later(() => alive.stop());
    const second = await ask('dead', order);
    assert.equal(second.status, 200, second.text);
    assert.equal(alive.times(order), 1);
    assert.equal((await ask('dead', order)).headers['idempotent-replayed'], 'true');
});

test('a name that does not exist, and a certificate that is not trusted: nothing was sent', async () => {
    for (const tool of ['nowhere', 'tls.untrusted']) {
        const order = newOrder();
        assertProblem(await ask(tool, order), 502, 'UPSTREAM_FAILED');
        assert.equal(up.times(order), 0);
    }
});

test('a certificate that is trusted: it works', async () => {
    const order = newOrder();
    assert.equal((await ask('tls', order)).status, 200);
    assert.equal((await ask('tls', order)).headers['idempotent-replayed'], 'true');
    assert.equal(up.times(order), 1);
});

test('a body that comes slowly is waited for', async () => {
    const order = newOrder();
    const answer = await ask('slow.body', order);
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.json.order, order);
});

test('a body too large to keep: given once, then known to be done, never run again', async () => {
    const order = newOrder();
    const first = await ask('large', order);
    assert.equal(first.status, 200);
    assert.equal(first.body.length, 1_500_000);
    const again = await ask('large', order);
    assertProblem(again, 410, 'RESULT_EXPIRED');
    assert.equal(up.times(order), 1);
});

test('a body larger than allowed is not passed on, and it is known to be done', async () => {
    const order = newOrder();
    const first = await ask('huge', order);
    assert.ok(first.body.length < 9_000_000);
    const again = await ask('huge', order);
    assert.ok(again.status >= 400, `${again.status}`);
    assert.notEqual(again.json?.code, 'IN_DOUBT');
    assert.equal(up.times(order), 1);
});

test('a redirect is the answer, and is not followed', async () => {
    const order = newOrder();
    for (let n = 0; n < 2; n++) {
        const answer = await ask('redirect', order);
        assert.equal(answer.status, 302, answer.text);
        assert.equal(answer.headers.location, `${up.url}/ok/elsewhere`);
    }
    assert.equal(up.times(order), 1);
    assert.ok(!up.seen.some((one) => one.path === '/ok/elsewhere'));
});

test('a rejection of a write is the answer; it was not applied, so it may be tried again', async () => {
    const order = newOrder();
    assert.equal((await ask('rejected', order)).status, 404);
    assert.equal((await ask('rejected', order)).status, 404);
    assert.equal(up.asked(order).length, 2);
});

// libcurl sends a request again by itself when a connection that it used before is dead.
test('a kept connection that dies under a write: one request, in doubt', async () => {
    for (const tool of ['closed', 'closed.bare']) {
        for (let n = 0; n < 5; n++) {
            assert.equal((await ask('ok', newOrder())).status, 200); // leaves a connection
            const order = newOrder();
            assertProblem(await ask(tool, order), 409, 'IN_DOUBT');
            assert.equal(up.times(order), 1, tool);
            assert.equal(up.asked(order).length, 1, tool);
        }
    }
});

test('a kept connection that the upstream has closed meanwhile does no harm', async () => {
    for (let n = 0; n < 5; n++) {
        assert.equal((await ask('ok', newOrder())).status, 200);
        for (const socket of up.sockets) socket.end();
        const order = newOrder();
        const answer = await ask('ok', order);
        assert.ok(answer.status === 200 || answer.json.code === 'IN_DOUBT', answer.text);
        assert.ok(up.times(order) <= 1);
        assert.ok(up.asked(order).length <= 1);
    }
});

test('an argument cannot change the host or the structure of a URL', async () => {
    const dots = /\.\.|%2e/i;
    for (const id of ['a/b', '../admin', '..%2f', 'a?x=1&q=2', 'a#b', '%2e%2e', 'é ☃', 'a b+c', '@evil:1',
        '\r\nX-Evil: 1', ';a=b', 'a\\b', '\u0001', 'x&fixed=2', '....', '0']) {
        const args = { id, q: id };
        const answer = await gw.agent.call({ scope: `shop/${newOrder()}`, tool: 'template', args });
        if (dots.test(id) && answer.status === 400) continue; // refused is safe too
        assert.equal(answer.status, 200, `${JSON.stringify(id)}: ${answer.text}`);
        const url = new URL(answer.json.raw, up.url);
        const segments = url.pathname.split('/');
        assert.deepEqual(segments.slice(0, 3), ['', 'echo', 'items']);
        assert.equal(segments.length, 4, answer.json.raw);
        assert.equal(decodeURIComponent(segments[3]), id);
        assert.deepEqual([...url.searchParams], [['q', id], ['fixed', '1']]);
        assert.equal(answer.json.headers['x-evil'], undefined);
    }
    for (const [id, raw] of [[42, '42'], [1.5, '1.5'], [true, 'true']]) {
        const args = { id, q: id };
        const answer = await gw.agent.call({ scope: `shop/${newOrder()}`, tool: 'template', args });
        assert.equal(answer.json.raw, `/echo/items/${raw}?q=${raw}&fixed=1`);
    }
});

test('an argument that fills no URL is refused, and nothing runs', async () => {
    for (const args of [{ id: '..', q: 1 }, { id: '.', q: 1 }, { id: '', q: 1 }, { q: 1 }, { id: 'a' },
        { id: { a: 1 }, q: 1 }, { id: ['a'], q: 1 }, { id: null, q: 1 }]) {
        const answer = await gw.agent.call({ scope: 'shop/1', tool: 'template', args });
        assertProblem(answer, 400, 'BAD_ARGUMENTS');
    }
    assert.ok(!up.seen.some((one) => one.path.startsWith('/echo/items') && one.path.split('/').length !== 4));
});

test('the key goes where the upstream wants it', async () => {
    const quoted = await ask('quoted', newOrder());
    assert.match(quoted.json.headers['x-key'], /^"[A-Za-z0-9_-]{43}"$/, quoted.text);
    const argument = await ask('argument', newOrder());
    assert.match(JSON.parse(argument.json.body).request_key, /^[A-Za-z0-9_-]{43}$/, argument.text);
});

test('a form is sent as one', async () => {
    const args = { order_id: newOrder(), text: 'a b&c=d', list: [1, 2], nested: { x: { y: 'z' } } };
    const answer = await gw.agent.call({ scope: 'shop/1', tool: 'form', args });
    assert.match(answer.json.headers['content-type'], /^application\/x-www-form-urlencoded/);
    assert.deepEqual(Object.fromEntries(new URLSearchParams(answer.json.body)), {
        order_id: args.order_id, text: 'a b&c=d', 'list[0]': '1', 'list[1]': '2', 'nested[x][y]': 'z',
    });
});

test('the call that took longer than its lease has ended well, and was made once', async () => {
    const joined = ask('long', longOrder);
    const answer = await longCall;
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual((await joined).body, answer.body);
    const shown = await gw.effect(answer.headers['semel-effect']);
    assert.equal(starts(shown), 1);
    assert.ok(!shown.events.some((one) => /doubt/.test(one.what)), JSON.stringify(shown.events));
    assert.equal(up.asked(longOrder).length, 1);
});

test('the audit trail verifies afterwards', async () => {
    assert.equal((await gw.stop()).code, 0);
    if (gw.ledger.startsWith('memory:')) return;
    const env = { ...process.env, SEMEL_LEDGER: gw.ledger };
    const verified = semel(['audit', 'verify'], { env });
    assert.equal(verified.status, 0, verified.stdout + verified.stderr);
});

await run();
