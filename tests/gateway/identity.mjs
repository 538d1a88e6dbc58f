// Which requests to an API behind /proxy/ are the same action, and which never are.

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import process from 'node:process';
import zlib from 'node:zlib';
import { Raw, bytesOf } from './client.mjs';
import { Gateway, assert, assertProblem, newPath, run as semel } from './harness.mjs';
import { newOrder } from './shop.mjs';
import { eventually, run, test } from './tap.mjs';
import { Upstream } from './upstream.mjs';

const up = await Upstream.start();
const gw = await Gateway.start({
    config: {
        proxies: {
            api: { url: up.url },
            v1: { url: `${up.url}/v1` },
            listed: { url: up.url, identity_headers: ['X-Branch'], ignore_headers: ['X-Noise', 'Authorization'] },
            unkeyed: { url: up.url, client_key: 'ignore', idempotency: { header: 'Idempotency-Key', window: '24h' } },
            keyed: { url: up.url, idempotency: { header: 'Idempotency-Key', window: '24h' } },
            asked: { url: up.url, ignore_headers: ['X-Noise', 'Cookie', 'X-Api-Key'] },
            fields: { url: up.url },
            hides: { url: up.url },
            blind: { url: up.url },
            reads: { url: up.url },
            large: { url: up.url, timeout: '1s' },
            dear: { url: up.url, timeout: '1s' },
            guarded: { url: up.url, timeout: '1s' },
        },
    },
    contract: {
        version: 1,
        tools: {
            'proxy.reads': { class: 'read' },
            'proxy.hides': { class: 'write', key: { ignore: ['/body/at'] }, redact: ['/other_headers/x-branch'] },
            'proxy.blind': { class: 'write', key: { ignore: ['/path', '/method', '/headers', '/query'] } },
            'proxy.asked': { class: 'write', approval: {} },
            'proxy.large': { class: 'write', approval: { when: [{ field: '/form/amount', over: '50' }] } },
            'proxy.dear': { class: 'write', approval: { when: [{ field: '/body/amount', over: 50 }] } },
            'proxy.guarded': { class: 'write', approval: { when: [{ field: '/method', in: ['DELETE'] }, { field: '/path', matches: '/v1/transfers(/.*)?' }] } },
            'proxy.fields': { class: 'write', key: { fields: ['/body/order'] } },
        },
    },
});

const nobodyWaits = () => eventually('the gateway knows that the client is gone', async () => (await gw.metric(/^semel_requests_parked$/)) === 0);

// Sends a request, and says how often the API has been asked because of it.
let path = 0;
const fresh = () => `/ok/${++path}`;
async function send(target, { method = 'POST', body, headers = {}, proxy = 'api', who = gw.agent, typed } = {}) {
    const before = up.seen.length;
    const more = { 'semel-scope': 'shop/identity', ...headers };
    if (headers.authorization) more['semel-token'] = gw.texts.agent;
    const answer = await who.request(method, `/proxy/${proxy}${target}`, body, { headers: more, typed });
    return { answer, asked: up.seen.length - before, status: answer.status };
}
const replayed = ({ answer, asked }) => asked === 0 && answer.headers['idempotent-replayed'] === 'true';
const ran = ({ answer, asked }) => asked === 1 && answer.status === 200 && !answer.headers['idempotent-replayed'];

// A request whose method is sent as it is written.
async function lowercase(method, target) {
    const raw = await Raw.connect(gw.port);
    raw.write(bytesOf(method, target, { Authorization: `Bearer ${gw.texts.agent}` }));
    const text = await raw.all();
    raw.hangUp();
    const [head, body] = text.split('\r\n\r\n');
    const headers = Object.fromEntries(head.split('\r\n').slice(1).map((line) => line.toLowerCase().split(': ')));
    return { status: Number(head.split(' ')[1]), headers, text: body, json: JSON.parse(body) };
}

// What the ledger has of a request's body.
const sha256 = (body) => createHash('sha256').update(body).digest('hex');
async function shown({ answer }) {
    const { args } = (await gw.admin.get(`/v1/effects/${answer.headers['semel-effect']}`)).json;
    return Object.fromEntries(['form', 'body', 'body_sha256'].filter((name) => name in args).map((name) => [name, args[name]]));
}

// A form that some server may take for one with a large amount does not run unasked.
async function asksFor(body, headers, target = fresh()) {
    const { answer, asked } = await send(target, { proxy: 'large', body, headers });
    assertProblem(answer, 403, 'AWAITING_APPROVAL');
    assert.equal(asked, 0);
}

// One action twice with what differs: the second one's end.
async function pair(first, second, more = {}) {
    const target = fresh();
    const one = await send(target, { body: { n: 1 }, ...more, ...first });
    assert.ok(ran(one), one.answer.text);
    const two = await send(target, { body: { n: 1 }, ...more, ...second });
    return two;
}

test('method, path and naming headers count, whatever a contract ignores', async () => {
    const more = { proxy: 'blind', body: { order: newOrder() } };
    assert.ok(ran(await send('/ok/charge', more)));
    assert.ok(replayed(await send('/ok/charge?n=2', more)), 'a query may be ignored');
    assert.ok(ran(await send('/ok/refund', more)));
    assert.ok(ran(await send('/ok/charge', { ...more, method: 'PATCH' })));
    assert.ok(ran(await send('/ok/charge', { ...more, headers: { authorization: 'Bearer other' } })));
});

test('another credential is another action, however it is shown', async () => {
    for (const [one, two] of [
        [{ authorization: 'Bearer user-1' }, { authorization: 'Bearer user-2' }],
        [{ authorization: 'Basic YTpi' }, { authorization: 'Basic YTpj' }],
        [{ authorization: 'Bearer user-1' }, {}],
        [{ cookie: 'session=1' }, { cookie: 'session=2' }],
        [{ 'x-api-key': 'one' }, { 'x-api-key': 'two' }],
        [{ 'private-token': 'one' }, { 'private-token': 'two' }],
    ]) {
        assert.ok(ran(await pair({ headers: one }, { headers: two })), JSON.stringify(two));
        assert.ok(replayed(await pair({ headers: one }, { headers: one })), JSON.stringify(one));
    }
});

test('of a signed request access key, region and service count, not the signature', async () => {
    const signed = (key, date, signature, place = 'eu-west-1/dynamodb') => ({
        authorization: `AWS4-HMAC-SHA256 Credential=${key}/${date}/${place}/aws4_request, SignedHeaders=host;x-amz-date, Signature=${signature}`,
        'x-amz-date': `${date}T120000Z`, 'x-amz-security-token': `session-${signature}`,
        'amz-sdk-invocation-id': `i-${signature}`, 'amz-sdk-request': `attempt=${signature}`,
    });
    assert.ok(replayed(await pair({ headers: signed('AKIA1', '20261116', 'aa') }, { headers: signed('AKIA1', '20261117', 'bb') })));
    assert.ok(ran(await pair({ headers: signed('AKIA1', '20261116', 'aa') }, { headers: signed('AKIA2', '20261116', 'aa') })));
    for (const place of ['us-east-1/dynamodb', 'eu-west-1/sqs'])
        assert.ok(ran(await pair({ headers: signed('AKIA1', '20261116', 'aa') }, { headers: signed('AKIA1', '20261116', 'aa', place) })), place);
    const own = signed('AKIA2', '20261116', 'aa').authorization.slice('AWS4-HMAC-SHA256 '.length);
    for (const before of ['XCredential=AKIA1/20261116/eu-west-1/dynamodb/aws4_request, ', 'Credential=AKIA1/20261116/eu-west-1/dynamodb/aws4_request, '])
        assert.ok(ran(await pair({ headers: signed('AKIA1', '20261116', 'aa') },
            { headers: { ...signed('AKIA1', '20261116', 'aa'), authorization: `AWS4-HMAC-SHA256 ${before}${own}` } })), before);
    const more = (text) => ({ ...signed('AKIA1', '20261116', 'aa'), authorization: `${signed('AKIA1', '20261116', 'aa').authorization}${text}` });
    assert.ok(ran(await pair({ headers: more('') }, { headers: more(', User=ann') })));
    assert.ok(ran(await pair({ headers: more(', User=bob') }, { headers: more(', User=ann') })));
});

