// Plants mistakes in a copy of the sources, one at a time, and looks whether the tests notice.
//
//     node sweep.mjs COUNT SEED [FOLDER...]
//
// All mistakes of a sweep are compiled into one build, each behind its number (mutant.h), so that
// switching to the next costs nothing but the environment of the next test. First every test runs
// without a mistake: it must pass, and it tells which ones it meets. Then each mistake runs with the
// tests that meet it, the quickest first, until one fails. What no test notices is printed with its
// diff. Those of equivalent.txt run with the unit tests only: if one of these notices it, it is said.
//
// Environment: SEMEL_ROOT, and what ./test exports for suites. SEMEL_MUTANTS_SHOW: say at once what
// passes the unit tests, or a suite's turn. SEMEL_MUTANTS_ONLY: a file with names, one a line, as a
// sweep prints them; these are planted, to see whether new tests notice them.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { spawn, spawnSync } from 'node:child_process';
import { candidates, operators, squeeze } from './operators.mjs';
import { read } from './source.mjs';
import { areas } from './areas.mjs';

const root = process.env.SEMEL_ROOT;
const here = path.join(root, 'tests/mutants');
const work = path.join(root, 'build/mutants');
const tree = path.join(work, 'tree');
const built = path.join(work, 'build');
const [count, seed, ...folders] = process.argv.slice(2);
const cores = Math.max(2, os.cpus().length);

// ---- which ones

// A small generator of random numbers, so that a seed tells the sweep.
function random(state) {
    return () => {
        state = (state + 0x6d2b79f5) | 0;
        let x = Math.imul(state ^ (state >>> 15), 1 | state);
        x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
        return ((x ^ (x >>> 14)) >>> 0) / 4294967296;
    };
}

function area_of(file) {
    return Object.keys(areas).find((name) => areas[name].folders.some((folder) => file.startsWith(folder)));
}

function sources() {
    const listed = spawnSync('git', ['ls-files', 'src/*.c'], { cwd: root, encoding: 'utf8' })
        .stdout.trim()
        .split('\n');
    return listed.filter(
        (file) =>
            area_of(file) !== undefined &&
            (folders.length === 0 || folders.some((folder) => file.startsWith(folder))),
    );
}

// As many as are wanted: areas take turns, and in each of them operators do, so that no kind is rare
// because others are frequent. No two overlap.
function choose(all, wanted, next) {
    const piles = new Map();
    for (const one of all) {
        const pile = `${area_of(one.path)} ${one.operator}`;
        piles.set(pile, [...(piles.get(pile) ?? []), one]);
    }
    const chosen = [],
        taken = new Map();
    const free = (one) =>
        !(taken.get(one.path) ?? []).some((other) => one.start < other.end && other.start < one.end);
    while (chosen.length < wanted && piles.size > 0) {
        for (const [name, pile] of piles) {
            if (pile.length === 0) {
                piles.delete(name);
                continue;
            }
            const [one] = pile.splice(Math.floor(next() * pile.length), 1);
            if (chosen.length >= wanted || !free(one)) continue;
            taken.set(one.path, [...(taken.get(one.path) ?? []), one]);
            chosen.push(one);
        }
    }
    return chosen;
}

// Those that a file names, one a line.
function named(all, file) {
    const names = fs
        .readFileSync(file, 'utf8')
        .split('\n')
        .map((line) => line.trim());
    const byName = new Map(all.map((one) => [one.name, one]));
    const found = [...new Set(names.filter((name) => name !== ''))].map((name) => {
        if (!byName.has(name)) throw new Error(`no such mistake can be planted: ${name}`);
        return byName.get(name);
    });
    for (const one of found)
        for (const other of found)
            if (one !== other && one.path === other.path && one.start < other.end && other.start < one.end)
                throw new Error(`these overlap: ${one.name} and ${other.name}`);
    return found;
}

// ---- the build

