// anthropic-python before a server that streams as Anthropic's does. Messages are reads that are POSTs; batches and
// files are writes, and the API has no keys that would make them safe to send again.

import { Site, assert, bad, good, here, hundred, newOrder, python } from './harness.mjs';
import { Model } from './model.mjs';
import { eventually, run, test } from '../gateway/tap.mjs';

const sdk = await python('anthropic');
const event = (value) => `event: ${value.type}\ndata: ${JSON.stringify(value)}\n\n`;
const message = { id: 'msg', type: 'message', role: 'assistant', model: 'm', content: [], stop_reason: null, stop_sequence: null, usage: { input_tokens: 1, output_tokens: 1 } };
const model = await Model.start({
    path: '/v1/messages',
    whole: (text) => ({ ...message, content: [{ type: 'text', text }], stop_reason: 'end_turn' }),
    before: event({ type: 'message_start', message }) + event({ type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } }),
    piece: (text) => event({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } }),
    after: event({ type: 'content_block_stop', index: 0 })
        + event({ type: 'message_delta', delta: { stop_reason: 'end_turn', stop_sequence: null }, usage: { output_tokens: 3 } })
        + event({ type: 'message_stop' }),
    list: { data: [], has_more: false, first_id: null, last_id: null },
    objects: {
        '/v1/messages/batches': (serial) => ({
            id: `msgbatch_${serial}`, type: 'message_batch', processing_status: 'in_progress', created_at: '2025-01-01T00:00:00Z', expires_at: '2025-01-02T00:00:00Z',
            request_counts: { processing: 1, succeeded: 0, errored: 0, canceled: 0, expired: 0 },
        }),
        '/v1/messages/count_tokens': (serial) => ({ input_tokens: serial }),
        '/v1/files': (serial) => ({ id: `file_${serial}`, type: 'file', created_at: '2025-01-01T00:00:00Z', filename: 'a.txt', mime_type: 'text/plain', size_bytes: 1 }),
    },
    refused: (body) => body.includes('refuse') && { type: 'error', error: { type: 'invalid_request_error', message: 'requests: too many' } },
});
const { port, streams } = model;
const site = await Site.start({
    anthropic: { port, config: { preset: 'anthropic' } },
    asking: { port, config: { preset: 'anthropic', timeout: '3s' } },
    below: { port, path: true, config: { preset: 'anthropic' } },
    keyed: { port, path: true, config: { preset: 'anthropic', headers: { Authorization: 'Bearer ${API_KEY}' } } },
}, {
    contract: { version: 1, tools: { 'proxy.asking': { class: 'write', approval: { expires: '1h' } } } },
    env: { API_KEY: 'sk-configured' },
});
const { api, front } = site.anthropic;

function call(name, args, { at = site.anthropic, piece, ...client } = {}) {
    return sdk.call('anthropic', { key: 'sk-1', base: at.base, ...client }, name, args, piece);
}
const question = (order) => ({ model: 'm', max_tokens: 100, messages: [{ role: 'user', content: order }] });
const ask = (order, more = {}, options = {}) => call('messages.create', { ...question(order), ...more }, options);
const batch = (order, options = {}, more = {}) => call('messages.batches.create', { requests: [{ custom_id: order, params: question('why?') }], ...more }, options);

test('a message streams: each piece comes when it is sent, and nothing is recorded', async () => {
    const orders = [
        await model.inPieces((order, piece) => ask(order, { stream: true }, { piece })),
        await model.inPieces((order, piece) => call('messages.stream', question(order), { piece })),
        await model.inPieces((order, piece) => ask(order, { stream: true }, { at: site.below, piece, default_headers: { 'Semel-Token': site.gw.texts.agent } })),
    ];
    for (const order of orders) assert.ok(!site.ledgerHas(order));
    assert.deepEqual((await site.gw.admin.get('/v1/effects')).json.items, []);
});

test('the same question again is asked again, and so are its tokens counted', async () => {
    const order = newOrder();
    const answers = [];
    for (let n = 0; n < 2; n++) answers.push(good(await ask(order)).content[0].text);
    const { max_tokens, ...text } = question(order);
    for (let n = 0; n < 2; n++) answers.push(good(await call('messages.count_tokens', text)).input_tokens);
    assert.equal(new Set(answers).size, 4);
    assert.equal(api.of(order).length, 4);
});

test('a message that the API fails is no doubt: the SDK asks again', async () => {
    const order = newOrder();
    api.trouble('fail', here(order));
    good(await ask(order, {}, { retries: 2 }));
    assert.equal(api.of(order).length, 2);
    const other = newOrder();
    api.trouble('fail', here(other));
    const raised = bad(await ask(other));
    assert.deepEqual([raised.type, raised.status], ['InternalServerError', 500]);
});

test('a client that leaves ends the message', async () => {
    const order = `slow ${newOrder()}`;
    const agent = await python('anthropic');
    agent.call('anthropic', { key: 'sk-1', base: site.anthropic.base }, 'messages.create', question(order));
    await eventually('it has asked', () => streams.has(order));
    agent.end();
    await eventually('the API knows', () => streams.get(order).closed);
});

test('a batch is made once, also if the agent repeats the call', async () => {
    const order = newOrder();
    const first = good(await batch(order));
    assert.equal(good(await batch(order)).id, first.id);
    assert.equal(api.of(order).length, 1);
    assert.ok(site.ledgerHas(order), 'what is recorded can be found');
});

