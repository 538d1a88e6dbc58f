#!/usr/bin/env node
// A server over stdio behind a delay: what it answers to tools/call is held back until a file is there.
//
//     node delay.mjs DIRECTORY COMMAND ARGS...
//
// DIRECTORY/held is written when an answer is held, and it goes on when there is DIRECTORY/go.

import { spawn } from 'node:child_process';
import fs from 'node:fs';
import process from 'node:process';
import readline from 'node:readline';

const [directory, command, ...args] = process.argv.slice(2);
const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
const calls = new Set();

readline.createInterface({ input: process.stdin }).on('line', (line) => {
    const message = JSON.parse(line);
    if (message.method === 'tools/call') calls.add(message.id);
    child.stdin.write(`${line}\n`);
}).on('close', () => child.stdin.end());

async function pass(line) {
    if (calls.has(JSON.parse(line).id)) {
        // Whoever waits for the file reads all of it.
        fs.writeFileSync(`${directory}/held.new`, String(process.pid));
        fs.renameSync(`${directory}/held.new`, `${directory}/held`);
        while (!fs.existsSync(`${directory}/go`)) await new Promise((resolve) => setTimeout(resolve, 5));
    }
    process.stdout.write(`${line}\n`);
}
readline.createInterface({ input: child.stdout }).on('line', pass);
child.on('close', (code) => process.exit(code ?? 1));
