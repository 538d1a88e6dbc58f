// openai-python before a server that streams as OpenAI's does. Generations are reads that are POSTs;
// batches and files are writes, and the API has no keys that would make them safe to send again.

import { Site, assert, bad, good, here, hundred, newOrder, python } from './harness.mjs';
import { Model } from './model.mjs';
import { eventually, run, test } from '../gateway/tap.mjs';

const sdk = await python('openai');
const model = await Model.start({
    path: '/v1/chat/completions',
    whole: (content) => ({ id: 'c', object: 'chat.completion', created: 1, model: 'm', choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }] }),
    before: '',
    piece: (content) => `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [{ index: 0, delta: { content }, finish_reason: null }] })}\n\n`,
    after: 'data: [DONE]\n\n',
    list: { object: 'list', data: [] },
    objects: {
        '/v1/batches': (serial) => ({
            id: `batch_${serial}`, object: 'batch', status: 'validating', endpoint: '/v1/chat/completions', input_file_id: 'f',
            completion_window: '24h', created_at: 1,
        }),
        '/v1/files': (serial) => ({ id: `file_${serial}`, object: 'file', bytes: 1, created_at: 1, filename: 'a', purpose: 'batch', status: 'processed' }),
    },
});
const { port, streams } = model;
const site = await Site.start({
    openai: { port, config: { preset: 'openai' } },
    recorded: { port, config: { preset: 'openai', stream: true } },
    asking: { port, config: { preset: 'openai', timeout: '3s' } },
}, {
    contract: {
        version: 1,
        tools: { 'proxy.recorded': { class: 'write' }, 'proxy.asking': { class: 'write', approval: { expires: '1h' } } },
    },
});
const { api, front } = site.openai;

function call(name, args, { at = site.openai, retries = 0, piece, ...client } = {}) {
    return sdk.call('openai', { key: 'sk-1', base: `${at.base}/v1`, retries, ...client }, name, args, piece);
}
const ask = (order, more = {}, options = {}) =>
    call('chat.completions.create', { model: 'm', messages: [{ role: 'user', content: order }], ...more }, options);
const batch = (order, options = {}) =>
    call('batches.create', { input_file_id: order, endpoint: '/v1/chat/completions', completion_window: '24h' }, options);

// A generation that is silent for longer than requests usually may take goes on beside the other tests.
const slow = `slow ${newOrder()}`;
const began = Date.now();
const late = ask(slow);

const inPieces = (at) => model.inPieces((order, piece) => ask(order, { stream: true }, { at, piece }));

test('a generation streams: each piece comes when it is sent', async () => {
    await inPieces(site.openai);
});

test('the same question again is asked again', async () => {
    const order = newOrder();
    const answers = [];
    for (let n = 0; n < 2; n++) answers.push(good(await ask(order)).choices[0].message.content);
    assert.notEqual(answers[0], answers[1]);
    assert.equal(api.of(order).length, 2);
});

test('a generation that the API fails is no doubt: the SDK asks again', async () => {
    const order = newOrder();
    api.trouble('fail', here(order));
    good(await ask(order, {}, { retries: 2 }));
    assert.equal(api.of(order).length, 2);
    const other = newOrder();
    api.trouble('fail', here(other));
    const raised = bad(await ask(other));
    assert.equal(raised.type, 'InternalServerError');
    assert.equal(raised.status, 500);
});

test('a client that leaves ends the generation', async () => {
    const order = newOrder();
    const raised = bad(await ask(`slow ${order}`, { timeout: 0.5 }));
    assert.equal(raised.type, 'APITimeoutError');
    await eventually('the API knows', () => streams.get(`slow ${order}`).closed);
});

test('a stream of a write is passed on as it comes, and replayed', async () => {
    const order = await inPieces(site.recorded);
    assert.deepEqual(good(await ask(order, { stream: true }, { at: site.recorded })), ['one', 'two', 'three']);
    assert.equal(site.recorded.api.of(order).length, 1);
});

test('a batch is made once, also if the agent repeats the call', async () => {
    const order = newOrder();
    const first = good(await batch(order));
    assert.equal(good(await batch(order)).id, first.id);
    assert.equal(api.of(order).length, 1);
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
    const raised = bad(await batch(order, { retries: 2 }));
    assert.equal(raised.type, 'ConflictError');
    assert.equal(raised.code, 'IN_DOUBT');
    assert.equal(api.of(order).length, 1);
});

test('two organisations, projects and users: each has its own', async () => {
    const order = newOrder();
    const users = [{ organization: 'org-1' }, { organization: 'org-2' }, { project: 'p-1' }, { project: 'p-2' }, { key: 'sk-2' }, {}];
    const ids = [];
    for (const user of [...users, ...users]) ids.push(good(await batch(order, user)).id);
    assert.equal(new Set(ids).size, 6);
    assert.deepEqual(ids.slice(6), ids.slice(0, 6));
    assert.equal(api.of(order).length, 6);
});

test('a header that nobody knows is compared: raised as a conflict that names it', async () => {
    const order = newOrder();
    good(await batch(order, { default_headers: { 'X-Unit': 'kg' } }));
    const raised = bad(await batch(order, { default_headers: { 'X-Unit': 'lb' } }));
    assert.equal(raised.type, 'UnprocessableEntityError');
    assert.equal(raised.code, 'KEY_CONFLICT');
    assert.match(raised.message, /x-unit/);
    assert.equal(api.of(order).length, 1);
});

test('an upload is one action, though each try has a boundary of its own', async () => {
    const order = newOrder();
    const upload = (purpose) => call('files.create', { purpose, file: { base64: Buffer.from(`lines of ${order}`).toString('base64'), name: 'a.jsonl' } });
    const first = good(await upload('batch'));
    assert.equal(good(await upload('batch')).id, first.id);
    assert.equal(api.of(order).length, 1);
    assert.equal(new Set(front.of(order).map((entry) => entry.headers['content-type'])).size, 2);
    good(await upload('evals'));
    assert.equal(api.of(order).length, 2);
});

test('reads reach the API each time', async () => {
    const before = api.of('/v1/models').length;
    for (let n = 0; n < 2; n++) good(await call('models.list', {}));
    assert.equal(api.of('/v1/models').length, before + 2);
});

test('100 callers at once: one batch', async () => {
    const order = newOrder();
    const ids = (await hundred(site.openai, order, () => batch(order, { retries: 5 }))).map((one) => good(one).id);
    assert.equal(new Set(ids).size, 1);
    assert.equal(api.of(order).length, 1);
});

test('a batch that waits for approval is raised as not done, and runs once it is approved', async () => {
    const order = newOrder();
    const raised = bad(await batch(order, { at: site.asking }));
    assert.equal(raised.type, 'PermissionDeniedError');
    assert.equal(raised.code, 'AWAITING_APPROVAL');
    assert.equal(site.asking.api.of(order).length, 0);
    const item = await site.approve(order);
    assert.match(item.args.headers.authorization, /^sha256:/);
    good(await batch(order, { at: site.asking }));
    assert.equal(site.asking.api.of(order).length, 1);
});

test('a generation that was silent for 32 s is answered', async () => {
    await eventually('it has been silent for so long', () => Date.now() - began > 32_000, 40_000);
    streams.get(slow).next();
    assert.match(good(await late).choices[0].message.content, /^answer/);
});

await run();
