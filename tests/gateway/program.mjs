// The program under test, and places for what it needs: SEMEL_BIN is the program; files are in a
// directory that is gone afterwards, ports are free ones.

import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { later } from './tap.mjs';

export const semel = process.env.SEMEL_BIN ?? path.resolve('build/test/semel');

let scratchDirectory = null;

// A directory that is gone afterwards.
export function scratch() {
    if (scratchDirectory === null) {
        scratchDirectory = fs.mkdtempSync(path.join(os.tmpdir(), 'semel-test-'));
        later(() => fs.rmSync(scratchDirectory, { recursive: true, force: true }));
    }
    return scratchDirectory;
}

let names = 0;
export function newPath(name) {
    return path.join(scratch(), `${++names}-${name}`);
}

// A port that nothing listens on, below those that the system gives to clients. It stays ours, also
// while nobody listens there: see server_find_port in tests/servers.sh.
export async function freePort() {
    const taken = `/tmp/semel-ports-${os.userInfo().uid}`;
    fs.mkdirSync(taken, { recursive: true });
    for (let tries = 0; tries < 1000; tries++) {
        const port = 20000 + Math.floor(Math.random() * 12000);
        try {
            fs.symlinkSync(`/proc/${process.pid}`, `${taken}/${port}`);
        } catch (error) {
            if (error.code === 'EEXIST') continue;
            throw error;
        }
        const free = await new Promise((resolve) => {
            const server = net.createServer();
            server.on('error', () => resolve(false));
            server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
        });
        if (free) return port;
    }
    throw new Error(`no port is free: look at ${taken}`);
}

// Runs the program to its end.
export function run(args, options = {}) {
    const result = spawnSync(semel, args, { encoding: 'utf8', timeout: 20_000, maxBuffer: 1 << 28, ...options });
    if (result.error) throw result.error;
    return result;
}

// A certificate for this machine, as the configuration's `tls` wants it.
export function certificate() {
    const key = newPath('key.pem');
    const cert = newPath('cert.pem');
    const made = spawnSync('openssl', [
        'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes',
        '-keyout', key, '-out', cert, '-days', '2', '-subj', '/CN=localhost',
        '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1',
    ]);
    if (made.status !== 0) throw new Error(String(made.stderr));
    return { key, certificate: cert };
}