test('the answer is lost between gateway and client: the retry gets it', async () => {
    const order = newOrder();
    front.trouble('drop', here(order));
    good(await batch(order, { retries: 2 }));
    assert.equal(api.of(order).length, 1);
    assert.deepEqual(front.of(order).map((entry) => entry.headers['x-stainless-retry-count']), ['0', '1']);
});

test('the answer is lost between API and gateway: raised as in doubt, done once', async () => {
    const order = newOrder();
    api.trouble('drop', here(order));
    for (const retries of [2, 0]) {
        const raised = bad(await batch(order, { retries }));
        assert.deepEqual([raised.type, raised.code], ['ConflictError', 'IN_DOUBT']);
        assert.match(raised.message, /may or may not have taken effect/);
    }
    assert.equal(api.of(order).length, 1);
    assert.equal(front.of(order).length, 4);
});

test('two users and workspaces: each has its own', async () => {
    const order = newOrder();
    const users = [[{}], [{ key: 'sk-2' }], [{ default_headers: { 'X-Api-Key': 'sk-1' } }], [{ default_headers: { 'X-Api-Key': 'sk-2' } }],
        [{}, { workspace_id: 'w-1' }], [{}, { workspace_id: 'w-2' }], [{}, { user_profile_id: 'p-1' }], [{}, { user_profile_id: 'p-2' }]];
    const ids = [];
    for (const user of [...users, ...users]) ids.push(good(await batch(order, ...user)).id);
    assert.equal(new Set(ids).size, 8);
    assert.deepEqual(ids.slice(8), ids.slice(0, 8));
    assert.equal(api.of(order).length, 8);
});

test('with Semel-Token: the own key reaches the API; two scopes are two users', async () => {
    const order = newOrder();
    const ids = [];
    for (const who of ['agent', 'stranger', 'agent', 'stranger'])
        ids.push(good(await batch(order, { at: site.below, default_headers: { 'Semel-Token': site.gw.texts[who] } })).id);
    assert.notEqual(ids[0], ids[1]);
    assert.deepEqual(ids.slice(2), ids.slice(0, 2));
    const entries = site.below.api.of(order);
    assert.deepEqual(entries.map((entry) => [entry.path, entry.headers.authorization, entry.headers['semel-token']]),
        Array(2).fill(['/v1/messages/batches', 'Bearer sk-1', undefined]));
});

test('with our token as its key: the API gets the configured one', async () => {
    const order = newOrder();
    for (const who of ['agent', 'stranger', 'agent', 'stranger']) good(await batch(order, { at: site.keyed, key: site.gw.texts[who] }));
    assert.deepEqual(site.keyed.api.of(order).map((entry) => entry.headers.authorization), Array(2).fill('Bearer sk-configured'));
    for (const entry of site.keyed.api.of(order))
        for (const who of ['agent', 'stranger']) assert.ok(!JSON.stringify(entry.rawHeaders).includes(site.gw.texts[who]));
});

test('another version of the API is compared: raised as a conflict that names the header', async () => {
    const order = newOrder();
    good(await batch(order));
    const raised = bad(await batch(order, { default_headers: { 'anthropic-version': '2024-01-01' } }));
    assert.deepEqual([raised.type, raised.code], ['UnprocessableEntityError', 'KEY_CONFLICT']);
    assert.match(raised.message, /anthropic-version/);
    assert.equal(api.of(order).length, 1);
});

test('what the API rejects is raised as the API says', async () => {
    const raised = bad(await batch(`refuse ${newOrder()}`));
    assert.deepEqual([raised.type, raised.status], ['BadRequestError', 400]);
    assert.match(raised.message, /requests: too many/);
});

test('an upload is one action, though each try has a boundary of its own', async () => {
    const order = newOrder();
    const upload = (name) => call('files.upload', { file: { base64: Buffer.from(`lines of ${order}`).toString('base64'), name } });
    const first = good(await upload('a.txt'));
    assert.equal(good(await upload('a.txt')).id, first.id);
    assert.equal(api.of(order).length, 1);
    assert.equal(new Set(front.of(order).map((entry) => entry.headers['content-type'])).size, 2);
    good(await upload('b.txt'));
    assert.equal(api.of(order).length, 2, 'another name is another action');
});

test('reads reach the API each time', async () => {
    for (let n = 0; n < 2; n++) good(await call('messages.batches.list', { limit: 7 }));
    assert.equal(api.of('/v1/messages/batches?limit=7').length, 2);
});

test('100 callers at once: one batch', async () => {
    const order = newOrder();
    const ids = (await hundred(site.anthropic, order, () => batch(order, { retries: 5 }))).map((one) => good(one).id);
    assert.equal(new Set(ids).size, 1);
    assert.equal(api.of(order).length, 1);
});

test('a batch that waits for approval is raised as not done, and runs once it is approved', async () => {
    const order = newOrder();
    const raised = bad(await batch(order, { at: site.asking }));
    assert.deepEqual([raised.type, raised.code], ['PermissionDeniedError', 'AWAITING_APPROVAL']);
    assert.equal(site.asking.api.of(order).length, 0);
    const item = await site.approve(order);
    assert.match(item.args.headers.authorization, /^sha256:/);
    good(await batch(order, { at: site.asking }));
    assert.equal(site.asking.api.of(order).length, 1);
});

await run();