test('a header that names the account or the operation makes another action', async () => {
    for (const [name, one, two] of [
        ['stripe-account', 'acct_1', 'acct_2'], ['stripe-context', 'a', 'b'], ['x-amz-target', 'Db.PutItem', 'Db.DeleteItem'],
        ['x-amz-acl', 'private', 'public-read'], ['x-http-method-override', 'DELETE', 'PATCH'], ['openai-organization', 'o1', 'o2'],
        ['anthropic-workspace-id', 'w1', 'w2'], ['anthropic-user-profile-id', 'p1', 'p2'],
        ['if-match', '"1"', '"2"'], ['if-range', '"1"', '"2"'], ['range', 'bytes=0-511', 'bytes=512-1023'], ['content-type', 'application/json', 'application/merge-patch+json'], ['x-secret', 'a', 'b'],
        ['x-forwarded-user', 'ann', 'bob'], ['x-forwarded-email', 'a@x', 'b@x'], ['x-forwarded-host', 'a.x', 'b.x'],
    ]) {
        assert.ok(ran(await pair({ headers: { [name]: one } }, { headers: { [name]: two } })), name);
        assert.ok(replayed(await pair({ headers: { [name]: one } }, { headers: { [name]: one } })), name);
        assert.equal(up.seen.at(-1).headers[name], one, 'and it is passed on');
        if (name !== 'content-type') assert.ok(ran(await pair({ headers: { [name]: one } }, {})), `${name} or not`);
    }
    assert.ok(ran(await pair({ headers: { 'stripe-account': 'acct_1' } }, { headers: { Stripe_Account: 'acct_1' } })), 'as CGI servers read it');
});

test('headers that only some servers tell apart never make one action of two', async () => {
    const header = (name, value) => ({ headers: { [name]: value } });
    // One value with a comma, or two headers: some servers read only one of two.
    assert.ok(ran(await pair(header('stripe-account', 'a, b'), header('stripe-account', ['a', 'b']))));
    assert.ok(replayed(await pair(header('stripe-account', ['a', 'b']), header('stripe-account', ['a', 'b']))));
    assert.ok(ran(await pair(header('x-api-key', 'a, b'), header('x-api-key', ['a', 'b']))));
    assertProblem((await pair(header('x-branch', 'a, b'), header('x-branch', ['a', 'b']))).answer, 422, 'KEY_CONFLICT', /x-branch/);
    // The host of Forwarded may choose a site. Whose address it is for changes from try to try.
    assert.ok(ran(await pair(header('forwarded', 'for=1.2.3.4;host=a.example'), header('forwarded', 'for=1.2.3.4;host=b.example'))));
    assert.ok(ran(await pair({}, header('forwarded', ['for=1.2.3.4', 'HOST="b.example"']))));
    assert.ok(replayed(await pair(header('forwarded', 'for=1.2.3.4'), header('forwarded', 'for=_ghost1;proto=https'))));
    // A text that looks like the digest of another value.
    const odd = '\xff';
    const shown = await send(fresh(), { body: { n: 1 }, ...header('stripe-account', odd) });
    const digest = (await gw.admin.get(`/v1/effects/${shown.answer.headers['semel-effect']}`)).json.args.headers['stripe-account'];
    assert.match(digest, /^sha256:/);
    assert.ok(ran(await pair(header('stripe-account', odd), header('stripe-account', digest))));
    assertProblem((await send('/ok', { body: {}, headers: { 'X-Branch': 'a', X_Branch: 'b' } })).answer, 400, 'BAD_ARGUMENTS', /take for one/);
});

test('what clients and their retries add is the same action, always', async () => {
    const names = ['user-agent', 'date', 'x-request-id', 'x-correlation-id', 'traceparent', 'tracestate', 'baggage', 'b3', 'x-b3-traceid',
        'x-stainless-retry-count', 'x-stainless-read-timeout', 'amz-sdk-request', 'x-amz-date', 'x-amzn-trace-id', 'x-forwarded-for', 'forwarded',
        'x-stripe-client-telemetry', 'x-stripe-client-user-agent', 'sec-fetch-mode', 'sentry-trace', 'x-datadog-trace-id', 'x-trace-id', 'x-envoy-attempt-count', 'uber-trace-id',
        'cf-ray', 'accept-encoding'];
    for (const name of names)
        assert.ok(replayed(await pair({ headers: { [name]: 'one' } }, { headers: { [name]: 'two' } })), name);
    const many = Object.fromEntries(names.map((name) => [name, 'x']));
    assert.ok(replayed(await pair({}, { headers: many })), 'all of them, or none');
});

test('another value of any other header is a conflict that names it, and nothing runs', async () => {
    for (const [one, two] of [[{ 'x-branch': 'a' }, { 'x-branch': 'b' }], [{ 'x-branch': 'a' }, {}], [{}, { 'x-branch': 'b' }],
        [{ 'x-branch': ['a', 'b'] }, { 'x-branch': ['b', 'a'] }], [{ accept: 'text/csv' }, { accept: 'application/*' }],
        [{ 'cache-control': 'no-cache' }, { 'cache-control': 'max-age=9' }], [{ priority: 'u=1' }, { priority: 'urgent' }]]) {
        const { answer, asked } = await pair({ headers: one }, { headers: two });
        assertProblem(answer, 422, 'KEY_CONFLICT', new RegExp(`the header ${Object.keys({ ...one, ...two })[0]},`));
        assert.match(answer.json.corrective_action, /identity_headers.*ignore_headers/);
        assert.equal(asked, 0);
        assert.ok(replayed(await pair({ headers: one }, { headers: one })));
    }
});

test('a header that must match is compared or refused, also where the contract redacts it', async () => {
    const of = (branch, at) => ({ headers: { 'x-branch': branch }, body: { n: 1, at }, proxy: 'hides' });
    for (const at of [1, 2]) {
        const { answer, asked } = await pair(of('a', 1), of('b', at));
        assertProblem(answer, 422, 'KEY_CONFLICT');
        assert.equal(asked, 0);
    }
    assert.ok(replayed(await pair(of('a', 1), of('a', 1))));
});

test('identity_headers and ignore_headers decide', async () => {
    const of = (headers) => ({ headers, proxy: 'listed' });
    assert.ok(ran(await pair(of({ 'x-branch': 'a' }), of({ 'X-Branch': 'b' }))));
    assert.ok(replayed(await pair(of({ 'x-noise': 'a' }), of({ 'x-noise': 'b' }))));
    assert.ok(replayed(await pair(of({ authorization: 'Bearer 1' }), of({ authorization: 'Bearer 2' }))), 'a renewed token');
    assert.equal((await send(fresh(), { ...of({ 'x-noise': 'kept' }), body: {} })).status, 200);
    assert.equal(up.seen.at(-1).headers['x-noise'], 'kept', 'and are passed on');
});

test('JSON counts by value only if it is labelled as JSON', async () => {
    const [one, two] = ['{"a":1,"b":2}', '{ "b":2.0, "a":1 }'];
    const as = (type) => pair({ body: one, headers: { 'content-type': type } }, { body: two, headers: { 'content-type': type } });
    for (const type of ['application/json', 'application/json; charset=UTF-8', 'application/vnd.api+json', 'application/x-amz-json-1.1'])
        assert.ok(replayed(await as(type)), type);
    for (const type of ['text/plain', 'application/octet-stream', 'application/json; charset=utf-16', 'text/json2'])
        assert.ok(ran(await as(type)), type);
});

