// What can be read: effects, events, the stream, tools, metrics, health. Each token sees its scope.

import { Events } from './client.mjs';
import { Gateway, absentHandle, assert, assertProblem, parseMetrics, run as semel, starts } from './harness.mjs';
import { newOrder, shop } from './shop.mjs';
import { eventually, run, sleep, test } from './tap.mjs';
import { Upstream } from './upstream.mjs';

const up = await Upstream.start();
const gw = await Gateway.start({ contract: shop(up), env: { SHOP_SECRET: 'sk_never_shown' } });

// Calls something and returns its handle.
async function done(order, scope = 'shop/1', who = gw.agent) {
    const answer = await who.call({ scope, tool: 'charge', args: { order_id: order } });
    assert.equal(answer.status, 200, answer.text);
    return answer.headers['semel-effect'];
}

test('effects are listed, the newest first, page by page', async () => {
    const made = [];
    for (let n = 0; n < 7; n++) made.push(await done(newOrder(), 'shop/pages'));
    const seen = [];
    let cursor = '';
    for (let page = 0; page < 10; page++) {
        const answer = await gw.agent.get(`/v1/effects?scope=shop/pages&limit=3${cursor}`);
        assert.equal(answer.status, 200, answer.text);
        assert.ok(answer.json.items.length <= 3);
        seen.push(...answer.json.items);
        if (!answer.json.cursor) break;
        cursor = `&cursor=${encodeURIComponent(answer.json.cursor)}`;
    }
    assert.deepEqual(seen.map((one) => one.effect), made.reverse());
    for (const item of seen) {
        assert.equal(item.scope, 'shop/pages');
        assert.equal(item.tool, 'charge');
        assert.equal(item.state, 'succeeded');
        assert.match(item.created_at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    }
});

test('filters select, and a mistake in one is told', async () => {
    const id = await done(newOrder(), 'shop/filters');
    for (const [query, there] of [
        ['state=succeeded', true],
        ['state=in_doubt', false],
        ['tool=charge', true],
        ['tool=order', false],
        ['since=2020-01-01T00:00:00Z', true],
        ['until=2020-01-01T00:00:00Z', false],
    ]) {
        const answer = await gw.agent.get(`/v1/effects?scope=shop/filters&${query}`);
        assert.equal(answer.status, 200, `${query}: ${answer.text}`);
        assert.equal(answer.json.items.some((one) => one.effect === id), there, query);
    }
    for (const query of ['stat=succeeded', 'state=sucseeded', 'limit=many', 'limit=-1', 'since=x', 'cursor=zzz'])
        assertProblem(await gw.agent.get(`/v1/effects?${query}`), 400, 'BAD_ARGUMENTS');
});

test('an effect is shown with its whole story', async () => {
    const order = newOrder();
    const id = await done(order);
    const shown = await gw.effect(id, gw.agent);
    assert.equal(shown.effect, id);
    assert.equal(shown.scope, 'shop/1');
    assert.equal(shown.args.order_id, order);
    assert.equal(shown.outcome.status, 200);
    assert.equal(shown.outcome.value.order, order);
    assert.equal(starts(shown), 1);
    assert.ok(shown.events.length >= 2);
    assert.match(JSON.stringify(shown), /agent \(token/, 'who asked is on record');
    const events = await gw.agent.get(`/v1/effects/${id}/events`);
    assert.equal(events.status, 200, events.text);
    assert.equal(events.json.items.length, shown.events.length);
});

test("nobody sees another tenant's effects, by any way", async () => {
    const id = await done(newOrder());
    for (const who of [gw.stranger, gw.strangerOperator]) {
        const list = await who.get('/v1/effects');
        assert.equal(list.status, 200);
        assert.ok(!list.text.includes(id));
        assertProblem(await who.get(`/v1/effects/${id}`), 404, 'NOT_FOUND');
        assertProblem(await who.get(`/v1/effects/${id}/events`), 404, 'NOT_FOUND');
        assertProblem(await who.get('/v1/effects?scope=shop/1'), 403, 'FORBIDDEN');
    }
    const absent = await gw.stranger.get(`/v1/effects/${absentHandle(id)}`);
    const foreign = await gw.stranger.get(`/v1/effects/${id}`);
    assert.equal(foreign.text, absent.text, 'as if it did not exist');
    const all = await gw.admin.get('/v1/effects');
    assert.ok(all.text.includes(id), 'a token without a scope sees all');
});

test('a prefix is of whole segments', async () => {
    const wide = await gw.admin.call({ scope: 'shopping/1', tool: 'any', key: newOrder(), args: {} });
    assert.equal(wide.status, 200, wide.text);
    const id = wide.headers['semel-effect'];
    assertProblem(await gw.agent.get(`/v1/effects/${id}`), 404, 'NOT_FOUND');
    assertProblem(
        await gw.agent.call({ scope: 'shopping/1', tool: 'any', args: {} }), 403, 'FORBIDDEN');
});

test('the stream tells what happens, once it happens', async () => {
    const stream = await Events.open(gw.agent, '/v1/stream');
    assert.equal(stream.status, 200);
    assert.match(stream.headers['content-type'], /^text\/event-stream/);
    await sleep(200);
    const id = await done(newOrder());
    const mine = () => stream.events.filter((one) => one.data.includes(id));
    await eventually('two events of the effect came', () => mine().length >= 2);
    const numbers = stream.events.map((one) => Number(one.id));
    assert.deepEqual(numbers, [...numbers].sort((a, b) => a - b), 'in order');
    stream.close();
});

test('a stream is resumed without loss or gaps', async () => {
    const first = await Events.open(gw.agent, '/v1/stream');
    await sleep(200);
    const made = [await done(newOrder())];
    await eventually('its events came', () =>
        first.events.filter((one) => one.data.includes(made[0])).length >= 2);
    const last = first.events.at(-1).id;
    first.close();
    for (let n = 0; n < 20; n++) made.push(await done(newOrder()));
    const second = await Events.open(gw.agent, '/v1/stream', { 'last-event-id': last });
    const third = await Events.open(gw.agent, `/v1/stream?after=${last}`);
    made.push(await done(newOrder()));
    const seen = [];
    for (const stream of [second, third]) {
        const of = (id) => stream.events.filter((one) => one.data.includes(id));
        await eventually('all that was missed came', () => made.slice(1).every((id) => of(id).length >= 2));
        const ids = stream.events.map((one) => Number(one.id));
        assert.ok(ids.every((id) => id > Number(last)), 'nothing that was seen');
        assert.equal(new Set(ids).size, ids.length);
        const end = Number(of(made.at(-1))[1].id); // what comes later may have come to one of them only
        seen.push(ids.filter((id) => id <= end));
    }
    assert.deepEqual(seen[0], seen[1]);
    second.close();
    third.close();
});

test("a stream shows nothing of another tenant's", async () => {
    const stream = await Events.open(gw.stranger, '/v1/stream');
    const all = await Events.open(gw.admin, '/v1/stream');
    await sleep(200);
    const id = await done(newOrder());
    const foreign = await gw.stranger.call({ scope: 'other/1', tool: 'any', key: newOrder(), args: {} });
    assert.equal(foreign.status, 200, foreign.text);
    const own = foreign.headers['semel-effect'];
    await eventually('its own came', () => stream.events.some((one) => one.data.includes(own)));
    await eventually('who sees all sees both', () =>
        [id, own].every((one) => all.events.some((event) => event.data.includes(one))));
    assert.ok(!stream.events.some((one) => one.data.includes(id)));
    stream.close();
    all.close();
});

test('a stream ends with its token, by revocation and by time', async () => {
    const revoked = await gw.token('gone', 'agent', 'shop');
    const expiring = await gw.token('short', 'agent', 'shop', ['--expires', '3s']);
    const streams = [await Events.open(revoked, '/v1/stream'), await Events.open(expiring, '/v1/stream')];
    const staying = await Events.open(gw.agent, '/v1/stream');
    for (const stream of streams) assert.equal(stream.status, 200);
    const id = gw.texts.gone.split('_')[1];
    assert.equal(semel(['token', 'revoke', id, '--tokens', gw.tokens]).status, 0);
    for (const stream of streams)
        await Promise.race([stream.ended, sleep(8000).then(() => assert.fail('it goes on'))]);
    const effect = await done(newOrder());
    await eventually('others go on', () => staying.events.some((one) => one.data.includes(effect)));
    assert.ok(!streams.some((one) => one.events.some((event) => event.data.includes(effect))));
    staying.close();
});

test('one token has a quarter of all streams, and others find a place', async () => {
    const streams = [];
    let refused = null;
    while (refused === null && streams.length < 64) {
        const stream = await Events.open(gw.stranger, '/v1/stream');
        if (stream.status === 200) streams.push(stream);
        else refused = stream;
    }
    assert.equal(refused?.status, 503);
    assert.equal(streams.length, 16);
    const other = await Events.open(gw.approver, '/v1/stream');
    assert.equal(other.status, 200);
    for (const stream of [...streams, other]) stream.close();
    await eventually('there is room again', async () => {
        const stream = await Events.open(gw.stranger, '/v1/stream');
        stream.close();
        return stream.status === 200;
    });
});

test('a token of a part of a scope sees that part only', async () => {
    const narrow = await gw.token('narrow', 'operator', 'shop/narrow');
    const stream = await Events.open(narrow, '/v1/stream');
    await sleep(200);
    const outside = await done(newOrder(), 'shop/wide');
    const inside = await done(newOrder(), 'shop/narrow/1');
    await eventually('its own came', () => stream.events.some((one) => one.data.includes(inside)));
    assert.ok(!stream.events.some((one) => one.data.includes(outside)));
    const list = await narrow.get('/v1/effects');
    assert.ok(list.text.includes(inside) && !list.text.includes(outside), list.text);
    assertProblem(await narrow.get(`/v1/effects/${outside}`), 404, 'NOT_FOUND');
    assertProblem(await narrow.post(`/v1/effects/${outside}/forget`, {}), 404, 'NOT_FOUND');
    assert.equal((await narrow.get(`/v1/effects/${inside}`)).status, 200);
    stream.close();
});

test('streams are bounded, and one that ends makes room', async () => {
    const streams = [];
    let refused = null;
    for (let n = 0; n < 70 && refused === null; n++) {
        const stream = await Events.open(gw.admin, '/v1/stream');
        if (stream.status === 200) streams.push(stream);
        else refused = stream;
    }
    assert.equal(refused?.status, 503);
    streams.pop().close();
    await eventually('there is room again', async () => {
        const stream = await Events.open(gw.admin, '/v1/stream');
        stream.close();
        return stream.status === 200;
    });
    for (const stream of streams) stream.close();
});

test('tools are listed, and no secret with them', async () => {
    const answer = await gw.agent.get('/v1/tools');
    assert.equal(answer.status, 200, answer.text);
    const items = answer.json.items ?? answer.json.tools;
    const charge = items.find((one) => (one.name ?? one.tool) === 'charge');
    assert.ok(charge, answer.text);
    assert.equal(charge.class, 'irreversible');
    assert.ok(!answer.text.includes('sk_never_shown'));
    assert.ok(!answer.text.includes('SHOP_SECRET'));
});

test('metrics are well formed, for those who see everything', async () => {
    const before = parseMetrics((await gw.admin.get('/metrics')).text);
    assert.ok(before.length > 10);
    assert.ok(before.every((one) => /^(semel|process)_/.test(one.name)));
    assertProblem(await gw.agent.get('/metrics'), 403, 'NOT_ALLOWED');
    assertProblem(await gw.operator.get('/metrics'), 403, 'NOT_ALLOWED');
    const total = (samples) =>
        samples.filter((one) => /^semel_.*requests_total$/.test(one.name))
            .reduce((sum, one) => sum + one.value, 0);
    for (let n = 0; n < 5; n++) await gw.agent.get('/v1/tools');
    const after = parseMetrics((await gw.admin.get('/metrics')).text);
    assert.ok(total(after) >= total(before) + 5, `${total(before)} ... ${total(after)}`);
});

test('health and readiness need no token; HEAD works where GET does', async () => {
    for (const path of ['/healthz', '/readyz', '/openapi.json']) {
        const answer = await gw.client.get(path);
        assert.equal(answer.status, 200, path);
        assert.equal(answer.headers['cache-control'], 'no-store');
        const head = await gw.client.request('HEAD', path);
        assert.equal(head.status, 200, path);
        assert.equal(head.body.length, 0);
    }
});

test('the OpenAPI document knows every path', async () => {
    const { json } = await gw.client.get('/openapi.json');
    assert.match(json.openapi, /^3\.1/);
    for (const path of ['/v1/call', '/v1/begin', '/v1/commit', '/v1/renew', '/v1/effects',
        '/v1/effects/{id}', '/v1/effects/{id}/events', '/v1/effects/{id}/approve',
        '/v1/approvals', '/v1/stream', '/v1/tools', '/metrics', '/healthz', '/readyz'])
        assert.ok(json.paths[path], path);
});

test('the ledger verifies afterwards', async () => {
    const { code } = await gw.stop();
    assert.equal(code, 0);
    const verified = semel(['audit', 'verify', '--ledger', gw.ledger]);
    assert.equal(verified.status, 0, verified.stdout + verified.stderr);
});

await run();
