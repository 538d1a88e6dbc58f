// PocketBase with its JavaScript SDK, and with curl -F, below /proxy/NAME. Records are counted by asking
// PocketBase itself.

import { execFile } from 'node:child_process';
import fs from 'node:fs';
import { promisify } from 'node:util';
import PocketBase from 'pocketbase';
import { Site, assert, atOnce, bad, goPath, good, here, hundred, newOrder, server } from './harness.mjs';
import { newPath } from '../gateway/program.mjs';
import { run, test } from '../gateway/tap.mjs';

const execute = promisify(execFile);
const program = goPath('pocketbase');
const data = newPath('pocketbase');
const password = 'correct-horse-battery';
await execute(program, ['superuser', 'upsert', 'root@example.com', password, `--dir=${data}`]);
const base = await server(program, (port) => ['serve', `--http=127.0.0.1:${port}`, `--dir=${data}`]);

function client(url) {
    const pb = new PocketBase(url);
    pb.autoCancellation(false);
    return pb;
}

// The API itself, without a gateway: makes what the tests need, and tells what there is.
const root = client(`http://127.0.0.1:${base.port}`);
await root.collection('_superusers').authWithPassword('root@example.com', password);
const anybody = '@request.auth.id != ""';
await root.collections.create({
    name: 'notes', type: 'base', listRule: anybody, viewRule: anybody, createRule: anybody, updateRule: anybody, deleteRule: anybody,
    fields: [{ name: 'title', type: 'text' }, { name: 'state', type: 'text' }, { name: 'file', type: 'file', maxSelect: 1, maxSize: 1e6 }],
});
for (const name of ['anna', 'bert'])
    await root.collection('users').create({ email: `${name}@example.com`, password, passwordConfirm: password });
const held = (order) => root.collection('notes').getFullList({ filter: `title="${order}"` });

const asks = { class: 'write', approval: { expires: '1h' } };
const site = await Site.start({
    pocketbase: { port: base.port, path: true, config: {} },
    asking: { port: base.port, path: true, config: { timeout: '3s' } },
}, { contract: { version: 1, tools: { 'proxy.asking': asks } } });
const { api, front } = site.pocketbase;

// { value } or { raised }, as the other SDKs have it.
async function seen(promise) {
    try {
        return { value: await promise };
    } catch (e) {
        return { raised: { type: e.name, status: e.status, code: e.response?.code, message: e.response?.message ?? e.message } };
    }
}

// A client behind the gateway shows our token beside the user's own.
function behind(place, more = {}) {
    const pb = client(place.base);
    pb.beforeSend = (url, options) => ({ url, options: { ...options, headers: { ...options.headers, 'Semel-Token': site.gw.texts.agent, ...more } } });
    return pb;
}
const anna = behind(site.pocketbase);
const bert = behind(site.pocketbase);
const create = (order, who = anna, more = {}) => seen(who.collection('notes').create({ title: order, ...more }));
const writes = (order) => api.of(order, (entry) => entry.method !== 'GET').length;

test('users sign in, also twice', async () => {
    for (const [pb, name] of [[anna, 'anna'], [bert, 'bert'], [behind(site.pocketbase), 'anna']]) {
        await pb.collection('users').authWithPassword(`${name}@example.com`, password);
        assert.ok(pb.authStore.isValid);
        assert.equal(pb.authStore.record.email, `${name}@example.com`);
    }
});

test('the password of who signs in is in no record', async () => {
    assert.ok(!site.ledgerHas(password));
});

test('a record is made once, also if the agent repeats the call', async () => {
    const order = newOrder();
    const first = good(await create(order));
    assert.equal(good(await create(order)).id, first.id);
    assert.equal((await held(order)).length, 1);
});

test('two users: two records, and each gets the own one', async () => {
    const order = newOrder();
    const ids = [];
    for (const who of [anna, bert, anna, bert]) ids.push(good(await create(order, who)).id);
    assert.notEqual(ids[0], ids[1]);
    assert.deepEqual(ids.slice(2), ids.slice(0, 2));
    assert.equal((await held(order)).length, 2);
});

test('the answer is lost between gateway and client: the repeat gets it', async () => {
    const order = newOrder();
    front.trouble('drop', here(order));
    assert.equal(bad(await create(order)).status, 0);
    good(await create(order));
    assert.equal((await held(order)).length, 1);
});