function planted(source, ones) {
    let text = source;
    for (const one of [...ones].sort((a, b) => b.start - a.start)) {
        const on = `sm_mutated(${one.number})`;
        const both = one.with ? one.with(on, one.original) : `(${on} ? (${one.mutated}) : (${one.original}))`;
        text = text.slice(0, one.start) + both + text.slice(one.end);
    }
    return text;
}

function run(command, args, options = {}) {
    const done = spawnSync(command, args, { encoding: 'utf8', maxBuffer: 1 << 28, ...options });
    if (done.status !== 0) throw new Error(`${command} ${args.join(' ')}\n${done.stdout}\n${done.stderr}`);
    return done.stdout;
}

// How each file is compiled, without what it writes.
function compilers() {
    const commands = JSON.parse(fs.readFileSync(path.join(built, 'compile_commands.json')));
    return new Map(commands.map((one) => [path.relative(tree, path.resolve(one.directory, one.file)), one]));
}

// Whether it compiles: what swaps a number with a text is no mistake that anybody could make.
function compiles(one, known) {
    const command = known.get(one.path);
    const source = fs.readFileSync(path.join(root, one.path), 'utf8');
    const file = path.join(tree, one.path);
    fs.writeFileSync(file, planted(source, [{ ...one, number: 1 }]));
    const words = command.command
        .split(' ')
        .filter((word) => !/^-([MWw].*|o|c)$/.test(word) && !/\.o(\.d)?$/.test(word));
    const errors = [
        'incompatible-pointer-types',
        'int-conversion',
        'discarded-qualifiers',
        'enum-conversion',
        'enum-compare',
    ];
    const tried = spawnSync(
        'sh',
        ['-c', [...words, '-fsyntax-only', ...errors.map((name) => `-Werror=${name}`)].join(' ')],
        { cwd: command.directory },
    );
    fs.writeFileSync(file, source);
    return tried.status === 0;
}

function copy_tree() {
    fs.mkdirSync(tree, { recursive: true });
    const files = run('git', ['ls-files', '-co', '--exclude-standard'], { cwd: root }).trim().split('\n');
    for (const file of files) {
        const from = path.join(root, file),
            to = path.join(tree, file);
        if (!fs.existsSync(from)) continue;
        fs.mkdirSync(path.dirname(to), { recursive: true });
        const same = fs.existsSync(to) && fs.readFileSync(from).equals(fs.readFileSync(to));
        if (!same) fs.copyFileSync(from, to);
    }
    for (const file of ['mutant.h', 'mutant.c'])
        fs.copyFileSync(path.join(here, file), path.join(tree, 'src/base', file));
    const list = path.join(tree, 'src/base/meson.build');
    const text = fs.readFileSync(list, 'utf8');
    fs.writeFileSync(list, text.replace('layer_sources = files(', "layer_sources = files(\n  'mutant.c',"));
}

function configure() {
    if (fs.existsSync(path.join(built, 'build.ninja'))) return;
    run('meson', [
        'setup',
        built,
        tree,
        '-Dtests=true',
        '-Db_lto=false',
        '-Doptimization=1',
        `-Dc_args=-include ${tree}/src/base/mutant.h -w`,
    ]);
}

// ---- the tests

// One test: a unit program, or a suite. `met` is the set of mistakes that it meets.
function tests() {
    const units = fs
        .readdirSync(path.join(root, 'tests/unit'))
        .filter((name) => name.endsWith('.c'))
        .map((name) => `unit_${path.basename(name, '.c')}`)
        .map((name) => ({ name, command: [path.join(built, 'tests', name)], unit: true }));
    const suites = new Set(Object.values(areas).flatMap((area) => area.suites));
    return [
        ...units,
        ...[...suites].map((name) => ({
            name,
            command: [path.join(root, 'tests/suites', name)],
            unit: false,
        })),
    ];
}