const urlencoded = { 'content-type': 'application/x-www-form-urlencoded' };
test('a form counts by its fields', async () => {
    const as = (one, two) => pair({ body: one, headers: urlencoded }, { body: two, headers: urlencoded });
    for (const [one, two] of [['a=1&b=2', 'b=2&a=1'], ['a=x+y', 'a=x%20y'], ['a=%41', 'a=A'], ['a=1&&b=2', 'a=1&b=2']])
        assert.ok(replayed(await as(one, two)), two);
    for (const [one, two] of [['a=1', 'a=2'], ['a=1&a=2', 'a=2&a=1'], ['a=1&a=2', 'a=1'], ['a', 'a='], ['a=1', 'A=1'], ['a=%ff', 'a=%fe'], ['a=%zz', 'a=zz'], ['a[]=1', 'a=1'],
        ['a=1;b=2', 'b=2;a=1'], ['a=1;b=2', 'a=1;b=3'], ['a=1&a[]=2', 'a[]=2&a=1'], ['a=1&A=2', 'A=2&a=1'], ['i[][n]=1&i[][p]=2', 'i[][p]=2&i[][n]=1']])
        assert.ok(ran(await as(one, two)), two);
});

function multipart(boundary, parts) {
    const pieces = parts.map(([name, value, more = '', head = '']) =>
        Buffer.concat([Buffer.from(`--${boundary}\r\nContent-Disposition: form-data; name="${name}"${more}\r\n${head}\r\n`), Buffer.from(value), Buffer.from('\r\n')]));
    return { body: Buffer.concat([...pieces, Buffer.from(`--${boundary}--\r\n`)]), headers: { 'content-type': `multipart/form-data; boundary=${boundary}` } };
}

test('multipart counts by its parts: a new boundary is nothing, a file counts by its bytes', async () => {
    const file = (bytes, name = 'a.bin', type = 'application/octet-stream') =>
        ['file', bytes, `; filename="${name}"`, `Content-Type: ${type}\r\n`];
    const base = [['order', '7'], file(Buffer.from([1, 2, 3]))];
    assert.ok(replayed(await pair(multipart('one', base), multipart('two', base))));
    assert.ok(replayed(await pair(multipart('one', base), multipart('two', [base[1], base[0]]))), 'the order of names is nothing');
    for (const other of [
        [['order', '8'], base[1]], [base[0]], [base[0], file(Buffer.from([1, 2, 4]))], [base[0], file(Buffer.from([1, 2, 3]), 'b.bin')],
        [base[0], file(Buffer.from([1, 2, 3]), 'a.bin', 'image/png')], [...base, base[0]], [['order', '7', '; x="1"'], base[1]],
        [['order', '7', '', 'Content-Transfer-Encoding: base64\r\n'], base[1]],
    ]) assert.ok(ran(await pair(multipart('one', base), multipart('two', other))), JSON.stringify(other));
    assert.ok(ran(await pair(multipart('one', [['a', '1'], ['a[]', '2']]), multipart('two', [['a[]', '2'], ['a', '1']]))), 'names that some servers take for one');
    // Other parameters of the type count, and the boundary does where the parts could not be read.
    const typed = (boundary, more) => ({ ...multipart(boundary, base), headers: { 'content-type': `multipart/form-data; boundary=${boundary}${more}` } });
    assert.ok(replayed(await pair(typed('one', '; charset=utf-8'), typed('two', '; charset=utf-8'))));
    for (const more of ['; charset=utf-8', '; x=1']) assert.ok(ran(await pair(typed('one', ''), typed('one', more))), more);
    assert.ok(ran(await pair(typed('one', '; charset=utf-8'), typed('one', '; charset=utf-7'))));
    const loose = (value) => multipart('one', [['a', `1\n--one\nContent-Disposition: form-data; name="b"\n\n${value}`]]);
    const seen = await send(fresh(), loose('x'));
    const args = (await gw.admin.get(`/v1/effects/${seen.answer.headers['semel-effect']}`)).json.args;
    assert.ok(args.body_sha256 && !args.form, 'a boundary behind a bare line feed ends a part for some servers');
    const both = Buffer.concat([multipart('one', base).body, multipart('two', [['order', '8']]).body]);
    const as = (boundary) => ({ body: both, headers: { 'content-type': `multipart/form-data; boundary=${boundary}` } });
    assert.ok(ran(await pair(as('one'), as('two'))), 'one body, two boundaries');
    // What cannot be read as multipart counts by its bytes.
    const broken = (boundary) => ({ body: `--${boundary}\r\nno head`, headers: { 'content-type': `multipart/form-data; boundary=${boundary}` } });
    assert.ok(replayed(await pair(broken('one'), broken('one'))));
    assert.ok(ran(await pair(broken('one'), broken('two'))));
});

test('multipart with parameters that only some servers read counts by its bytes', async () => {
    const inner = multipart('C', [['amount', '99999']]).body;
    const typed = (type, parts) => ({ body: multipart('B', parts).body, headers: { 'content-type': type } });
    const plain = 'multipart/form-data; boundary=B';
    const forms = [
        typed(plain, [['x', '99999', "; name*=utf-8''amount"], ['amount', '1']]),
        typed(plain, [['x', '99999', '; name*0=amo; name*1=unt'], ['amount', '1']]),
        typed(plain, [['=?utf-8?Q?amount?=', '99999'], ['amount', '1']]),
        typed(`${plain}; boundary*=utf-8''C`, [['amount', '1'], ['note', `\r\n${inner}`]]),
        typed(`${plain}; x=1`, [['amount', '1']]),
        { body: 'amount=1', headers: { 'content-type': `${urlencoded['content-type']}; x*=utf-8''y` } },
    ];
    for (const form of forms) {
        const sent = await send(fresh(), form);
        assert.ok(ran(sent), sent.answer.text);
        assert.deepEqual(await shown(sent), { body_sha256: sha256(form.body) });
    }
    await Promise.all(forms.map((form) => asksFor(form.body, form.headers)));
    assert.ok(ran(await send(fresh(), { proxy: 'large', ...typed(`${plain}; charset=utf-8`, [['amount', '1']]) })));
});

test('gzip counts by what it holds, and arrives as it was sent', async () => {
    const pack = (text, level) => ({ body: zlib.gzipSync(text, { level }), headers: { 'content-type': 'application/json', 'content-encoding': 'gzip' } });
    const [one, two] = [pack('{"a":1,"b":2}', 9), pack('{"b":2,"a":1}', 0)];
    assert.ok(replayed(await pair(one, two)));
    assert.equal(up.seen.at(-1).headers['content-encoding'], 'gzip');
    assert.ok(replayed(await pair(one, { body: '{"a":1,"b":2}' })), 'packed or not');
    assert.ok(ran(await pair(one, pack('{"a":1,"b":3}', 9))));
    const bomb = pack(Buffer.alloc(64 << 20, 0x20), 9);
    assert.ok(ran(await pair(one, bomb)), 'a bomb counts by its bytes');
    const torn = { ...one, body: one.body.subarray(0, one.body.length - 4) };
    assert.ok(ran(await pair(one, torn)));
    // The name of a file has room for text that nobody compares.
    const named = Buffer.concat([one.body.subarray(0, 3), Buffer.from([8]), one.body.subarray(4, 10), Buffer.from('a.json\0'), one.body.subarray(10)]);
    assert.ok(ran(await pair(one, { ...one, body: named })));
});

