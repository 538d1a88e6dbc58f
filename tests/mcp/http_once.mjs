// Calls that write, over HTTP to a server behind the gateway: one effect, whoever asks again, and in
// whatever way the first answer was lost. The server is the scripted one, so that every moment can be
// chosen.

import http from 'node:http';
import { Site, alive } from './http_harness.mjs';
import { WebServer } from './http_server.mjs';
import { assert, assertDone, assertFresh, assertReplayed, assertVerdict } from './harness.mjs';
import { eventually, run, sleep, test } from '../gateway/tap.mjs';

const tools = { append: { class: 'write' }, look: { class: 'read' }, fill: { class: 'write', on_repeat: 'run' } };
const site = await Site.start({ contract: { defaults: { loop: 'off' }, tools } });
const { place } = site;

// ---- repeats

test('a retry on the same session, on another, and of another era: one effect', async () => {
    const args = { what: 'sessions', script: 'effect odd answer' };
    const one = await site.open();
    const first = await one.call('append', args);
    assertFresh(first);
    assert.equal(first.type, 'application/json');
    const others = [one, await site.open(), await site.open({ modern: true })];
    for (const other of others) {
        const answer = await other.call('append', args);
        assertReplayed(answer);
        for (const part of ['[ {"type":"text","text":"\\u0041\\/sessions"} ]', '1.50e+2', '12345678901234567890'])
            assert.ok(answer.line.includes(part), answer.line);
    }
    assert.equal(place.effects('sessions'), 1);
});

test('another gateway on the same ledger: the second caller waits for the first one, and later ones are told', async () => {
    const other = await site.gateway();
    const [one, two] = [await site.open(), await site.open({ gw: other })];
    const args = { what: 'gateways', script: 'effect mark:gateways gate:gateways-go answer' };
    const first = one.call('append', args);
    await place.passed('gateways');
    const second = two.call('append', args);
    await sleep(150);
    place.mark('gateways-go');
    assertFresh(await first, 'gateways: 1');
    assertReplayed(await second, 'gateways: 1');
    assertReplayed(await two.call('append', args), 'gateways: 1');
    assert.equal(place.effects('gateways'), 1);
    assert.equal((await other.stop()).code, 0);
});

test('equal calls at once are one, and progress goes to each on its own stream by its own token', async () => {
    const [one, two] = [await site.open(), await site.open({ modern: true })];
    const args = { what: 'twins', script: 'mark:twins effect gate:twins-go progress:3 answer' };
    const first = one.call('append', args, { _meta: { progressToken: 'a' } });
    await place.passed('twins');
    const second = two.call('append', args, { _meta: { progressToken: 7 } });
    await sleep(150);
    place.mark('twins-go');
    const answers = await Promise.all([first, second]);
    answers.forEach((answer) => {
        assertDone(answer, 'twins: 1');
        assert.equal(answer.type, 'text/event-stream', 'progress needs a stream');
    });
    assert.deepEqual(one.progress('a').map((note) => note.params.progress), [1, 2, 3]);
    assert.deepEqual(two.progress(7).map((note) => note.params.progress), [1, 2, 3]);
    assert.equal(one.notes.length + two.notes.length, 6);
    assert.equal(place.effects('twins'), 1);
});

test('a next request on the same connection proves nothing: it may be a proxy\'s, and its client may have given up', async () => {
    const args = { what: 'again' };
    const [one, two] = [await site.open(), await site.open()];
    const shared = new http.Agent({ keepAlive: true, maxSockets: 1 });
    one.connection = two.connection = shared;
    assertFresh(await one.call('fill', args), 'again: 1');
    for (const client of [one, one, two]) {
        await sleep(2200);
        assertReplayed(await client.call('fill', args), 'again: 1');
    }
    assert.equal(place.effects('again'), 1);
    shared.destroy();
});

// ---- answers that nobody got

