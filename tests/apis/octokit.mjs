// Octokit, with its plugin that retries, before a server that speaks the few routes of GitHub's API that are needed
// here. GitHub has no keys that would make writes safe to send again. Issues and comments are counted in the server.

import { Octokit } from '@octokit/rest';
import { retry } from '@octokit/plugin-retry';
import { Site, answerJson, assert, bad, good, here, hundred, newOrder, ownServer } from './harness.mjs';
import { run, test } from '../gateway/tap.mjs';

const issues = [];
const comments = [];
let serials = 0;

// What the routes answer: [status, value]. GitHub Enterprise has them below /api.
const routes = {
    'POST /repos/acme/shop/issues': (body) => {
        if (body.title === '') return [422, { message: 'Validation Failed', errors: [{ field: 'title', code: 'missing_field' }] }];
        const issue = { number: issues.length + 1, state: 'open', ...body, history: [] };
        issues.push(issue);
        return [201, issue];
    },
    'PATCH /repos/acme/shop/issues/N': (body, number) => {
        issues[number - 1].history.push(body.title);
        return [200, Object.assign(issues[number - 1], body)];
    },
    'GET /repos/acme/shop/issues/N': (body, number) => (issues[number - 1] ? [200, issues[number - 1]] : [404, { message: 'Not Found' }]),
    'POST /markdown': (body) => [200, { html: `<p>${body.text}</p>` }],
    'POST /graphql': ({ query, variables }) => {
        if (!query.startsWith('mutation')) return [200, { data: { serial: ++serials, comments: comments.length } }];
        comments.push(variables.text);
        return [200, { data: { addComment: { id: `c${comments.length}` } } }];
    },
};
const port = await ownServer((request, body, response) => {
    const [where, number] = request.url.replace(/^\/api(\/v3)?/, '').split(/(?<=issues\/)(\d+)/);
    const [status, value] = routes[`${request.method} ${where}${number ? 'N' : ''}`](body === '' ? {} : JSON.parse(body), Number(number));
    answerJson(response, value, status);
});
const made = (order) => issues.filter((issue) => issue.title.includes(order)).length;

const site = await Site.start({
    github: { port, config: { preset: 'github' } },
    asking: { port, config: { preset: 'github', timeout: '3s' } },
    below: { port, path: true, config: { preset: 'github' } },
}, { contract: { version: 1, tools: { 'proxy.asking': { class: 'write', approval: { expires: '1h' } } } } });
const { api, front } = site.github;

// A client; it waits next to nothing between its retries.
const Kit = Octokit.plugin(retry);
function kit({ at = site.github, user = 'ghp_1', retries = 0, headers = {}, below = '' } = {}) {
    const silent = () => {};
    const client = new Kit({
        baseUrl: at.base + below, auth: user, retry: { retries, retryAfterBaseValue: 10 }, log: { debug: silent, info: silent, warn: silent, error: silent },
    });
    client.hook.before('request', (options) => void Object.assign(options.headers, headers));
    return client;
}

// { value } or { raised }, as the other SDKs have it.
async function seen(promise) {
    try {
        const answer = await promise;
        return { value: answer.data ?? answer };
    } catch (e) {
        return { raised: { type: e.name, status: e.status, code: e.response?.data?.code, effect: e.response?.headers['semel-effect'], message: e.message } };
    }
}
const shop = { owner: 'acme', repo: 'shop' };
const create = (order, options) => seen(kit(options).rest.issues.create({ ...shop, title: order }));
const mutation = 'mutation ($text: String!) { addComment(input: { subjectId: "1", body: $text }) { id } }';
const comment = (text, options) => seen(kit(options).graphql(mutation, { text }));
const said = (order) => comments.filter((text) => text.includes(order)).length;

test('an issue is made once, also if the agent repeats the call', async () => {
    const order = newOrder();
    const first = good(await create(order));
    assert.equal(good(await create(order)).number, first.number);
    assert.equal(made(order), 1);
    assert.equal(api.of(order).length, 1);
});

test('an issue that is set to A, B and A is set three times', async () => {
    const { number } = good(await create(newOrder()));
    const set = (title) => seen(kit().rest.issues.update({ ...shop, issue_number: number, title })).then(good);
    for (const title of ['A', 'B', 'A', 'A']) assert.equal((await set(title)).title, title);
    assert.deepEqual(issues[number - 1].history, ['A', 'B', 'A'], 'the last one is a retry');
});

test('GraphQL: a query reaches the API each time, a mutation once', async () => {
    const order = newOrder();
    const ask = () => seen(kit().graphql(`query ($text: String!) { comments(text: $text) }`, { text: order })).then(good);
    assert.notEqual((await ask()).serial, (await ask()).serial);
    const first = good(await comment(order));
    assert.deepEqual(good(await comment(order)), first);
    assert.equal(said(order), 1);
    assert.equal(api.of(order).length, 3);
});

test('GraphQL: the answer to a mutation is lost on either side', async () => {
    const order = newOrder();
    front.trouble('drop', here(order));
    good(await comment(order, { retries: 2 }));
    assert.equal(said(order), 1);
    const other = newOrder();
    api.trouble('drop', here(other));
    const raised = bad(await comment(other, { retries: 2 }));
    assert.deepEqual([raised.status, raised.code], [409, 'IN_DOUBT']);
    assert.equal(said(other), 1);
});