test('a form in a wrapping counts by its bytes, for some servers read the wrapping', async () => {
    const form = 'amount=1';
    const signed = { 'content-encoding': 'aws-chunked', 'x-amz-content-sha256': 'STREAMING-AWS4-HMAC-SHA256-PAYLOAD' };
    const wrappings = [
        [zlib.gzipSync(form), { 'content-encoding': 'gzip' }],
        [`8;chunk-signature=1&amount=99999&z=\r\n${form}\r\n0;chunk-signature=0\r\n\r\n`, signed],
        [`8;chunk-signature=1\r\n${form}\r\n0;chunk-signature=0\r\n\r\n`, signed],
    ];
    for (const [body, headers] of wrappings)
        for (const type of [urlencoded['content-type'], 'multipart/form-data; boundary=one']) {
            const sent = await send(fresh(), { body, headers: { 'content-type': type, ...headers } });
            assert.ok(ran(sent), sent.answer.text);
            assert.deepEqual(await shown(sent), { body_sha256: sha256(body) });
            await asksFor(body, { 'content-type': type, ...headers });
        }
    await asksFor('amount=51', urlencoded);
    for (const form of ['?amount=51&amount=1', '#amount=51&amount=1', '\ufeffamount=51&amount=1', '%EF%BB%BFamount=51&amount=1', 'a=1&+amount=51&amount=1', '%09amount=51&amount=1', 'amount+=51&amount=1'])
        await asksFor(form, urlencoded);
    assert.ok(ran(await send(fresh(), { proxy: 'large', body: form, headers: urlencoded })));
});

test('a form with a name that is also in the query counts by its bytes', async () => {
    const parts = multipart('one', [['amount', '1']]);
    const forms = [['amount=99999', { body: 'amount=1', headers: urlencoded }], ['x=1&Amoun%74=99999', { body: 'amount=1', headers: urlencoded }], ['amount=99999', parts]];
    for (const [query, form] of forms) {
        const sent = await send(`${fresh()}?${query}`, form);
        assert.ok(ran(sent), sent.answer.text);
        assert.deepEqual(await shown(sent), { body_sha256: sha256(form.body) });
    }
    await Promise.all(forms.map(([query, form]) => asksFor(form.body, form.headers, `${fresh()}?${query}`)));
    assert.ok(ran(await send(`${fresh()}?amounts=99999`, { proxy: 'large', body: 'amount=1', headers: urlencoded })));
});

test('JSON with a name that is also in the query counts by its bytes', async () => {
    const body = JSON.stringify({ amount: 1, card: { number: 4 } });
    const headers = { 'content-type': 'application/json' };
    for (const query of ['amount=99999', 'x=1&AMOUNT=99999', 'card%5Bnumber%5D=5', 'card[]=5', '%61mount']) {
        const target = `${fresh()}?${query}`;
        const sent = await send(target, { body, headers });
        assert.ok(ran(sent), sent.answer.text);
        assert.deepEqual(await shown(sent), { body_sha256: sha256(body) }, query);
        assert.ok(replayed(await send(target, { body, headers })));
        const { answer, asked } = await send(target, { body, headers, proxy: 'dear' });
        assertProblem(answer, 403, 'AWAITING_APPROVAL');
        assert.equal(asked, 0);
    }
    for (const query of ['amounts=1', 'number=5', 'a=amount', 'a[][b]=1', 'x]=2', '%FF=1', ''])
        assert.ok('body' in (await shown(await send(`${fresh()}?${query}`, { body, headers }))), query);
    assert.ok(ran(await send(`${fresh()}?page=1`, { body, headers, proxy: 'dear' })));
    const twins = JSON.stringify({ a: 1, A: 2 });
    assert.ok('body' in (await shown(await send(`${fresh()}?b=1`, { body: twins, headers }))), 'only the query clashes');
});

test('a request whose Connection takes away a header that decides is refused', async () => {
    for (const name of ['content-type', 'Content-Encoding', 'content-language', 'content-md5', 'x-amz-content-sha256', 'X-Amz-Date', 'stripe-account', 'if-match',
        'authorization', 'cookie', 'x-http-method-override', 'x-api-key'])
        for (const proxy of ['api', 'reads']) {
            const { answer, asked } = await send(fresh(), { proxy, body: {}, headers: { connection: `close,, ${name}` } });
            assertProblem(answer, 400, 'BAD_ARGUMENTS', /Connection lists a header/);
            assert.equal(asked, 0);
        }
    assertProblem((await send(fresh(), { proxy: 'listed', body: {}, headers: { connection: 'close, x-branch' } })).answer, 400, 'BAD_ARGUMENTS');
    for (const connection of ['close', 'keep-alive, TE, X-Hop'])
        assert.ok(ran(await send(fresh(), { body: {}, headers: { connection, 'x-hop': '1' } })), connection);
    assert.equal(up.seen.at(-1).headers['x-hop'], undefined);
});

test('signed pieces count by what they hold only if the request says that they are signed', async () => {
    const pieces = (sizes, text, headers = {}) => ({
        body: `${sizes.map((n, i) => `${n.toString(16)};chunk-signature=${i}\r\n${text.slice(0, n)}\r\n`).join('')}0;chunk-signature=0\r\n\r\n`,
        headers: { 'content-encoding': 'aws-chunked', 'content-type': 'text/plain', ...headers },
    });
    const signed = { 'x-amz-content-sha256': 'STREAMING-AWS4-HMAC-SHA256-PAYLOAD' };
    assert.ok(replayed(await pair(pieces([2, 2], 'aaaa', signed), pieces([1, 3], 'aaaa', signed))));
    assert.ok(ran(await pair(pieces([2, 2], 'aaaa', signed), pieces([2, 3], 'aaaa', signed))));
    const one = pieces([2, 2], 'aaaa', signed);
    const then = (rest) => ({ ...one, body: one.body + rest });
    assert.ok(ran(await pair(then('b'), then('c'))), 'what follows them counts');
    const trailer = (text) => ({ ...one, body: one.body.replace(/\r\n$/, `${text}\r\n\r\n`) });
    assert.ok(replayed(await pair(trailer('x-amz-checksum-crc32:AAAA'), one)), 'a trailer of AWS does not');
    assert.ok(ran(await pair(pieces([2, 2], 'aaaa'), pieces([1, 3], 'aaaa'))), 'others may read the bytes as they are');
    for (const text of ['&b=', ' ', ';b=1', 'g']) {
        const more = { ...one, body: one.body.replace('chunk-signature=0', `chunk-signature=0${text}`) };
        assert.ok(ran(await pair(one, more)), `more than a signature: ${text}`);
    }
    assert.ok(ran(await pair(one, trailer('x-amz-checksum-crc32:&b=1'))), 'more than a sum');
});

test('a proxy with and without a slash at its end is one path if the API gets the same bytes', async () => {
    const order = newOrder();
    assert.ok(ran(await send('', { body: { order } })));
    assert.ok(replayed(await send('/', { body: { order } })), 'both are /');
    assert.ok(ran(await send('', { body: { order }, proxy: 'v1' })));
    assert.ok(ran(await send('/', { body: { order }, proxy: 'v1' })), '/v1 and /v1/ are two');
});

test("client_key: ignore takes the request's own identity; the API gets a key of ours", async () => {
    const keyed = (key, proxy = 'unkeyed') => ({ headers: { 'idempotency-key': key }, proxy });
    assert.ok(replayed(await pair(keyed('fresh-1'), keyed('fresh-2'))));
    assert.match(up.seen.at(-1).headers['idempotency-key'], /^[A-Za-z0-9_-]{43}$/);
    assert.ok(ran(await pair(keyed('fresh-1'), { ...keyed('fresh-1'), body: { n: 2 } })));
    assert.ok(ran(await pair(keyed('fresh-1', 'api'), keyed('fresh-2', 'api'))), 'honoured by default');
});

test('a key of the client with another credential or header is a conflict', async () => {
    const key = { 'idempotency-key': `own-${newOrder()}` };
    const target = fresh();
    assert.ok(ran(await send(target, { body: {}, headers: { ...key, authorization: 'Bearer 1' } })));
    for (const more of [{ authorization: 'Bearer 2' }, { authorization: 'Bearer 1', 'x-branch': 'b' }, { authorization: 'Bearer 1', 'stripe-account': 'a' }])
        assertProblem((await send(target, { body: {}, headers: { ...key, ...more } })).answer, 422, 'KEY_CONFLICT');
    assert.ok(replayed(await send(target, { body: {}, headers: { ...key, authorization: 'Bearer 1', 'user-agent': 'other' } })));
});

