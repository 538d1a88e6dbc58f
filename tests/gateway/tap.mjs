// TAP for the gateway's tests: each test is a function that throws if it fails.
//
//     test('what holds', async () => { ... });   // in the order in which they are written
//     await run();                                // last: prints the plan, sets the exit status
//
// Whatever a test starts is registered with `later`, and ended after the last test, in reverse
// order, also when the process is interrupted. No test waits for ever: each has a time limit. Limits are
// for what hangs, so they are far beyond what a busy machine needs.

import process from 'node:process';

export const full = Boolean(process.env.SEMEL_TEST_FULL);

const tests = [];
const lastTests = [];
const cleanups = [];
let prefix = '';

export function test(name, body, options = {}) {
    tests.push({ name, body, options });
}

// One that comes after all others.
export function lastTest(name, body, options = {}) {
    lastTests.push({ name, body, options });
}

// Words before the names of the tests that follow, such as the store they run on.
export function about(text) {
    prefix = text ? `${text}: ` : '';
}

export function later(cleanup) {
    cleanups.push(cleanup);
}

export function note(text) {
    for (const line of String(text).split('\n')) console.log(`# ${line}`);
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Asks again until the answer is true, and returns it. The last error, or `what`, is the failure.
export async function eventually(what, question, limitMs = 200_000) {
    const end = Date.now() + limitMs;
    let trouble = null;
    for (let pause = 5; ; pause = Math.min(pause * 1.5, 200)) {
        try {
            const answer = await question();
            if (answer) return answer;
            trouble = null;
        } catch (error) {
            trouble = error;
        }
        if (Date.now() > end) throw trouble ?? new Error(`not within ${limitMs} ms: ${what}`);
        await sleep(pause);
    }
}

async function timed(body, limitMs) {
    let timer;
    const limit = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error(`not over after ${limitMs} ms`)), limitMs);
    });
    try {
        await Promise.race([body(), limit]);
    } finally {
        clearTimeout(timer);
    }
}

async function clean() {
    while (cleanups.length > 0) {
        try {
            await cleanups.pop()();
        } catch (error) {
            note(`at the end: ${error.message}`);
        }
    }
}

async function giveUp(status) {
    await clean();
    process.exit(status);
}

process.on('SIGINT', () => giveUp(130));
process.on('SIGTERM', () => giveUp(143));
process.on('uncaughtException', (error) => {
    if (error.code === 'EPIPE' && error.syscall === 'write') process.stdout.destroy(); // nobody reads it any more
    else console.log(`Bail out! ${prefix}${error.message.split('\n')[0]}`);
    note(error.stack ?? error);
    if (error.note) note(error.note);
    giveUp(1);
});

export async function run() {
    let count = 0;
    let failed = 0;
    const only = process.env.SEMEL_TEST_ONLY; // a part of names, for whoever looks for a mistake
    try {
        for (const { name, body, options } of [...tests, ...lastTests]) {
            if (only && !name.includes(only)) continue;
            count++;
            const began = Date.now();
            try {
                await timed(body, options.limitMs ?? 300_000);
                console.log(`ok ${count} - ${prefix}${name}`);
            } catch (error) {
                failed++;
                console.log(`not ok ${count} - ${prefix}${name}`);
                note(error.stack ?? error);
                if (error.note) note(error.note);
            }
            if (process.env.SEMEL_TEST_TIMES) note(`${Date.now() - began} ms`);
        }
    } finally {
        await clean();
    }
    console.log(`1..${count}`);
    process.exit(failed === 0 && count > 0 ? 0 : 1);
}
