// The OpenAPI document says what is so: it has every route and no other, it is whole in itself, and
// what the gateway takes and answers is as it says.

import fs from 'node:fs';
import path from 'node:path';
import { Gateway, assert } from './harness.mjs';
import { flaws, pointer } from './schema.mjs';
import { newOrder, shop } from './shop.mjs';
import { run, test } from './tap.mjs';
import { Upstream } from './upstream.mjs';

const root = process.env.SEMEL_ROOT ?? path.resolve('.');
const up = await Upstream.start();
const contract = shop(up, {
    'look.*': { class: 'read', description: 'Looks.' },
    lease: { class: 'write', lease: '1m', barrier: 'off' },
    sized: { class: 'write', variants: [{ when: [{ field: '/size', equals: 1 }], class: 'irreversible' }] },
});
// An MCP server that says yes to everything.
const yes = `require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
    const { id, params } = JSON.parse(line);
    const result = { protocolVersion: params?.protocolVersion, capabilities: {}, serverInfo: { name: 'yes', version: '1' } };
    if (id !== undefined) console.log(JSON.stringify({ jsonrpc: '2.0', id, result }));
})`;
const mcp = { yes: { command: [process.execPath, '-e', yes] } };
const gw = await Gateway.start({ contract, config: { mcp }, env: { SHOP_SECRET: 's' } });
const { json: document } = await gw.client.get('/openapi.json');

// Which operation a request is for.
function operation(method, target) {
    const [given] = target.split('?');
    for (const [pattern, operations] of Object.entries(document.paths)) {
        const shape = pattern.replace(/\{path\}/, '.+').replace(/\{\w+\}/g, '[^/]+');
        if (new RegExp(`^${shape}$`).test(given) && operations[method.toLowerCase()])
            return operations[method.toLowerCase()];
    }
    throw new Error(`${method} ${given} is not in the document`);
}

const followed = (one) => (one.$ref ? pointer(document, one.$ref) : one);

// Makes a request, and holds what is sent and what comes to the document.
const seen = new Set();
async function ask(who, method, target, body, status, options) {
    const described = operation(method, target);
    const schema = described.requestBody?.content['application/json'].schema;
    if (body !== undefined && status < 400)
        assert.deepEqual(flaws(document, schema, body), [], `${method} ${target}: what was sent`);
    const answer = await who.request(method, target, body, options);
    assert.equal(answer.status, status, `${method} ${target}: ${answer.text}`);
    const response = described.responses[status];
    assert.ok(response, `${method} ${target}: the status ${status} is not described`);
    const type = answer.headers['content-type'].split(';')[0];
    const content = followed(response).content;
    assert.ok(content[type] ?? content['*/*'], `${method} ${target}: ${type} is not described`);
    if (type.endsWith('json') && content[type])
        assert.deepEqual(
            flaws(document, content[type].schema, answer.json), [],
            `${method} ${target} ${status}: ${answer.text}`);
    if (answer.headers['retry-after']) assert.ok(followed(response).headers['Retry-After']);
    seen.add(`${described.operationId} ${status}`);
    return answer;
}

