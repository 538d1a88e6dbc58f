// A tool of a server that dies is not called for a while. What a tool answers, whatever it says, never is
// the reason.

import { Place, assert, assertFresh, assertReplayed, assertVerdict } from './harness.mjs';
import { eventually, run, test } from '../gateway/tap.mjs';

const breaker = { failures: 2, cooldown: '1h' };
const tools = {
    append: { class: 'write', barrier: false, on_in_doubt: ['hold'], breaker },
    put: { class: 'write', barrier: false, on_in_doubt: ['hold'], breaker: { ...breaker, cooldown: '100ms' } },
    wipe: { class: 'irreversible', barrier: false, on_in_doubt: ['hold'], breaker },
    keyed: { class: 'write', barrier: false, breaker },
};
const place = new Place({ contract: { tools } });
const open = (options) => place.open({ patient: true, ...options });

for (const modern of [false, true]) {
    test(`a server that dies opens the circuit of the tool, and the model is told when to come back (${
        modern ? 'modern' : 'legacy'})`, async () => {
        const here = new Place({ contract: { tools } });
        const client = await here.open({ patient: true, modern });
        const first = { what: 'before' };
        assertFresh(await client.call('append', first));
        for (const what of ['one', 'two'])
            assertVerdict(await client.call('append', { what, script: 'effect exit:3' }), 'IN_DOUBT');
        const verdict = assertVerdict(await client.call('append', { what: 'three' }), 'CIRCUIT_OPEN',
            /its last 2 calls failed\. Nothing has been done\..*Make the same call again in/);
        assert.equal(verdict.retriable, true);
        assert.ok(verdict.retry_after_ms > 3_000_000, JSON.stringify(verdict));
        assert.equal(verdict.effect, undefined);
        assert.equal(here.effects('three'), 0);
        assertReplayed(await client.call('append', first)); // what is done goes on answering
        assertFresh(await client.call('keyed', { what: 'four' })); // and so do other tools
        await client.close();
        const next = await here.open({ modern }); // another proxy knows
        assertVerdict(await next.call('append', { what: 'five' }), 'CIRCUIT_OPEN');
        await next.close();
    });
}

test('when the server lives again, one call finds out', async () => {
    const client = await open();
    for (const what of ['p1', 'p2'])
        assertVerdict(await client.call('put', { what, script: 'effect exit:3' }), 'IN_DOUBT');
    let n = 0;
    await eventually('it is called again', async () => {
        const answer = await client.call('put', { what: `p-again-${n++}` });
        return !answer.result.isError;
    });
    assertFresh(await client.call('put', { what: 'p-more' }));
    await client.close();
});

test('a tool that says that it failed, or that a call is wrong, does not open it', async () => {
    const client = await open();
    for (let n = 0; n < 6; n++) {
        await client.call('keyed', { what: `k${n}`, script: n % 2 ? 'fail answer' : 'error:-32602' });
        await client.call('wipe', { what: `w${n}`, script: 'fail answer' }); // nobody knows what it did
    }
    assertFresh(await client.call('keyed', { what: 'kept' }));
    assertFresh(await client.call('wipe', { what: 'kept too' }));
    await client.close();
});

await run();
