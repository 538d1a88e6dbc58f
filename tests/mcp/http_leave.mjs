// Clients that leave their session with a server over HTTP (DELETE): that cuts no write short, and the
// client gets an answer.

import { Site } from './http_harness.mjs';
import { WebServer } from './http_server.mjs';
import { assert, assertFresh, assertReplayed } from './harness.mjs';
import { eventually, run, sleep, test } from '../gateway/tap.mjs';

const contract = { tools: { append: { class: 'write' } } };

async function start() {
    const web = await WebServer.start({ sessions: true });
    const site = await Site.start({ contract, servers: { web: { url: web.url } } });
    const deletes = () => web.received.filter((one) => one.verb === 'DELETE').length;
    return { web, site, deletes };
}

test('a client that leaves during a write is answered at once; the server is told when the write is over', async () => {
    const { web, site, deletes } = await start();
    const client = await site.open({ name: 'web' });
    const args = { what: 'left', script: 'mark:begun effect gate:go answer' };
    const answer = client.call('append', args);
    await web.passed('begun');
    assert.equal((await client.end()).status, 200);
    assert.deepEqual((await answer).messages, []);
    assert.equal(deletes(), 0);
    web.mark('go');
    await eventually('the server is told', () => deletes() === 1);
    assert.ok(!web.sessions.has(client.serverSession));
    const next = await site.open({ name: 'web' });
    assertReplayed(await next.call('append', args), 'left: 1');
    // No call is running: the server gets the DELETE at once, and the client gets its status.
    assert.equal((await next.end()).status, 200);
    assert.ok(!web.sessions.has(next.serverSession));
    assert.equal((await next.end()).status, 404);
});

// Ids are opaque and case-sensitive; a server may think otherwise, and would cut a call short.
test('a session that its client has left takes no more calls, however its id is spelled', async () => {
    const { web, site, deletes } = await start();
    const client = await site.open({ name: 'web' });
    client.call('append', { what: 'first', script: 'mark:begun effect gate:go answer' });
    await web.passed('begun');
    assert.equal((await client.end()).status, 200);
    const [proof, id] = [client.session.slice(0, -client.serverSession.length), client.serverSession];
    for (const session of [client.session, proof + id.toUpperCase(), client.session.toUpperCase(), client.session.toLowerCase()]) {
        client.session = session;
        const late = await client.call('append', { what: 'late', script: 'effect answer' });
        assert.equal(late.status, 404, late.text);
        assert.equal((await client.end()).status, 404);
    }
    assert.deepEqual(web.calls('late'), [], 'the server hears nothing of it');
    assert.equal(deletes(), 0);
    web.mark('go');
    await eventually('the server is told', () => deletes() === 1);
    assert.equal(web.effects('late'), 0);
    assert.equal(web.effects('first'), 1);
});

test('who leaves without naming a session ends nobody\'s calls', async () => {
    const { web, site } = await start();
    const modern = await site.open({ name: 'web', modern: true });
    const answer = modern.call('append', { what: 'alone', script: 'mark:begun effect gate:go answer' });
    await web.passed('begun');
    const nameless = await modern.exchange('DELETE', { headers: { ...modern.headers, 'mcp-session-id': '' } });
    assert.ok([400, 404].includes(nameless.status), nameless.text);
    web.mark('go');
    assertFresh(await answer, 'alone: 1');
});

test('who leaves while the gateway is being stopped has the answer of a slow server', async () => {
    const { web, site, deletes } = await start();
    const client = await site.open({ name: 'web' });
    const held = Promise.withResolvers();
    web.options.holdDelete = held.promise;
    const left = client.end();
    await eventually('the server is asked', () => deletes() === 1);
    const stopped = site.gw.stop();
    await sleep(300); // nothing else is under way, so it would have ended by now
    held.resolve();
    assert.equal((await left).status, 200);
    await stopped;
    assert.doesNotMatch(site.gw.log, /not all has ended/);
});

await run();