test('every route is in the document, and nothing else is', () => {
    const source = fs.readFileSync(path.join(root, 'src/gateway/http/route.c'), 'utf8');
    const routes = [...source.matchAll(/\{GW_([A-Z]+), "([^"]+)", ([\w| ]+), ([\w| ]+), gw_on_/g)];
    assert.ok(routes.length > 15);
    const listed = new Set();
    for (const [, method, place, roles, flags] of routes) {
        const where = place === '/proxy/*' ? '/proxy/{name}/{path}' : place;
        // The protocol has three methods, and the route refuses the others itself.
        const any = place === '/mcp/{name}'
            ? ['get', 'post', 'delete']
            : ['get', 'head', 'post', 'put', 'patch', 'delete', 'options'];
        for (const one of flags.includes('GW_ANY_METHOD') ? any : [method.toLowerCase()]) {
            const described = document.paths[where]?.[one];
            assert.ok(described, `${one} ${where} is not in the document`);
            listed.add(`${one} ${where}`);
            const words = { ALL: 'all', CALLS: 'agent, admin', SAYS: 'approver, operator, admin', RUNS: 'operator, admin' };
            if (flags.includes('GW_OPEN')) assert.deepEqual(described.security, [], where);
            else assert.ok(described.description.includes(`Roles: ${words[roles.trim()]}`), where);
        }
    }
    for (const [where, operations] of Object.entries(document.paths))
        for (const one of Object.keys(operations))
            assert.ok(listed.has(`${one} ${where}`), `${one} ${where} is no route`);
});

test('the document is whole in itself', () => {
    assert.match(document.openapi, /^3\.1\.\d+$/);
    const refs = [...JSON.stringify(document).matchAll(/"\$ref":"([^"]+)"/g)];
    for (const [, ref] of refs) pointer(document, ref);
    const used = new Set(refs.map(([, ref]) => ref));
    for (const [kind, parts] of Object.entries(document.components))
        for (const name of Object.keys(parts))
            assert.ok(kind === 'securitySchemes' || used.has(`#/components/${kind}/${name}`), `${name} is not used`);
    const ids = new Set();
    for (const [where, operations] of Object.entries(document.paths)) {
        for (const [method, one] of Object.entries(operations)) {
            assert.ok(one.summary && one.operationId && !ids.has(one.operationId), `${method} ${where}`);
            ids.add(one.operationId);
            const named = (one.parameters ?? []).map(followed).filter((p) => p.in === 'path').map((p) => p.name);
            assert.deepEqual(named, [...where.matchAll(/\{(\w+)\}/g)].map((m) => m[1]), where);
        }
    }
});

test('codes are those of the library', () => {
    const header = fs.readFileSync(path.join(root, 'include/semel/types.h'), 'utf8');
    const names = (list) => {
        const text = header.slice(header.indexOf(`#define ${list}(X)`));
        return [...text.slice(0, text.indexOf('typedef')).matchAll(/X\((\w+), "?(\w+)/g)];
    };
    const { Code, State, Problem } = document.components.schemas;
    const codes = names('SEMEL_CODES').map((m) => m[1]).filter((code) => code !== 'NONE');
    assert.deepEqual([...Code.enum].sort(), codes.sort());
    assert.deepEqual(State.enum, names('SEMEL_STATES').map((m) => m[2]));
    for (const code of codes) assert.ok(Problem.properties.code.enum.includes(code), code);
});

test('a run that repeats itself', async () => {
    const body = { scope: 'shop/loop', tool: 'charge', args: { order_id: newOrder(), amount: 1 } };
    for (let n = 0; n < 4; n++) await ask(gw.agent, 'POST', '/v1/call', body, 200);
    await ask(gw.agent, 'POST', '/v1/call', body, 429);
    const own = { scope: 'shop/loop-2', tool: 'own', args: { order_id: newOrder() } };
    for (let n = 1; n <= 4; n++) {
        const { json } = await ask(gw.agent, 'POST', '/v1/begin', own, 200);
        const failure = { claim: json.claim, kind: 'failure', applied: 'no', value: 'busy' };
        const ended = await ask(gw.agent, 'POST', '/v1/commit', failure, 200);
        assert.equal(ended.json.warning !== undefined, n >= 3);
    }
    await ask(gw.agent, 'POST', '/v1/begin', own, 429);
});

test('claims', async () => {
    const body = { scope: 'shop/1', step: 7, tool: 'own', args: { order_id: newOrder() } };
    const { json } = await ask(gw.agent, 'POST', '/v1/begin', body, 200);
    await ask(gw.agent2, 'POST', '/v1/begin', body, 409);
    await ask(gw.agent, 'POST', '/v1/renew', { claim: json.claim, lease_ms: 600_000 }, 200);
    await ask(gw.stranger, 'POST', '/v1/renew', { claim: json.claim }, 403);
    await ask(gw.agent, 'POST', '/v1/release', { claim: json.claim }, 200);
    await ask(gw.agent, 'POST', '/v1/release', { claim: json.claim }, 403);
    json.claim = (await ask(gw.agent, 'POST', '/v1/begin', body, 200)).json.claim;
    const outcome = {
        claim: json.claim, kind: 'success', value: { paid: true }, status: 201,
        headers: { 'content-type': 'application/json', 'set-cookie': 'a=b' },
    };
    await ask(gw.agent, 'POST', '/v1/commit', outcome, 200);
    const again = await ask(gw.agent, 'POST', '/v1/begin', body, 200);
    assert.equal(again.json.verdict, 'replay');
    assert.equal(again.json.outcome.headers['set-cookie'], undefined, 'is never replayed');
    const { json: shown } = await ask(gw.agent, 'GET', `/v1/effects/${json.effect}`, undefined, 200);
    for (const event of shown.events) assert.match(event.actor, /^agent \(token /, event.what);
    await ask(gw.agent, 'POST', '/v1/begin', { ...body, key: 'k' }, 200);
    await ask(gw.agent, 'POST', '/v1/begin', { ...body, key: 'k', args: {} }, 422);
    await ask(gw.agent, 'POST', '/v1/begin', { ...body, tool: 'nobodys' }, 404);
    await ask(gw.agent, 'POST', '/v1/begin', { ...body, args: undefined }, 400);
    await ask(gw.agent, 'POST', '/v1/begin', body, 415, { headers: { 'content-type': 'text/plain' } });
    await ask(gw.agent, 'POST', '/v1/commit', { ...outcome, claim: 'cl_forged' }, 403);
    await ask(gw.agent, 'POST', '/v1/commit', { ...outcome, value_base64: 'AA==' }, 400);
    await ask(gw.agent, 'POST', '/v1/begin', 'x'.repeat(2 << 20), 413);
    await ask(gw.client, 'POST', '/v1/begin', body, 401);
});

test('partial outcomes, bytes and failures', async () => {
    for (const end of [
        { kind: 'partial', value: 'half', corrective_action: 'the other half' },
        { kind: 'success', value_base64: Buffer.from([1, 0, 255]).toString('base64') },
        { kind: 'success' },
        { kind: 'failure', applied: 'yes', value: null },
        { kind: 'failure', applied: 'unknown', value: [] },
    ]) {
        const body = { scope: 'shop/1', tool: 'lease', args: newOrder() };
        const { json } = await ask(gw.agent, 'POST', '/v1/begin', body, 200);
        await ask(gw.agent, 'POST', '/v1/commit', { claim: json.claim, ...end }, 200);
        await ask(gw.agent, 'POST', '/v1/begin', body, end.applied === 'unknown' ? 409 : 200);
        await ask(gw.agent, 'GET', `/v1/effects/${json.effect}`, undefined, 200);
    }
});

test('calls', async () => {
    const body = { scope: 'shop/1', tool: 'charge', args: { order_id: newOrder() } };
    const first = await ask(gw.agent, 'POST', '/v1/call', body, 200);
    const again = await ask(gw.agent, 'POST', '/v1/call', body, 200);
    assert.equal(again.text, first.text);
    await ask(gw.agent, 'POST', '/v1/call', { ...body, tool: 'own' }, 422);
    await ask(gw.agent, 'POST', '/v1/call', { ...body, tool: 'lost' }, 409);
    await ask(gw.agent, 'POST', '/v1/call', { ...body, scope: 'other/1' }, 403);
});

test('people', async () => {
    const wish = () => ({ scope: 'shop/1', tool: 'own.asks', args: { order_id: newOrder() } });
    const asked = async () => (await ask(gw.agent, 'POST', '/v1/begin', wish(), 202)).json;
    const at = (one, what) => `/v1/effects/${one.effect}/${what}`;
    const [yes, no, never] = [await asked(), await asked(), await asked()];
    const list = await ask(gw.approver, 'GET', '/v1/approvals?limit=2', undefined, 200);
    assert.equal(list.json.items.length, 2);
    const rest = await ask(gw.approver, 'GET', `/v1/approvals?cursor=${list.json.cursor}`, undefined, 200);
    const all = [...list.json.items, ...rest.json.items];
    for (const one of [yes, no, never]) {
        const item = all.find((other) => other.request === one.request);
        assert.match(item.requested_by, /^agent \(token /);
        assert.equal(item.quorum, 1);
        assert.ok(item.expires_at > item.requested_at);
    }
    await ask(gw.agent, 'GET', '/v1/approvals', undefined, 403);
    await ask(gw.approver, 'POST', at(yes, 'approve'), { request: no.request }, 400);
    await ask(gw.approver, 'POST', at(yes, 'approve'), { request: yes.request }, 200);
    await ask(gw.approver, 'POST', at(no, 'deny'), { request: no.request, reason: '' }, 400);
    await ask(gw.approver, 'POST', at(no, 'deny'), { request: no.request, reason: 'no' }, 200);
    await ask(gw.operator, 'POST', at(never, 'cancel'), undefined, 200);
    await ask(gw.operator, 'POST', at(never, 'cancel'), { reason: 'again' }, 409);
    await ask(gw.operator, 'POST', at(no, 'forget'), { reason: 'a test' }, 200);
    await ask(gw.strangerOperator, 'POST', at(yes, 'cancel'), {}, 404);
    for (const one of [yes, no, never]) {
        await ask(gw.agent, 'GET', `/v1/effects/${one.effect}`, undefined, 200);
        await ask(gw.agent, 'GET', `/v1/effects/${one.request}`, undefined, 200);
    }
    const lost = { scope: 'shop/1', tool: 'lost', args: { order_id: newOrder() } };
    const { json } = await ask(gw.agent, 'POST', '/v1/call', lost, 409);
    const outcome = { value: { ok: 1 }, status: 202 };
    await ask(gw.operator, 'POST', at(json, 'resolve'), { result: 'maybe', evidence: 'x' }, 400);
    await ask(gw.operator, 'POST', at(json, 'resolve'), { result: 'abandon', evidence: 'x', outcome }, 400);
    await ask(gw.operator, 'POST', at(json, 'resolve'), { result: 'applied', evidence: 'x', outcome }, 200);
    const told = await gw.agent.call(lost);
    assert.deepEqual([told.status, told.json], [202, { ok: 1 }]);
});

test('runs, stops and costs', async () => {
    const call = { scope: 'shop/loop/1', tool: 'charge', args: { order_id: newOrder() } };
    for (let n = 0; n < 9; n++) await gw.agent.call(call);
    const at = (scope) => `/v1/scopes/${encodeURIComponent(scope)}`;
    const list = await ask(gw.agent, 'GET', '/v1/scopes?since=1h&limit=1&scope=shop', undefined, 200);
    await ask(gw.agent, 'GET', `/v1/scopes?cursor=${encodeURIComponent(list.json.cursor)}`, undefined, 200);
    await ask(gw.agent, 'GET', '/v1/scopes?cursor=x', undefined, 400);
    await ask(gw.agent, 'GET', '/v1/scopes?scope=other', undefined, 403);
    await ask(gw.agent, 'GET', at('shop/loop/1'), undefined, 200);
    await ask(gw.agent, 'GET', at('shop/nobodys'), undefined, 404);
    await ask(gw.agent, 'POST', `${at('shop/loop/1')}/reset`, { reason: 'x' }, 403);
    await ask(gw.operator, 'POST', `${at('shop/loop/1')}/reset`, { reason: '' }, 400);
    await ask(gw.operator, 'POST', `${at('shop/loop/1')}/reset`, { reason: 'mended' }, 200);
    await ask(gw.operator, 'POST', `${at('shop/loop/1')}/reset`, { reason: 'mended' }, 404);
    for (const by of ['tool', 'scope', 'agent', 'day'])
        await ask(gw.agent, 'GET', `/v1/spend?by=${by}`, undefined, 200);
    await ask(gw.agent, 'GET', '/v1/spend?by=week', undefined, 400);
    await ask(gw.operator, 'POST', '/v1/stop', { scope: 'shop/9', reason: 'a test' }, 200);
    await ask(gw.operator, 'POST', '/v1/stop', { scope: 'shop/9' }, 400);
    await ask(gw.operator, 'POST', '/v1/stop', { all: true, reason: 'a test' }, 403);
    await ask(gw.admin, 'POST', '/v1/stop', { tool: 'none.*', reason: 'a test' }, 200);
    await ask(gw.agent, 'GET', '/v1/stops', undefined, 200);
    await ask(gw.operator, 'POST', '/v1/resume', { scope: 'shop/9' }, 200);
    await ask(gw.operator, 'POST', '/v1/resume', { scope: 'shop/9' }, 404);
    await ask(gw.admin, 'POST', '/v1/resume', { tool: 'none.*', reason: 'over' }, 200);
});

test('undoing', async () => {
    const scope = 'shop/undone';
    await gw.agent.call({ scope, tool: 'order', args: { order_id: newOrder() } });
    const at = `/v1/scopes/${encodeURIComponent(scope)}/undo`;
    const plan = await ask(gw.operator, 'GET', at, undefined, 200);
    assert.equal(plan.json.items[0].status, 'cannot');
    await ask(gw.operator, 'POST', at, {}, 200);
    await ask(gw.operator, 'POST', at, { scope }, 400);
    await ask(gw.agent, 'POST', at, {}, 403);
});

test('reading', async () => {
    const list = await ask(gw.admin, 'GET', '/v1/effects?limit=5', undefined, 200);
    assert.ok(list.json.cursor);
    await ask(gw.admin, 'GET', `/v1/effects?limit=1000&cursor=${list.json.cursor}`, undefined, 200);
    await ask(gw.admin, 'GET', '/v1/effects?state=pending', undefined, 400);
    const [{ effect }] = list.json.items;
    const events = await ask(gw.admin, 'GET', `/v1/effects/${effect}/events?limit=1`, undefined, 200);
    await ask(gw.admin, 'GET', `/v1/effects/${effect}/events?after=${events.json.cursor}`, undefined, 200);
    await ask(gw.admin, 'GET', '/v1/effects/ef_none', undefined, 400);
    await ask(gw.admin, 'GET', '/v1/effects/ef_000000000000001', undefined, 404);
    const tools = await ask(gw.agent, 'GET', '/v1/tools', undefined, 200);
    assert.equal(tools.json.items.length, Object.keys(contract.tools).length);
    await ask(gw.admin, 'GET', '/metrics', undefined, 200);
    await ask(gw.client, 'GET', '/healthz', undefined, 200);
    await ask(gw.client, 'GET', '/readyz', undefined, 200);
    await ask(gw.client, 'GET', '/openapi.json', undefined, 200);
    await ask(gw.agent, 'GET', '/v1/stream?after=beginning', undefined, 400);
    await ask(gw.agent, 'GET', '/v1/stream?after=99999999', undefined, 400);
});

test('MCP servers that are not there, and those who may not ask for them', async () => {
    const message = { jsonrpc: '2.0', id: 'a', method: 'tools/list', params: {} };
    for (const method of ['POST', 'GET', 'DELETE']) {
        const body = method === 'POST' ? message : undefined;
        await ask(gw.agent, method, '/mcp/nobodys', body, 404);
        await ask(gw.approver, method, '/mcp/nobodys', body, 403);
        await ask(gw.client, method, '/mcp/nobodys', body, 401);
    }
});

test('MCP servers', async () => {
    const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'c', version: '1' } };
    const first = { jsonrpc: '2.0', id: 0, method: 'initialize', params };
    const takes = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
    const { headers } = await ask(gw.agent, 'POST', '/mcp/yes', first, 200, { headers: takes });
    const session = (id) => ({ headers: { ...takes, 'mcp-session-id': id } });
    const ping = { jsonrpc: '2.0', id: 'p', method: 'ping' };
    await ask(gw.agent, 'POST', '/mcp/yes', ping, 200, session(headers['mcp-session-id']));
    await ask(gw.agent, 'POST', '/mcp/yes', ping, 404, session('nobodys'));
    await ask(gw.agent, 'POST', '/mcp/yes', ping, 400, { headers: takes });
    await ask(gw.agent, 'POST', '/mcp/yes', '{', 400, { headers: takes });
    await ask(gw.agent, 'POST', '/mcp/yes', ping, 406, { headers: { ...takes, accept: 'text/html' } });
    await ask(gw.agent, 'POST', '/mcp/yes', ping, 415, { headers: { ...takes, 'content-type': 'text/plain' } });
    await ask(gw.agent, 'GET', '/mcp/yes', undefined, 405, { headers: takes });
});

test('every operation but those without an end was held to the document', () => {
    const held = new Set([...seen].filter((one) => one.endsWith('200')).map((one) => one.split(' ')[0]));
    for (const operations of Object.values(document.paths))
        for (const one of Object.values(operations))
            assert.ok(held.has(one.operationId) || /^(proxy|stream|mcp(Get|Delete))/.test(one.operationId), one.operationId);
});

await run();