// The groups of those that run: they end with us.
const groups = new Set();
const end_group = (pid) => {
    try {
        process.kill(-pid, 'SIGKILL');
    } catch {
        /* it has ended */
    }
};
process.on('exit', () => groups.forEach(end_group));
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(130));

// Ports of suites that have ended are free again: see server_find_port in tests/servers.sh.
const ports = `/tmp/semel-ports-${os.userInfo().uid}`;
function free_ports() {
    if (fs.existsSync(ports)) run('flock', [ports, 'find', ports, '-xtype', 'l', '-delete']);
}

// Runs a test to its end, or to its first failure. Resolves to why it failed, or null, and how long it took.
function perform(test, environment, limit_ms) {
    return new Promise((resolve) => {
        const began = Date.now();
        if (!test.unit) free_ports();
        const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'mutant-'));
        fs.chmodSync(scratch, 0o711); // servers run as another user
        const child = spawn(test.command[0], [], {
            cwd: root,
            detached: true,
            stdio: ['ignore', 'pipe', 'ignore'],
            env: {
                ...process.env,
                TMPDIR: scratch,
                XDG_STATE_HOME: scratch,
                CMOCKA_MESSAGE_OUTPUT: 'TAP',
                SEMEL_BUILD: built,
                SEMEL_BIN: path.join(built, 'semel'),
                ...environment,
            },
        });
        let why = null;
        groups.add(child.pid);
        const fail = (reason) => {
            why ??= reason;
            end_group(child.pid);
        };
        const timer = setTimeout(() => fail('it takes too long'), limit_ms);
        let rest = '';
        child.stdout.on('data', (piece) => {
            const lines = (rest + piece).split('\n');
            rest = lines.pop();
            const failed = lines.find((line) => /^not ok/.test(line) && !/# SKIP/.test(line));
            if (failed !== undefined) fail(failed);
        });
        child.on('close', (status) => {
            clearTimeout(timer);
            end_group(child.pid); // what it left running
            groups.delete(child.pid);
            fs.rmSync(scratch, { recursive: true, force: true });
            if (status !== 0) why ??= `it exits with ${status}`;
            resolve({ why, took: Date.now() - began });
        });
    });
}

// Runs jobs side by side.
async function side_by_side(jobs, at_once, each) {
    const left = [...jobs];
    await Promise.all(
        Array.from({ length: at_once }, async () => {
            while (left.length > 0) await each(left.shift());
        }),
    );
}

// Without a mistake: does it pass, how long does it take, what does it meet?
async function first_look(test, total) {
    const file = path.join(work, `met-${test.name}`);
    fs.writeFileSync(file, Buffer.alloc(total + 1));
    const { why, took } = await perform(test, { SEMEL_MUTANTS_MET: file }, 900000);
    if (why !== null) throw new Error(`${test.name} fails without any mistake: ${why}`);
    test.took = took;
    test.met = fs.readFileSync(file);
}

// ---- what is said

const say = (text) => console.error(`mutants: ${text}`);

function equivalents() {
    const list = new Map();
    let name = null;
    for (const line of fs.readFileSync(path.join(here, 'equivalent.txt'), 'utf8').split('\n')) {
        if (line.startsWith('#') || line.trim() === '') continue;
        if (line.startsWith('    ')) list.set(name, line.trim());
        else name = line.trim();
    }
    return list;
}

function diff(one) {
    const show = (mark, text) =>
        text
            .split('\n')
            .map((line) => `${mark} ${line}`)
            .join('\n');
    return `${one.path}:${one.line}: ${one.operator}\n${show('-', one.original)}\n${show('+', one.mutated)}`;
}

