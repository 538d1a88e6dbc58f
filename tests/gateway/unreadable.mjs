// Requests that the HTTP library refuses before any of our code sees them whole: one answer, which is
// a problem, and the end of the connection. Plain, through TLS, and over a Unix socket.

import fs from 'node:fs';
import net from 'node:net';
import { connect as connectTls } from 'node:tls';
import { Raw, bytesOf } from './client.mjs';
import { Gateway, assert, certificate, newPath } from './harness.mjs';
import { run, test } from './tap.mjs';

const tls = certificate();
const ca = fs.readFileSync(tls.certificate);
const socketPath = newPath('s.sock');
const secure = await Gateway.start({ config: { tls, limits: { body: '64KiB' } }, tls: { ca } });
const plain = await Gateway.start({ config: { limits: { body: '64KiB' } } });
plain.options.config.listen = [`127.0.0.1:${plain.port}`, `unix:${socketPath}`];
await plain.stop();
await plain.up();

const ways = {
    plain: [plain, () => Raw.connect(plain.port)],
    unix: [plain, async () => new Raw(net.connect(socketPath))],
    TLS: [secure, async () => new Raw(connectTls({ port: secure.port, ca }))],
};

const host = 'Host: 127.0.0.1\r\n';
const chunked = `POST /v1/call HTTP/1.1\r\n${host}Transfer-Encoding: chunked\r\n`;