test('fields of a contract choose among body and query; method, path and account always count', async () => {
    const order = newOrder();
    const of = (more = {}) => ({ proxy: 'fields', body: { order, note: 1 }, ...more });
    const form = { ...of(), body: 'amount=5', headers: urlencoded };
    const one = fresh();
    assert.ok(ran(await send(one, of())));
    assert.ok(replayed(await send(one, of({ body: { order, note: 2 } }))));
    assert.ok(ran(await send(fresh(), of())), 'another path');
    assert.ok(ran(await send(one, of({ method: 'PUT' }))), 'another method');
    assert.ok(ran(await send(one, of({ headers: { 'stripe-account': 'acct_2' } }))), 'another account');
    assertProblem((await send(one, of({ headers: { 'x-branch': 'b' } }))).answer, 422, 'KEY_CONFLICT');
    assertProblem((await send(one, form)).answer, 400, 'BAD_ARGUMENTS');
});

test('a body that counts by its bytes is part of every key', async () => {
    const target = fresh();
    const of = (order, query = '?order=eq.1') => send(`${target}${query}`, { proxy: 'fields', body: { order, note: 1 } });
    assert.ok(ran(await of('A')));
    assert.ok(replayed(await of('A')));
    assert.ok(ran(await of('B')), 'although its field is not seen');
    const text = (body) => send(target, { proxy: 'fields', body, headers: { 'content-type': 'text/plain' } });
    assert.ok(ran(await text('a')));
    assert.ok(ran(await text('b')));
    assert.ok(replayed(await text('a')));
});

test('numbers that a double does not hold are told apart, by their bytes', async () => {
    const headers = { 'content-type': 'application/json' };
    const of = (n, target) => send(target, { body: `{"amount":${n}}`, headers });
    for (const [one, two] of [['12345678901234567.89', '12345678901234567.90'], ['0.1000000000000000055', '0.1'], ['1e400', '2e400']]) {
        const target = fresh();
        assert.ok(ran(await of(one, target)));
        assert.ok(ran(await of(two, target)), `${one} ${two}`);
        assert.ok(replayed(await of(one, target)));
    }
    const target = fresh();
    assert.ok(ran(await of('0.30000000000000004', target)));
    assert.ok(replayed(await of('3.0000000000000004e-1', target)), 'what a double holds counts by value');
});

test('a request that servers may read as another one asks, whatever the conditions of its approval say', async () => {
    const asks = async (method, target, { headers = {}, body = { n: ++path } } = {}) => {
        const { answer, asked } = await send(target, { proxy: 'guarded', method, body, headers });
        assert.equal(asked, 0, `${method} ${target}`);
        assertProblem(answer, 403, 'AWAITING_APPROVAL');
    };
    await Promise.all([
        asks('DELETE', '/ok/1'),
        asks('POST', '/ok/2', { headers: { 'x-http-method-override': 'DELETE' } }),
        asks('POST', '/ok/3?_method=DELETE'),
        asks('POST', '/ok/4', { body: { _method: 'DELETE' } }),
        asks('POST', '/ok/5', { body: '_method=DELETE', headers: urlencoded }),
        asks('POST', '/ok/6', { body: '?_method=DELETE', headers: urlencoded }),
        asks('POST', '/ok/7', { body: '\ufeff_method=DELETE', headers: urlencoded }),
        asks('POST', '/ok/8', { body: '_method=DELETE;a=1', headers: urlencoded }),
        asks('POST', '/ok/9??_method=DELETE'),
        asks('POST', '/ok/10??amount=1'),
        asks('POST', '/ok/11?a=1&%EF%BB%BFamount=1'),
        asks('POST', '/ok/12?+amount=1'),
        ...['/v1/transfers', '/v1//transfers', '//v1/transfers', '/v1/transfers;a=1', '/v1%2Ftransfers', '/v1/transfers%2F1', '/v1%5ctransfers'].map((at) => asks('POST', at)),
    ]);
    for (const at of ['/v1/%74ransfers', '/v1/transfer%73', '/v1/%31'])
        assertProblem((await send(at, { proxy: 'guarded', body: {} })).answer, 400, 'BAD_ARGUMENTS');
    assert.ok(ran(await send(fresh(), { proxy: 'guarded', body: {} })));
    assertProblem(await lowercase('delete', '/proxy/guarded/ok/6'), 400, 'BAD_ARGUMENTS', /lowercase/);
});

test('no contract makes a read of a method that writes', async () => {
    for (const method of ['PUT', 'PATCH', 'DELETE', 'MOVE']) {
        const { answer, asked } = await send('/ok', { proxy: 'reads', method, body: {} });
        assertProblem(answer, 422, 'BAD_ARGUMENTS', /only POST/);
        assert.equal(asked, 0);
    }
    for (const method of ['PROPFIND', 'REPORT', 'SEARCH'])
        for (let n = 0; n < 2; n++) assert.equal((await send('/ok', { method })).asked, 1, `${method} passes`);
});

test('methods of WebDAV set what their path names', async () => {
    const target = fresh();
    for (const method of ['MKCOL', 'DELETE', 'MKCOL', 'LOCK', 'UNLOCK', 'LOCK']) assert.ok(ran(await send(target, { method })), method);
    assert.ok(replayed(await send(target, { method: 'LOCK' })));
    const to = (destination) => send(target, { method: 'MOVE', headers: { destination } });
    assert.ok(ran(await to('/a')));
    assert.ok(ran(await to('/b')), 'another place');
});

test('a packed file is not the file, and packing it anew is the same action', async () => {
    const put = (body, target, encoding) => send(target, { method: 'PUT', body, headers: { 'content-type': 'application/octet-stream', ...(encoding ? { 'content-encoding': encoding } : {}) } });
    const target = fresh();
    assert.ok(ran(await put('hello', target)));
    assert.ok(ran(await put(zlib.gzipSync('hello', { level: 9 }), target, 'gzip')));
    assert.ok(replayed(await put(zlib.gzipSync('hello', { level: 0 }), target, 'gzip')));
    assert.ok(ran(await put('hello', target)), 'it was overwritten');
});

test('another signature of the same signer is the same action', async () => {
    for (const scheme of ['AWS4-HMAC-SHA256', 'AWS4-ECDSA-P256-SHA256', 'GOOG4-HMAC-SHA256']) {
        const of = (key, day, signature) => ({ headers: { authorization: `${scheme} Credential=${key}/${day}/eu/storage/x_request, SignedHeaders=host, Signature=${signature}` } });
        assert.ok(replayed(await pair(of('K1', '20260101', 'aa'), of('K1', '20260102', 'bb'))), scheme);
        assert.ok(ran(await pair(of('K1', '20260101', 'aa'), of('K2', '20260101', 'aa'))), scheme);
    }
});

test('an approved request is sent with all that its client has signed', async () => {
    const target = fresh();
    const headers = { 'semel-scope': 'shop/identity', 'semel-token': gw.texts.agent, 'x-request-id': 'signed', 'x-forwarded-for': '10.0.0.1',
        authorization: 'AWS4-HMAC-SHA256 Credential=K/20260101/eu/s3/aws4_request, SignedHeaders=host;x-request-id, Signature=aa' };
    const first = gw.agent.post(`/proxy/asked${target}`, { amount: 3 }, { headers });
    const item = await eventually('it waits', async () =>
        (await gw.approver.get('/v1/approvals')).json.items.find((one) => JSON.stringify(one).includes(`"${target}"`)));
    assert.equal((await gw.approver.post(`/v1/effects/${item.effect}/approve`, { request: item.request })).status, 200);
    assert.equal((await first).status, 200);
    const sent = up.seen.find((entry) => entry.path === target).headers;
    assert.deepEqual([sent['x-request-id'], sent['x-forwarded-for']], ['signed', undefined]);
});