function table(chosen, excused) {
    const rows = [['area', 'planted', 'caught', 'equivalent', 'survived', 'of those that count']];
    for (const name of [...Object.keys(areas), 'all']) {
        const of = chosen.filter((one) => name === 'all' || area_of(one.path) === name);
        const caught = of.filter((one) => one.by !== undefined).length;
        const equal = of.filter((one) => one.by === undefined && excused.has(one.name)).length;
        if (of.length > 0)
            rows.push([
                name,
                of.length,
                caught,
                equal,
                of.length - caught - equal,
                `${((100 * caught) / Math.max(1, of.length - equal)).toFixed(1)} %`,
            ]);
    }
    for (const row of rows)
        console.log(
            row.map((cell, i) => (i === 0 ? String(cell).padEnd(10) : String(cell).padStart(11))).join(' '),
        );
}

async function main() {
    const next = random(Number(seed));
    const all = sources().flatMap((file) => {
        const text = fs.readFileSync(path.join(root, file), 'utf8');
        return candidates(file, text, read(text));
    });
    say(
        `${all.length} places for ${Object.keys(operators).length} kinds of mistakes; taking ${count} by seed ${seed}`,
    );
    copy_tree();
    configure();
    const known = compilers();
    const only = process.env.SEMEL_MUTANTS_ONLY;
    const offered = only === undefined ? choose(all, Math.ceil(Number(count) * 1.6), next) : named(all, only);
    const chosen = [];
    for (const one of offered) {
        if (only === undefined && chosen.length >= Number(count)) break;
        if (compiles(one, known)) chosen.push(one);
    }
    chosen.forEach((one, i) => {
        one.number = i + 1;
    });
    for (const file of new Set(chosen.map((one) => one.path)))
        fs.writeFileSync(
            path.join(tree, file),
            planted(
                fs.readFileSync(path.join(root, file), 'utf8'),
                chosen.filter((one) => one.path === file),
            ),
        );
    say(`building ${chosen.length} of them into one program`);
    run('ninja', ['-C', built]);

    const every = tests();
    const excused = equivalents();
    let waiting = chosen;
    for (const units of [true, false]) {
        if (!units) waiting = waiting.filter((one) => !excused.has(one.name));
        const wanted = (test, one) => units || areas[area_of(one.path)].suites.includes(test.name);
        const round = every.filter((test) => test.unit === units && waiting.some((one) => wanted(test, one)));
        if (!units)
            say(`${waiting.length} of ${chosen.length} pass the unit tests; now ${round.length} suites`);
        const beside = units ? 3 * cores : cores + 1; // unit tests mostly wait
        await side_by_side(round, beside, (test) => first_look(test, chosen.length));
        let done = 0;
        await side_by_side(waiting, beside, async (one) => {
            const meeting = round
                .filter((test) => wanted(test, one) && test.met[one.number])
                .sort((a, b) => a.took - b.took);
            one.met = (one.met ?? 0) + meeting.length;
            for (const test of meeting) {
                const { why } = await perform(
                    test,
                    { SEMEL_MUTANT: String(one.number) },
                    test.took * 4 + 20000,
                );
                if (why !== null) {
                    one.by = `${test.name}: ${why}`;
                    break;
                }
            }
            if (one.by === undefined && process.env.SEMEL_MUTANTS_SHOW) say(`passed so far: ${one.name}`);
            done++;
            if (done % 20 === 0) say(`${done} of ${waiting.length}`);
        });
        waiting = waiting.filter((one) => one.by === undefined);
    }

    for (const one of waiting)
        console.log(
            `\n${diff(one)}\n  ${one.met === 0 ? 'no test comes here' : `${one.met} tests come here and pass`}\n  ${one.name}`,
        );
    for (const one of chosen.filter((one) => one.by !== undefined && excused.has(one.name)))
        console.log(`\nequivalent.txt lists what a test notices (${one.by}):\n  ${one.name}`);
    console.log('');
    table(chosen, excused);
    fs.writeFileSync(
        path.join(work, 'result.json'),
        JSON.stringify(
            chosen.map(({ name, line, by, met }) => ({ name, line, by, met })),
            null,
            1,
        ),
    );
    process.exitCode = waiting.length === 0 ? 0 : 1;
}

await main();