// What is sent, and what it is answered with.
const cases = [
    ['a first line without a version', 'GET /\r\n\r\n', 400, 'BAD_ARGUMENTS'],
    ['a version that is none', `GET / HTTP/x.y\r\n${host}\r\n`, 400, 'BAD_ARGUMENTS'],
    ['HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 505, 'UNSUPPORTED'],
    ['HTTP/0.9', `GET / HTTP/0.9\r\n${host}\r\n`, 505, 'UNSUPPORTED'],
    ['a first line of 200 KiB', `GET /${'x'.repeat(200_000)} HTTP/1.1\r\n${host}\r\n`, 414, 'TOO_LARGE'],
    ['a header of 200 KiB', `GET / HTTP/1.1\r\n${host}X: ${'y'.repeat(200_000)}\r\n\r\n`, 431, 'TOO_LARGE'],
    ['30,000 headers', `GET / HTTP/1.1\r\n${host}${'A: b\r\n'.repeat(30_000)}\r\n`, 431, 'TOO_LARGE'],
    ['1,000 parameters', `GET /?${'a&'.repeat(1_000)} HTTP/1.1\r\n${host}\r\n`, 431, 'TOO_LARGE'],
    ['1,000 cookies', `GET / HTTP/1.1\r\n${host}Cookie: ${'a;'.repeat(1_000)}\r\n\r\n`, 431, 'TOO_LARGE'],
    ['a folded line of 200 KiB', `GET / HTTP/1.1\r\n${host}X: a\r\n ${'y'.repeat(200_000)}\r\n\r\n`, 431, 'TOO_LARGE'],
    ['a header without a colon', `GET / HTTP/1.1\r\n${host}nonsense\r\n\r\n`, 400, 'BAD_ARGUMENTS'],
    ['a first header without a colon', `GET / HTTP/1.1\r\nnonsense\r\n${host}\r\n`, 400, 'BAD_ARGUMENTS'],
    ['a Content-Length of letters', `POST / HTTP/1.1\r\n${host}Content-Length: abc\r\n\r\n`, 400, 'BAD_ARGUMENTS'],
    ['a Content-Length with letters', `POST / HTTP/1.1\r\n${host}Content-Length: 5x\r\n\r\nabcde`, 400, 'BAD_ARGUMENTS'],
    ['an empty Content-Length', `POST / HTTP/1.1\r\n${host}Content-Length: \r\n\r\n`, 400, 'BAD_ARGUMENTS'],
    ['a negative Content-Length', `POST / HTTP/1.1\r\n${host}Content-Length: -5\r\n\r\n`, 400, 'BAD_ARGUMENTS'],
    ['a Content-Length of 30 digits', `POST / HTTP/1.1\r\n${host}Content-Length: ${'9'.repeat(30)}\r\n\r\n`, 413, 'TOO_LARGE'],
    ['a chunk without a size', `${chunked}@\r\n\r\n`, 400, 'BAD_ARGUMENTS'],
    ['a chunk of 2^80 bytes', `${chunked}@${'f'.repeat(20)}\r\n`, 413, 'TOO_LARGE'],
    ['a chunk longer than it says', `${chunked}@1\r\nabc\r\n0\r\n\r\n`, 400, 'BAD_ARGUMENTS'],
    ['a trailer without a colon', `${chunked}@0\r\nnonsense\r\n\r\n`, 400, 'BAD_ARGUMENTS'],
    ['a trailer of 200 KiB', `${chunked}@0\r\nX: ${'y'.repeat(200_000)}\r\n\r\n`, 431, 'TOO_LARGE'],
    ['a body over the bound', `${chunked}@${`10000\r\n${'x'.repeat(65_536)}\r\n`.repeat(3)}`, 413, 'TOO_LARGE'],
];

// One answer: a problem, with one head, behind which nothing comes.
function assertOnly(text, status, code) {
    const shown = text.slice(0, 600);
    const [head, ...rest] = text.split('\r\n\r\n');
    const body = rest.join('\r\n\r\n');
    assert.match(head, new RegExp(`^HTTP/1\\.1 ${status} [A-Z]`), shown);
    assert.equal(text.split('HTTP/1.1 ').length, 2, shown);
    assert.match(head, /\r\nContent-Type: application\/problem\+json(\r\n|$)/, shown);
    assert.match(head, /\r\nConnection: close(\r\n|$)/i, shown);
    assert.equal(body.length, Number(/\r\nContent-Length: (\d+)/.exec(head)[1]), shown);
    const problem = JSON.parse(body);
    assert.equal(problem.status, status);
    assert.equal(problem.code, code, body);
    assert.ok(problem.message.length > 10 && problem.corrective_action.length > 5, body);
    assert.doesNotMatch(text, /<html>/i);
}

for (const [way, [gw, connect]] of Object.entries(ways)) {
    const bytes = (text) => Buffer.from(
        text.replace('\r\n@', `\r\nAuthorization: Bearer ${gw.texts.agent}\r\n\r\n`), 'latin1');

    for (const [name, text, status, code] of cases) {
        test(`${way}: ${name} is a problem`, async () => {
            const raw = await connect();
            raw.write(bytes(text));
            assertOnly(await raw.all(), status, code);
            assert.ok(raw.socket.destroyed || raw.socket.readableEnded, 'the connection is closed');
            raw.hangUp();
        });
    }

    test(`${way}: what is wrong may come in pieces, and after a request that is right`, async () => {
        for (const [, text, status, code] of cases.filter(([, text]) => text.length < 1000)) {
            const raw = await connect();
            raw.write(bytesOf('GET', '/healthz', {}));
            assert.equal(await raw.status(), 200);
            const all = bytes(text);
            raw.received = Buffer.alloc(0);
            for (let at = 0; at < all.length; at += 7) {
                raw.write(all.subarray(at, at + 7));
                await new Promise((resolve) => setImmediate(resolve));
            }
            const seen = (await raw.all()).replace(/^.*"live"}\n?/s, '');
            assertOnly(seen.slice(seen.indexOf('HTTP/1.1 ')), status, code);
            raw.hangUp();
        }
    });

    test(`${way}: a head of 32 KiB is taken, in one piece and in many, with a body behind it`, async () => {
        const post = bytesOf('POST', '/v1/begin', {
            Authorization: `Bearer ${gw.texts.agent}`, Cookie: `a=${'b'.repeat(9_000)}`, 'X-Long': 'c'.repeat(23_000),
            'Content-Type': 'application/json', 'Content-Length': '2000',
        }, ' '.repeat(2000));
        for (const size of [post.length, 1000]) {
            const raw = await connect();
            for (let round = 0; round < 3; round++) {
                raw.received = Buffer.alloc(0);
                for (let at = 0; at < post.length; at += size) {
                    raw.write(post.slice(at, at + size));
                    await new Promise((resolve) => setImmediate(resolve));
                }
                assert.equal(await raw.status(), 400, 'an empty body: the head was read');
                assert.doesNotMatch(raw.received.toString(), /Connection: close/i);
            }
            raw.hangUp();
        }
    });

    test(`${way}: a connection whose heads grow ends in time, or is told so`, async () => {
        const raw = await connect();
        const get = (n) => bytesOf('GET', '/healthz', { 'X-Long': Array.isArray(n) ? n : 'c'.repeat(n) });
        const ask = async (n) => {
            raw.received = Buffer.alloc(0);
            raw.write(get(n));
            return [await raw.status(), /\r\nConnection: close\r\n/i.test(raw.received.toString())];
        };
        assert.deepEqual(await ask(10), [200, false]);
        assert.deepEqual(await ask(Array.from({ length: 24 }, (_, n) => `value ${n}`)), [200, false]);
        assert.deepEqual(await ask(2500), [200, way !== 'TLS']);
        raw.hangUp();
        const other = await connect();
        other.write(get(10));
        assert.equal(await other.status(), 200);
        other.received = Buffer.alloc(0);
        other.write(get(20_000));
        const text = way === 'TLS' ? '' : await other.all();
        if (way === 'TLS') assert.equal(await other.status(), 200);
        else assertOnly(text, 431, 'TOO_LARGE');
        assert.match(text, way === 'TLS' ? /^$/ : /new connection/);
        other.hangUp();
    });

    test(`${way}: others are not disturbed`, async () => {
        const good = await connect();
        const bad = await Promise.all(Array.from({ length: 20 }, connect));
        good.write('GET /healthz HTTP/1.1\r\nHost: 127');
        for (const raw of bad) raw.write(bytes(`POST / HTTP/1.1\r\n${host}Content-Length: x\r\n\r\n`));
        for (const raw of bad) assertOnly(await raw.all(), 400, 'BAD_ARGUMENTS');
        good.write('.0.0.1\r\n\r\n');
        assert.equal(await good.status(), 200);
        good.hangUp();
    });
}

test('what is refused so is in the log, with its status and code', async () => {
    const lines = plain.log.trim().split('\n').map((line) => JSON.parse(line));
    const refused = lines.filter((one) => one.message === 'request' && one.status >= 400);
    for (const code of ['BAD_ARGUMENTS', 'TOO_LARGE']) assert.ok(refused.some((one) => one.code === code), code);
});

await run();