test('an approval covers all that is sent, and the approver sees it', async () => {
    const target = fresh();
    const ask = (at, headers, options = {}) =>
        gw.agent.post(`/proxy/asked${at}`, { amount: 1 }, { headers: { 'semel-scope': 'shop/identity', ...headers }, ...options });
    const first = ask(`${target}?q=1`, { 'x-account': 'SAVINGS', 'x-noise': 'a', 'stripe-account': 'acct_1' });
    const waits = (at, mark = '') => eventually('it waits', async () =>
        (await gw.approver.get('/v1/approvals')).json.items.find((one) => {
            const text = JSON.stringify(one);
            return text.includes(`"${at}"`) && text.includes(mark);
        }));
    const item = await waits(target);
    const text = JSON.stringify(item);
    for (const word of ['SAVINGS', 'acct_1', '"q=1"', '"POST"']) assert.ok(text.includes(word), `${word} in ${text}`);
    assert.ok(!text.includes('x-noise'), 'what is ignored is not sent');
    const before = up.seen.length;
    const approved = await gw.approver.post(`/v1/effects/${item.effect}/approve`, { request: item.request });
    assert.equal(approved.status, 200, approved.text);
    assert.equal((await first).status, 200);
    assert.equal(up.seen.length, before + 1);
    assert.equal(up.seen.at(-1).headers['x-account'], 'SAVINGS');
    assert.equal(up.seen.at(-1).headers['x-noise'], undefined);

    // Approved for one, asked with another: it does not run. Each is left once somebody is asked for it.
    const second = fresh();
    const leave = async (headers, mark) => {
        const abort = new AbortController();
        const request = ask(second, headers, { signal: abort.signal }).catch(() => null);
        const found = await Promise.race([request, waits(second, mark)]);
        abort.abort();
        await nobodyWaits();
        return found;
    };
    const waiting = await leave({ 'x-account': 'A', 'x-api-key': '1' }, '"x-account":"A"');
    assert.equal((await gw.approver.post(`/v1/effects/${waiting.effect}/approve`, { request: waiting.request })).status, 200);
    const count = up.seen.length;
    assertProblem(await leave({ 'x-account': 'TREASURY', 'x-api-key': '1' }, 'TREASURY'), 422, 'KEY_CONFLICT', /x-account/);
    assert.ok((await leave({ 'x-account': 'A', 'x-api-key': '1', 'x-http-method-override': 'DELETE' }, '"DELETE"')).request);
    const other = await leave({ 'x-account': 'A', 'x-api-key': '2' }, '"x-account":"A"');
    assert.notEqual(other.request, waiting.request, 'an ignored credential is sent, so the approval is for it');
    assert.equal(up.seen.length, count);
});

test('an approval ends although ignored headers vary, for they are not sent', async () => {
    const target = fresh();
    const ask = (n, signal) => gw.agent.post(`/proxy/asked${target}`, { amount: 2 },
        { headers: { 'semel-scope': 'shop/identity', 'x-noise': `n-${n}`, cookie: `sid=${n}`, 'x-api-key': 'same',
            'x-forwarded-for': `10.0.0.${n}`, 'x-request-id': `r-${n}`, 'user-agent': `agent/${n}` }, signal });
    const waits = () => eventually('it waits', async () =>
        (await gw.approver.get('/v1/approvals')).json.items.find((one) => JSON.stringify(one).includes(`"${target}"`)));
    const abort = new AbortController();
    const left = ask(1, abort.signal).catch(() => null);
    const item = await waits();
    abort.abort();
    await left;
    await nobodyWaits();
    assert.equal((await gw.approver.post(`/v1/effects/${item.effect}/approve`, { request: item.request })).status, 200);
    const before = up.seen.length;
    const done = await ask(2);
    assert.equal(done.status, 200, done.text);
    assert.equal(up.seen.length, before + 1);
    const { headers } = up.seen.at(-1);
    assert.deepEqual([headers['x-noise'], headers.cookie, headers['x-api-key']], [undefined, undefined, 'same']);
    assert.deepEqual([headers['x-forwarded-for'], headers['x-request-id'], headers['user-agent']], [undefined, undefined, 'agent/2'],
        'what only says how the request came here is not sent either');
    assert.equal((await ask(3)).headers['idempotent-replayed'], 'true');
});

test('a read that a header makes a write of is refused', async () => {
    assert.equal((await send('/ok', { proxy: 'reads', body: {} })).answer.headers['semel-effect'], undefined);
    for (const name of ['X-HTTP-Method-Override', 'X_Method_Override'])
        assertProblem((await send('/ok', { proxy: 'reads', body: {}, headers: { [name]: 'DELETE' } })).answer, 400, 'BAD_ARGUMENTS');
});

test('a read that a field makes a write of is refused', async () => {
    const refuses = async (target, options = {}) => {
        const { answer, asked } = await send(target, { proxy: 'reads', ...options });
        if (options.method !== 'HEAD') assertProblem(answer, 400, 'BAD_ARGUMENTS', /another method/);
        assert.equal(answer.status, 400);
        assert.equal(asked, 0);
    };
    for (const query of ['_method=DELETE', 'a=1&_method=put', '%5Fm%65thod=DELETE', 'a=1;_method=DELETE', '.method=DELETE', '+_method=DELETE', '?_method=DELETE', '%EF%BB%BF_method=DELETE', '?X-HTTP-Method-Override=DELETE', '_method%5B%5D=DELETE', 'X-HTTP-Method-Override=DELETE'])
        for (const method of ['GET', 'HEAD', 'POST']) await refuses(`/ok?${query}`, { method });
    const json = (body, type = 'application/json') => ({ body, headers: { 'content-type': type } });
    const bodies = [
        json('?_method=DELETE', urlencoded['content-type']), json('\ufeff_method=DELETE', urlencoded['content-type']),
        json(`${'%20'.repeat(99)}_method=DELETE`, urlencoded['content-type']), json(`${'\ufeff'.repeat(99)}_method=DELETE`, urlencoded['content-type']),
        json('_method=DELETE', urlencoded['content-type']), json('a=1;_method=DELETE', urlencoded['content-type']), json('a=1&a[]=2&%5Fmethod=DELETE', urlencoded['content-type']),
        json('{"_method":"DELETE"}'), json('{"a":1,"a":2,"\\u005fmethod":"DELETE"}'), json('{"_method":"DELETE"}', 'application/vnd.api+json'), json('{"_method":"DELETE"} '.padEnd(900_000)),
        multipart('one', [['_method', 'DELETE']]), multipart('one', [['_method', 'DELETE'], ['a', '1'], ['a[]', '1']]),
        { body: zlib.gzipSync('{"_method":"DELETE"}'), headers: { 'content-type': 'application/json', 'content-encoding': 'gzip' } },
        { body: zlib.deflateSync('{"_method":"DELETE"}'), headers: { 'content-type': 'application/json', 'content-encoding': 'deflate' } },
        json(Buffer.from('{"_method":"DELETE"}', 'utf16le'), 'application/json; charset=utf-16'),
    ];
    for (const body of bodies) await refuses('/ok', body);
    const parted = (more, name = 'x') => ({ ...multipart('one', [[name, 'DELETE', more]]), headers: { 'content-type': 'multipart/form-data; boundary=one' } });
    for (const body of [parted("; name*=utf-8''_method"), parted("; name*=utf-8''%5Fmethod"), parted('; name*0=_met; name*1=hod'), parted("; name ='_method'"), parted('', '=?utf-8?Q?=5Fmethod?=')])
        await refuses('/ok', body);
    await refuses('/ok', { method: 'GET', ...bodies[0] });
    // Other names pass, and so does what is said about the name.
    for (const target of ['/ok?method=x', '/ok?payment_method=card&_methods=1'])
        for (const method of ['GET', 'POST']) assert.equal((await send(target, { proxy: 'reads', method })).asked, 1, target);
    const odd = (text) => json(`{"a":1,"a":2,"text":${JSON.stringify(text)}}`);
    for (const body of [json('{"tools":[{"_method":"DELETE"}]}'), json('method=x&payment_method=y', urlencoded['content-type']), odd('the field "_method" is one'), json('_method=1', 'text/plain')])
        assert.equal((await send('/ok', { proxy: 'reads', ...body })).asked, 1, String(body.body));
});