for (const modern of [false, true]) {
    const era = modern ? 'modern' : 'legacy';
    test(`a ${era} client that hangs up in the middle of a write: it goes on, and the retry gets its answer`, async () => {
        const client = await site.open({ modern });
        const what = `gone-${era}`;
        const args = { what, script: `effect mark:${what} gate:${what}-go answer` };
        const lost = client.call('append', args);
        await place.passed(what);
        lost.abort();
        await sleep(100);
        const retry = client.call('append', args);
        await sleep(100);
        place.mark(`${what}-go`);
        assertReplayed(await retry, `${what}: 1`);
        assert.equal(place.effects(what), 1);
        assert.ok(!place.file('cancelled').includes(what), 'the server is not told');
    });

    test(`a ${era} client that hangs up in the middle of a read${modern ? ': it is cancelled' : ' did not cancel it'}`, async () => {
        const client = await site.open({ modern });
        const what = `read-${era}`;
        const lost = client.call('look', { what, script: `mark:${what} gate:${what}-go effect answer` });
        await place.passed(what);
        lost.abort();
        if (modern) {
            await eventually('the server is told', () => place.file('cancelled').includes(what));
        } else {
            await sleep(150);
            place.mark(`${what}-go`);
            await eventually('it goes on', () => place.effects(what) === 1);
            assert.deepEqual(place.file('cancelled'), []);
        }
        assertFresh(await client.call('look', { what: `${what}-after` }));
    });
}

test('an answer that was lost after it was recorded is replayed, also to a session that may repeat', async () => {
    const client = await site.open();
    const args = { what: 'lost', script: 'effect mark:lost gate:lost-go answer' };
    const lost = client.call('fill', args);
    await place.passed('lost');
    lost.abort();
    place.mark('lost-go');
    await eventually('it is recorded', () => place.json('list', '--scope', 'shop').items.some((one) => one.args?.what === 'lost' && one.state === 'succeeded'));
    await sleep(2200);
    assertReplayed(await client.call('fill', args), 'lost: 1');
    assert.equal(place.effects('lost'), 1);
});

test('a cancel of a write is absorbed, and the retry gets the late answer', async () => {
    const client = await site.open();
    const args = { what: 'cancel', script: 'mark:cancel gate:cancel-go effect answer' };
    const call = client.call('append', args);
    await place.passed('cancel');
    assert.equal((await client.cancel(call.id)).status, 202);
    const retry = client.call('append', args);
    await sleep(100);
    place.mark('cancel-go');
    assertDone(await retry, 'cancel: 1');
    assertReplayed(await client.call('append', args), 'cancel: 1');
    assert.equal(place.effects('cancel'), 1);
    assert.ok(!place.received('notifications/cancelled').some((one) => one.params.requestId === call.id));
    // What was cancelled is not answered, and its request has ended.
    const ended = await Promise.race([call, sleep(2000)]);
    assert.deepEqual([ended?.status, ended?.messages], [200, []]);
});

test('a cancel of a read is passed on', async () => {
    const client = await site.open();
    const call = client.call('look', { what: 'cancelled-read', script: 'mark:cr gate:never answer' });
    await place.passed('cr');
    await client.cancel(call.id);
    await eventually('the server is told', () => place.file('cancelled').includes('cancelled-read'));
    const ended = await Promise.race([call, sleep(2000)]);
    assert.deepEqual([ended?.status, ended?.messages], [200, []]);
});

// ---- servers and gateways that end

test('a server that dies after the effect leaves a doubt; the session is over, another goes on', async () => {
    const client = await site.open();
    const args = { what: 'dies', script: 'effect exit:3' };
    const verdict = assertVerdict(await client.call('append', args), 'IN_DOUBT');
    assertVerdict(await (await site.open()).call('append', args), 'IN_DOUBT', new RegExp(verdict.effect));
    assert.equal(place.effects('dies'), 1);
    assertFresh(await client.call('append', { what: 'after-death' }), 'after-death: 1');
});

test('a gateway that is told to end lets a write end, records and answers it, and leaves no server behind', async () => {
    const gw = await site.gateway();
    const client = await site.open({ gw });
    const args = { what: 'drained', script: 'effect mark:drained wait:600 answer' };
    const call = client.call('append', args);
    await place.passed('drained');
    const server = place.serverOf('drained');
    const ended = gw.stop();
    assertFresh(await call, 'drained: 1');
    assert.equal((await ended).code, 0);
    assert.ok(!alive(server), 'the server has ended');
    assertReplayed(await (await site.open()).call('append', args), 'drained: 1');
    assert.equal(place.effects('drained'), 1);
});