test('Markdown is rendered each time', async () => {
    const order = newOrder();
    for (let n = 0; n < 2; n++) assert.match(good(await seen(kit().rest.markdown.render({ text: order }))).html, /^<p>/);
    assert.equal(api.of(order).length, 2);
});

test('the answer is lost between gateway and client: the retry gets it', async () => {
    const order = newOrder();
    front.trouble('drop', here(order));
    good(await create(order, { retries: 3 }));
    assert.equal(front.of(order).length, 2);
    assert.equal(made(order), 1);
    assert.equal(api.of(order).length, 1);
});

test('the answer is lost between API and gateway: raised as in doubt, done once', async () => {
    const order = newOrder();
    api.trouble('drop', here(order));
    for (const retries of [3, 0]) {
        const raised = bad(await create(order, { retries }));
        assert.deepEqual([raised.type, raised.status, raised.code], ['HttpError', 409, 'IN_DOUBT']);
        assert.match(raised.message, /may or may not have taken effect/);
    }
    assert.equal(front.of(order).length, 5);
    assert.equal(made(order), 1);
});

test('two users: two issues, and each gets the own one', async () => {
    const order = newOrder();
    const numbers = [];
    for (const user of ['ghp_1', 'ghp_2', 'ghp_1', 'ghp_2']) numbers.push(good(await create(order, { user })).number);
    assert.notEqual(numbers[0], numbers[1]);
    assert.deepEqual(numbers.slice(2), numbers.slice(0, 2));
    assert.equal(made(order), 2);
    assert.deepEqual(api.of(order).map((entry) => entry.headers.authorization), ['token ghp_1', 'token ghp_2']);
});

test('below /proxy/NAME with Semel-Token: two scopes are two users', async () => {
    const order = newOrder();
    const numbers = [];
    for (const who of ['agent', 'stranger', 'agent', 'stranger'])
        numbers.push(good(await create(order, { at: site.below, headers: { 'Semel-Token': site.gw.texts[who] } })).number);
    assert.notEqual(numbers[0], numbers[1]);
    assert.deepEqual(numbers.slice(2), numbers.slice(0, 2));
    assert.equal(made(order), 2);
    assert.deepEqual(site.below.api.of(order).map((entry) => [entry.path, entry.headers.authorization, entry.headers['semel-token']]),
        Array(2).fill(['/repos/acme/shop/issues', 'token ghp_1', undefined]));
});

test('below /api/v3, as GitHub Enterprise has it: the same', async () => {
    const order = newOrder();
    const options = { below: '/api/v3' };
    for (let n = 0; n < 2; n++) {
        good(await create(order, options));
        good(await comment(order, options));
        good(await seen(kit(options).graphql('{ viewer { login } }', { text: order })));
        good(await seen(kit(options).rest.markdown.render({ text: order })));
    }
    assert.deepEqual([made(order), said(order)], [1, 1]);
    const count = (path) => api.of(order, (entry) => entry.path === path).length;
    assert.deepEqual(['/api/v3/repos/acme/shop/issues', '/api/graphql', '/api/v3/markdown'].map(count), [1, 3, 2]);
});

test('a header that nobody knows is compared: raised as a conflict that names it', async () => {
    const order = newOrder();
    good(await create(order, { headers: { 'X-Unit': 'kg' } }));
    const raised = bad(await create(order, { headers: { 'X-Unit': 'lb' } }));
    assert.deepEqual([raised.type, raised.status, raised.code], ['HttpError', 422, 'KEY_CONFLICT']);
    assert.match(raised.message, /x-unit/);
    assert.equal(made(order), 1);
});

test('what the API rejects is raised as the API says', async () => {
    const raised = bad(await create(''));
    assert.equal(raised.status, 422);
    assert.match(raised.message, /^Validation Failed/);
});

test('reads reach the API each time', async () => {
    const { number } = good(await create(newOrder()));
    for (let n = 0; n < 2; n++) good(await seen(kit().rest.issues.get({ ...shop, issue_number: number })));
    assert.equal(api.of(`/issues/${number}`, (entry) => entry.method === 'GET' && entry.path.endsWith(`/${number}`)).length, 2);
    assert.equal(bad(await seen(kit().rest.issues.get({ ...shop, issue_number: 999999 }))).status, 404);
});

test('100 callers at once: one issue', async () => {
    const order = newOrder();
    const numbers = (await hundred(site.github, order, () => create(order, { retries: 3 }))).map((one) => good(one).number);
    assert.equal(new Set(numbers).size, 1);
    assert.equal(made(order), 1);
    assert.equal(api.of(order).length, 1);
});

test('an issue that waits for approval is raised as not done, and is made once it is approved', async () => {
    const order = newOrder();
    const raised = bad(await create(order, { at: site.asking, retries: 3 }));
    assert.deepEqual([raised.type, raised.status, raised.code], ['HttpError', 403, 'AWAITING_APPROVAL']);
    assert.match(raised.message, /A person has to approve this call/);
    assert.equal(made(order), 0);
    const item = await site.approve(order);
    assert.equal(item.args.body.title, order);
    good(await create(order, { at: site.asking }));
    assert.equal(made(order), 1);
});

await run();