test('a read whose body some server takes for a form that names a method is refused', async () => {
    const form = '_method=DELETE&x=1';
    const mixed = { ...multipart('one', [['_method', 'DELETE']]), headers: { 'content-type': 'multipart/mixed; boundary=one' } };
    for (const one of [
        { body: form }, { body: form, headers: { 'content-type': '' } }, { body: form, headers: { 'content-type': 'none' } },
        { body: form, headers: { 'content-type': 'text/plain', connection: 'close, content-type' } }, mixed,
        { body: mixed.body, headers: { 'content-type': 'multipart/related; boundary=one' } },
        { body: zlib.gzipSync('q=1'), headers: { ...urlencoded, 'content-encoding': 'gzip' } }, { body: zlib.gzipSync('q=1'), headers: { 'content-encoding': 'gzip' } },
    ]) {
        const { answer, asked } = await send('/ok', { proxy: 'reads', typed: false, ...one });
        assertProblem(answer, 400, 'BAD_ARGUMENTS');
        assert.equal(asked, 0);
    }
    for (const one of [{ body: 'q=1' }, { body: Buffer.from([0, 1, 2]) }, { ...mixed, body: multipart('one', [['q', '1']]).body }])
        assert.equal((await send('/ok', { proxy: 'reads', typed: false, ...one })).asked, 1, String(one.body));
});

test('a secret in the query is stored nowhere, and still counts', async () => {
    const secret = `hush-${newOrder()}`;
    const names = ['access_token', 'api_key', 'password', 'key', 'sig', 'X-Amz-Signature', 'client%5Fsecret', 'user[password]'];
    const target = `${fresh()}?page=2&${names.map((name) => `${name}=${secret}`).join('&')};auth=${secret}&empty`;
    const first = await send(target, { body: { n: 1 } });
    assert.ok(ran(first));
    assert.ok(up.seen.at(-1).raw.includes(secret), 'the API gets it');
    assert.ok(replayed(await send(target, { body: { n: 1 } })));
    assert.ok(ran(await send(target.replace(secret, 'hush-other'), { body: { n: 1 } })), 'another secret is another action');
    const effect = first.answer.headers['semel-effect'];
    const shown = (await gw.admin.get(`/v1/effects/${effect}`)).json;
    assert.equal(shown.args.query, `page=2&${names.map((name) => `${name}=[redacted]`).join('&')}&empty`);
    const key = { 'idempotency-key': `query-${newOrder()}` };
    const keyed = (value) => send(`${target}&token=${value}`, { body: { n: 1 }, headers: key });
    assert.ok(ran(await keyed('one')));
    assertProblem((await keyed('two')).answer, 422, 'KEY_CONFLICT');
    // In doubt, awaiting approval, refused: nothing that anybody reads has it.
    up.habit('gone', (upstream, entry, response) => response.destroy());
    assertProblem((await send(`/gone/${newOrder()}?token=${secret}`, { body: {} })).answer, 409, 'IN_DOUBT');
    const abort = new AbortController();
    const asked = gw.agent.post(`/proxy/asked${fresh()}?token=${secret}`, {}, { headers: { 'semel-scope': 'shop/identity' }, signal: abort.signal }).catch(() => null);
    await eventually('it waits', async () => (await gw.approver.get('/v1/approvals')).text.includes('token=[redacted]'));
    abort.abort();
    await asked;
    await nobodyWaits();
    for (const path of ['/v1/approvals', '/v1/effects?limit=500', `/v1/effects/${effect}/events`, `/v1/effects/${effect}`])
        assert.ok(!(await gw.admin.get(path)).text.includes(secret), path);
    await eventually('the log has come so far', () => gw.log.includes(effect));
    assert.ok(!gw.log.includes(secret), 'nor has the log');
});

test('secrets of a body, a form or a header are stored nowhere, and still count', async () => {
    const secret = `hush-${newOrder()}`;
    const body = { user: 'ann', password: secret, deep: [{ client_secret: secret, accessToken: secret }], card: { number: secret, brand: 'b' }, otp: secret, tokens: 3, pin: true };
    const { answer } = await send(fresh(), { body, headers: { authorization: `Bearer ${secret}`, 'x-api-key': secret, 'x-foo-auth': secret, 'x-user-jwt': secret } });
    const effect = (await gw.admin.get(`/v1/effects/${answer.headers['semel-effect']}`)).json;
    const text = JSON.stringify(effect);
    assert.ok(!text.includes(secret), text);
    assert.equal(effect.args.body.password, '[redacted]');
    assert.deepEqual(effect.args.body.deep, [{ client_secret: '[redacted]', accessToken: '[redacted]' }]);
    assert.deepEqual(effect.args.body.card, { number: '[redacted]', brand: 'b' });
    assert.equal(effect.args.body.tokens, 3);
    assert.equal(effect.args.body.pin, true);
    assert.match(effect.args.headers.authorization, /^sha256:[0-9a-f]{64}$/);
    assert.ok(ran(await pair({ body }, { body: { ...body, password: 'other' } })));
    assert.ok(replayed(await pair({ body }, { body })));
    const form = await send(fresh(), { body: `user%5Bpassword%5D=${secret}&a=1`, headers: urlencoded });
    const kept = (await gw.admin.get(`/v1/effects/${form.answer.headers['semel-effect']}`)).json;
    assert.deepEqual(kept.args.form, { a: '1', 'user[password]': '[redacted]' });
});

test("a lost answer: the client's own retry is sent with the same key, and settles it", async () => {
    up.habit('lossy', (upstream, entry, response) => {
        if (upstream.asked(entry.order).length === 1) {
            upstream.did(entry);
            response.destroy();
        } else {
            response.writeHead(200, { 'content-type': 'application/json' });
            response.end(JSON.stringify({ replayed: true }));
        }
    });
    const body = { order_id: newOrder() };
    const at = (n) => ({ body, proxy: 'keyed', headers: { 'user-agent': `try-${n}` } });
    const first = await send('/lossy', at(1));
    assertProblem(first.answer, 504, 'UPSTREAM_TIMEOUT');
    const other = await send('/lossy', { ...at(2), headers: { 'stripe-account': 'acct_9' } });
    assert.equal(other.asked, 1, 'another action is not held up by it');
    const again = await send('/lossy', at(2));
    assert.equal(again.status, 200, again.answer.text);
    const [one, , two] = up.asked(body.order_id);
    assert.equal(one.key, two.key);
    assert.match(one.key, /^[A-Za-z0-9_-]{43}$/);
    assert.ok(replayed(await send('/lossy', at(3))));
    // Without a declared key, nobody can tell: it is held.
    const held = { order_id: newOrder() };
    assertProblem((await send('/lossy', { body: held })).answer, 409, 'IN_DOUBT');
    assertProblem((await send('/lossy', { body: held })).answer, 409, 'IN_DOUBT');
    assert.equal(up.asked(held.order_id).length, 1);
});

test('many retries of a lost answer at once: one is sent', async () => {
    up.habit('lost', async (upstream, entry, response) => {
        if (upstream.asked(entry.order).length === 1) return response.destroy();
        await eventually('the others wait', async () => (await gw.metric(/^semel_requests_parked$/)) >= 19);
        response.writeHead(200, { 'content-type': 'application/json' });
        return response.end('{}');
    });
    const body = { order_id: newOrder() };
    await send('/lost', { body, proxy: 'keyed' });
    const all = await Promise.all(Array.from({ length: 20 }, () => send('/lost', { body, proxy: 'keyed' })));
    for (const { answer } of all) assert.equal(answer.status, 200, answer.text);
    assert.equal(up.asked(body.order_id).length, 2);
});