test('a gateway that is told to end does not wait for reads and streams', async () => {
    const gw = await site.gateway();
    const client = await site.open({ gw });
    const stream = client.listen();
    const read = client.call('look', { what: 'endless', script: 'mark:endless never' });
    await place.passed('endless');
    const before = Date.now();
    const ended = gw.stop();
    await Promise.allSettled([read, stream]);
    assert.equal((await ended).code, 0);
    assert.ok(Date.now() - before < 25_000, 'it does not wait for `drain`');
    assert.ok(!alive(place.serverOf('endless')));
});

test('a gateway that is killed between forward and answer: in doubt at once, and never done twice', async () => {
    const gw = await site.gateway();
    const client = await site.open({ gw });
    const args = { what: 'killed', script: 'effect mark:killed never | effect answer' };
    client.call('append', args).catch(() => {});
    await place.passed('killed');
    const server = place.serverOf('killed');
    await gw.kill();
    const other = await site.open();
    const verdict = assertVerdict(await other.call('append', args), 'IN_DOUBT');
    assert.equal(place.effects('killed'), 1);
    assert.equal(place.show(verdict.effect).state, 'in_doubt');
    await eventually('its server has ended too', () => !alive(server));
    // The gateway that is started again says the same.
    await gw.up();
    const again = await site.open({ gw });
    assertVerdict(await again.call('append', args), 'IN_DOUBT', new RegExp(verdict.effect));
    assertReplayed(await again.call('append', { what: 'sessions', script: 'effect odd answer' }));
    assert.equal(place.effects('killed'), 1);
});

test('one token has a quarter of the places to wait, and no more of them than the configuration says', async () => {
    const narrow = await Site.start({
        contract: { tools: { append: { class: 'write' } } }, config: { limits: { waiting: 8 } },
    });
    const { place } = narrow;
    const [one, other] = [await narrow.open(), await narrow.open({ token: 'agent2' })];
    const args = { what: 'narrow', script: 'mark:begun gate:go effect answer' };
    const ask = (client, progressToken) => client.call('append', args, { _meta: { progressToken } });
    const first = ask(one, 'first');
    await place.passed('begun');
    const waiting = [ask(one, 'a'), ask(one, 'b')];
    await eventually('two of eight wait', () => ['a', 'b'].every((token) => one.progress(token).some(({ params }) => /same call/.test(params.message))));
    assertVerdict(await ask(one, 'c'), 'RETRY_IN_FLIGHT');
    waiting.push(ask(other, 'd'));
    await eventually('so does another one\'s', () => other.progress('d').length > 0);
    place.mark('go');
    assertFresh(await first, 'narrow: 1');
    for (const answer of waiting) assertReplayed(await answer, 'narrow: 1');
    assert.equal(place.effects('narrow'), 1);
    await narrow.gw.stop();
});

test('one token has a quarter of the calls that may be under way', async () => {
    const web = await WebServer.start();
    const crowded = await Site.start({ contract: { tools: { append: { class: 'write' } } }, servers: { s: { url: web.url } } });
    web.options.holdList = new Promise(() => {}); // so nothing of them runs
    const [one, other] = [await crowded.open(), await crowded.open({ token: 'agent2' })];
    const message = (i) => ({ jsonrpc: '2.0', id: `n${i}`, method: 'tools/call', params: { name: 'append', arguments: { what: `crowd-${i}` } } });
    one.post(Array.from({ length: 5000 }, (_, i) => message(i)));
    await eventually('the tools are asked for', () => web.of('tools/list').length > 0);
    const refused = await (await crowded.open()).call('append', { what: 'late' });
    assertVerdict(refused, 'RETRY_IN_FLIGHT', /too many calls are under way already\. Wait for some of them to end/);
    other.call('append', { what: 'other' }, { _meta: { progressToken: 'other' } });
    await eventually('another token has room', () => other.progress('other').length > 0);
    await crowded.gw.kill();
});

await run();