test('the answer is lost between API and gateway: raised as in doubt, done once', async () => {
    const order = newOrder();
    api.trouble('drop', here(order));
    for (let n = 0; n < 2; n++) {
        const raised = bad(await create(order));
        assert.equal(raised.type, 'ClientResponseError 409');
        assert.equal(raised.code, 'IN_DOUBT');
    }
    assert.equal((await held(order)).length, 1);
});

test('a record that is set to A, B and A holds A', async () => {
    const order = newOrder();
    const { id } = good(await create(order));
    const set = (state) => anna.collection('notes').update(id, { state });
    for (const state of ['A', 'B', 'A', 'A']) assert.equal((await set(state)).state, state);
    assert.equal((await held(order))[0].state, 'A');
    assert.equal(api.of(id, (entry) => entry.method === 'PATCH').length, 3, 'the last one is a retry');
});

test('a record is deleted, and the repeat says the same', async () => {
    const order = newOrder();
    const { id } = good(await create(order));
    for (let n = 0; n < 2; n++) assert.equal(await anna.collection('notes').delete(id), true);
    assert.equal((await held(order)).length, 0);
    assert.equal(api.of(id, (entry) => entry.method === 'DELETE').length, 1);
});

test('an upload is one action, though each try has a boundary of its own', async () => {
    const order = newOrder();
    const upload = (text) => create(order, anna, { file: new File([text], 'a.txt', { type: 'text/plain' }) });
    const first = good(await upload('one'));
    assert.equal(good(await upload('one')).id, first.id);
    assert.equal((await held(order)).length, 1);
    assert.equal(new Set(front.of(order).map((entry) => entry.headers['content-type'])).size, 2);
    assert.notEqual(good(await upload('two')).id, first.id, 'another file is another action');
    const url = anna.files.getURL(first, first.file);
    assert.equal(await (await fetch(url, { headers: { 'Semel-Token': site.gw.texts.agent } })).text(), 'one');
});

// The arguments of a curl -F with a file.
function curlArgs(order, { place = site.pocketbase, title = order, who = anna, options = [] } = {}) {
    const file = newPath('b.txt');
    fs.writeFileSync(file, `of ${order}`);
    return ['-sS', '-w', '\n%{http_code}', '-H', `Authorization: ${who.authStore.token}`, '-H', `Semel-Token: ${site.gw.texts.agent}`, ...options,
        '-F', `title=${title}`, '-F', `file=@${file};type=text/plain;filename=b.txt`, `${place.base}/api/collections/notes/records`];
}

// Its exit code, the status and the answer.
async function curl(order, more) {
    const { code = 0, stdout } = await execute('curl', curlArgs(order, more)).catch((e) => e);
    const [, body, status] = /^([^]*)\n(\d+)$/.exec(stdout);
    return { exit: code, status: Number(status), json: body === '' ? null : JSON.parse(body) };
}

test('curl -F twice is one action', async () => {
    const order = newOrder();
    const first = await curl(order);
    assert.equal(first.status, 200);
    assert.equal((await curl(order)).json.id, first.json.id);
    assert.equal((await held(order)).length, 1);
    assert.equal(writes(order), 1);
    assert.notEqual((await curl(order, { title: `${order}-2` })).json.id, first.json.id, 'another field is another action');
});

test('curl -F: the answer is lost between API and gateway: 409, and done once', async () => {
    const order = newOrder();
    api.trouble('drop', here(order));
    const { status, json } = await curl(order);
    assert.equal(status, 409);
    assert.equal(json.code, 'IN_DOUBT');
    assert.equal((await curl(order, { options: ['--fail'] })).exit, 22);
    assert.equal((await held(order)).length, 1);
});

test('curl -F: the answer is lost between gateway and client: the repeat gets it, and so does curl --retry', async () => {
    const order = newOrder();
    front.trouble('drop', here(order));
    assert.equal((await curl(order)).exit, 52, 'an empty answer');
    assert.equal((await curl(order)).json.id, (await held(order))[0].id);
    const other = newOrder();
    front.trouble('drop', here(other));
    const { exit, status, json } = await curl(other, { options: ['--retry', '3', '--retry-all-errors'] });
    assert.deepEqual([exit, status, json.id], [0, 200, (await held(other))[0].id]);
    assert.deepEqual([front.of(order).length, front.of(other).length], [2, 2]);
    assert.equal((await held(order)).length + (await held(other)).length, 2);
    assert.equal(writes(order) + writes(other), 2);
});