test('a state that is set: PUT A, PUT B, PUT A asks the API three times', async () => {
    for (const [method, headers, query = '', field = {}] of [['PUT', {}], ['PATCH', {}], ['POST', { 'x-http-method-override': 'put' }],
        ['POST', { X_Method_Override: 'PATCH' }], ['POST', {}, '?_method=put'], ['POST', {}, '', { _method: 'PUT' }]]) {
        const target = fresh();
        const set = (to, more = {}) => send(`${target}${query}`, { method, headers, body: { to, ...field }, ...more });
        assert.ok(ran(await set('A')));
        assert.ok(replayed(await set('A')));
        assert.ok(ran(await send(fresh(), { method, headers, body: { to: 'B' } })));
        assert.ok(replayed(await set('A')), 'another path does not matter');
        assert.ok(ran(await set('B')));
        assert.ok(ran(await set('A')));
        assert.ok(replayed(await set('A')));
        assert.ok(replayed(await set('A')), 'also from memory');
        assert.ok(ran(await send(target, { method: 'DELETE' })));
        assert.ok(replayed(await send(target, { method: 'DELETE' })));
        assert.ok(ran(await set('A')));
        assert.ok(ran(await send(target, { method: 'DELETE' })));
    }
});

test('a state that is set by two spellings of one path', async () => {
    const target = fresh();
    const set = (to, name) => send(`${target}/${name}`, { method: 'PUT', body: { to } });
    assert.ok(ran(await set('A', 'x%28y%29')));
    assert.ok(replayed(await set('A', 'x%28y%29')));
    assert.ok(ran(await set('B', 'x(y)')));
    assert.ok(ran(await set('A', 'x%28y%29')));
    assert.ok(ran(await set('B', 'x%2528y%2529')));
    assert.ok(replayed(await set('A', 'x%28y%29')), 'another name does not matter');
});

test('a state that may have been set: PUT A, PUT B without an answer, PUT A asks the API again', async () => {
    up.habit('half', (upstream, entry, response) => {
        if (JSON.parse(entry.body).to === 'B') return response.destroy();
        response.writeHead(200, { 'content-type': 'application/json' });
        return response.end('{}');
    });
    const target = `/half/${newOrder()}`;
    const set = (to) => send(target, { method: 'PUT', body: { to } });
    assert.ok(ran(await set('A')));
    assertProblem((await set('B')).answer, 409, 'IN_DOUBT');
    assert.ok(ran(await set('A')));
    assert.ok(replayed(await set('A')));
    const held = await set('B');
    assertProblem(held.answer, 409, 'IN_DOUBT');
    assert.equal(held.asked, 0);
});

const xml = { 'content-type': 'application/xml' };
test('a POST that only looks like an upload in parts sets nothing', async () => {
    const target = fresh();
    const run = (query, op) => send(`${target}?${query}`, { body: { op } });
    for (const query of ['uploadId=7', 'uploads=3']) {
        assert.ok(ran(await run(query, 'thumb')));
        assert.ok(ran(await run(query, 'transcode')));
        assert.ok(replayed(await run(query, 'thumb')));
    }
});

test('an upload in parts is begun anew once the last one was completed or aborted', async () => {
    const target = fresh();
    const begin = () => send(`${target}?uploads`, {});
    const part = (id, to) => send(`${target}?partNumber=1&uploadId=${id}`, { method: 'PUT', body: { to } });
    assert.ok(ran(await begin()));
    assert.ok(replayed(await begin()), 'a retry gets the same upload');
    assert.ok(ran(await part('u1', 'A')));
    assert.ok(replayed(await begin()), 'also when it has parts');
    assert.ok(ran(await part('u1', 'B')));
    assert.ok(ran(await part('u1', 'A')), 'a part is a state that is set');
    assert.ok(ran(await send(`${target}?uploadId=u1`, { method: 'DELETE' })));
    assert.ok(ran(await begin()), 'the first one was aborted');
    assert.ok(replayed(await begin()));
    assert.ok(ran(await part('u2', 'A')));
    assert.ok(ran(await send(`${target}?uploadId=u2`, { body: '<Complete/>', headers: xml })));
    assert.ok(ran(await begin()), 'the second one was completed');
});

test('an upload in parts sets what its path names when it is completed', async () => {
    const target = fresh();
    const part = (n) => send(`${target}?partNumber=${n}&uploadId=u1`, { method: 'PUT', body: { part: n } });
    const complete = () => send(`${target}?uploadId=u1`, { body: '<Complete/>', headers: xml });
    assert.ok(ran(await send(target, { method: 'PUT', body: { to: 'A' } })));
    assert.ok(ran(await part(1)));
    assert.ok(ran(await part(2)));
    assert.ok(replayed(await part(1)));
    assert.ok(replayed(await send(target, { method: 'PUT', body: { to: 'A' } })));
    assert.ok(ran(await complete()));
    assert.ok(replayed(await part(2)));
    assert.ok(replayed(await complete()));
    assert.ok(ran(await send(target, { method: 'PUT', body: { to: 'A' } })));
    assert.ok(ran(await complete()));
});

test('a POST sets nothing, and a client that names its action is answered by it', async () => {
    const target = fresh();
    assert.ok(ran(await send(target, { body: { n: 1 } })));
    assert.ok(ran(await send(target, { body: { n: 2 } })));
    assert.ok(replayed(await send(target, { body: { n: 1 } })));
    const put = (to, key) => send(target, { method: 'PUT', body: { to }, headers: { 'idempotency-key': key } });
    assert.ok(ran(await put('A', `1 ${target}`)));
    assert.ok(ran(await put('B', `2 ${target}`)));
    assert.ok(replayed(await put('A', `1 ${target}`)));
});

// The pieces of YAML in docs/proxy.md: contracts, and parts of configurations.
const pieces = [...fs.readFileSync(new URL('../../docs/proxy.md', import.meta.url), 'utf8').matchAll(/^```yaml\n(.*?)^```/gms)].map(([, text]) => text);
const contracts = pieces.filter((text) => /^tools:/m.test(text));

test('the contracts and configurations of docs/proxy.md are right', async () => {
    assert.equal(pieces.length, 5);
    for (const text of pieces) {
        const file = newPath('piece.yaml');
        const contract = contracts.includes(text);
        fs.writeFileSync(file, contract ? text : `version: 1\nledger: "memory:"\ntokens: ${gw.tokens}\n${text}`);
        const checked = semel(contract ? ['contract', 'check', file] : ['serve', '--config', file, '--check'], { env: { ...process.env, STRIPE_KEY: 'x' } });
        assert.equal(checked.status, 0, `${checked.stdout}${checked.stderr}${text}`);
    }
});

test('in the contracts of docs/proxy.md a path is a read, but not for PUT, PATCH and DELETE', async () => {
    for (const [contract, read] of [[contracts[0], '/v1/quotes/7'], [contracts[1], '/api/token']]) {
        const own = await Gateway.start({ config: { proxies: { shop: { url: up.url, timeout: '1s' } } }, contract });
        const ask = (method, target, amount) => own.agent.request(method, `/proxy/shop${target}`, { amount }, { headers: { 'semel-scope': 'shop/identity' } });
        const effect = (answer) => answer.headers['semel-effect'];
        assert.equal(effect(await ask('POST', read, 1)), undefined);
        for (const method of ['PUT', 'PATCH', 'DELETE']) assert.ok(effect(await ask(method, read, 1)), `${method} ${read}`);
        assert.ok(effect(await ask('POST', '/other', 1)));
        if (contract === contracts[0]) assertProblem(await ask('DELETE', read, 50_001), 403, 'AWAITING_APPROVAL');
        assert.equal((await own.stop()).code, 0);
    }
});

await run();