test('curl -F: two users: two records, and each gets the own one', async () => {
    const order = newOrder();
    const ids = [];
    for (const who of [anna, bert, anna, bert]) ids.push((await curl(order, { who })).json.id);
    assert.notEqual(ids[0], ids[1]);
    assert.deepEqual(ids.slice(2), ids.slice(0, 2));
    assert.equal((await held(order)).length, 2);
    assert.equal(writes(order), 2);
});

test('curl -F: 100 at once: one record', async () => {
    const order = newOrder();
    const files = Array.from({ length: 100 }, () => newPath('answer.json'));
    const args = files.flatMap((file) => ['--next', ...curlArgs(order, { options: ['-o', file] })]);
    const { stdout } = await atOnce(site.pocketbase, order, () => execute('curl', ['-Z', '--parallel-immediate', '--parallel-max', '100', ...args.slice(1)]));
    assert.deepEqual(stdout.trim().split(/\s+/), files.map(() => '200'));
    const ids = files.map((file) => JSON.parse(fs.readFileSync(file)).id);
    assert.deepEqual([...new Set(ids)], (await held(order)).map((one) => one.id));
    assert.equal(new Set(front.of(order).map((entry) => entry.headers['content-type'])).size, 100, 'each has a boundary of its own');
    assert.equal(writes(order), 1);
});

test('curl -F: what the API rejects is answered as the API says', async () => {
    const { status, json } = await curl(newOrder(), { who: client(base.url) });
    assert.equal(status, 400);
    assert.match(json.message, /Failed to create record/);
});

test('another value of a header that nobody knows is a conflict', async () => {
    const order = newOrder();
    const [kg, lb] = ['kg', 'lb'].map((unit) => {
        const pb = behind(site.pocketbase, { 'X-Unit': unit });
        pb.authStore.save(anna.authStore.token, anna.authStore.record);
        return pb;
    });
    good(await create(order, kg));
    const raised = bad(await create(order, lb));
    assert.equal(raised.type, 'ClientResponseError 422');
    assert.equal(raised.code, 'KEY_CONFLICT');
    assert.match(raised.message, /x-unit/);
    const other = newOrder();
    assert.equal((await curl(other, { options: ['-H', 'X-Unit: kg'] })).status, 200);
    const { status, json } = await curl(other, { options: ['-H', 'X-Unit: lb'] });
    assert.equal(status, 422);
    assert.equal(json.code, 'KEY_CONFLICT');
    assert.equal((await held(order)).length + (await held(other)).length, 2);
});

test('reads reach the API each time', async () => {
    const order = newOrder();
    const list = () => anna.collection('notes').getFullList({ filter: `title="${order}"` });
    assert.equal((await list()).length, 0);
    good(await create(order));
    assert.equal((await list()).length, 1);
});

test('what the API rejects is raised as the API says', async () => {
    const raised = bad(await seen(anna.collection('notes').update('missing', { state: 'A' })));
    assert.equal(raised.status, 404);
    assert.match(raised.message, /wasn't found/);
});

test('100 callers at once: one record', async () => {
    const order = newOrder();
    const ids = (await hundred(site.pocketbase, order, () => create(order))).map((one) => good(one).id);
    assert.equal(new Set(ids).size, 1);
    assert.equal((await held(order)).length, 1);
});

test('a record that waits for approval is raised as not done, and is made once it is approved', async () => {
    const [order, other] = [newOrder(), newOrder()];
    const asking = behind(site.asking);
    asking.authStore.save(anna.authStore.token, anna.authStore.record);
    const [seenBySdk, seenByCurl] = await Promise.all([create(order, asking), curl(other, { place: site.asking })]);
    assert.equal(bad(seenBySdk).type, 'ClientResponseError 403');
    assert.equal(bad(seenBySdk).code, 'AWAITING_APPROVAL');
    assert.equal(seenByCurl.status, 403);
    assert.equal(seenByCurl.json.code, 'AWAITING_APPROVAL');
    assert.equal((await held(order)).length + (await held(other)).length, 0);
    assert.equal((await site.approve(order)).args.body.title, order);
    const { form } = (await site.approve(other)).args;
    assert.deepEqual([form.title, form.file.filename, form.file.size], [other, 'b.txt', `of ${other}`.length]);
    const { id } = good(await create(order, asking));
    assert.deepEqual((await held(order)).map((one) => one.id), [id]);
    assert.equal((await curl(other, { place: site.asking })).json.id, (await held(other))[0].id);
});

await run();
