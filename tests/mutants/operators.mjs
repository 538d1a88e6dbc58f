// The mistakes that are planted. Each operator looks at a token and says what could be wrong there:
// from which token to which, and what would stand in their place. `with(mutated)` is how both are
// compiled side by side, where the usual `on ? mutated : original` does not do.
import { operands, statement } from './source.mjs';

const bounds = { '<': '<=', '<=': '<', '>': '>=', '>=': '>' };
const equals = { '==': '!=', '!=': '==' };
const logic = { '&&': '||', '||': '&&' };
const tighter = ['&', '|', '^']; // than these is what compares

// Calls without which no test can fail: what is given back (a leak is the sanitizers' business), locks
// (a race is that of another), and what is said or counted.
const harmless =
    /^(free|assert|va_\w+|memset|explicit_bzero|pthread_\w+|munmap|close|fclose|fflush|perror)$|_(free|fini|unref|lock|unlock|say|say_fields|count\w*|rest)$|^(gw_say|mcp_say|gw_count|cli_say)/;

const text_of = (source, all, first, last) => source.slice(all[first].start, all[last].end);
const is_word = (token, ...texts) => token.kind === 'word' && texts.includes(token.text);

function compared(table, name) {
    return (source, all, i) => {
        const to = table[all[i].text];
        if (to === undefined || all[i].kind !== 'mark') return null;
        const ends =
            name === 'logic'
                ? all[i].text === '&&'
                    ? ['&&', '||']
                    : ['||']
                : name === 'equal'
                  ? [...Object.keys(logic), ...Object.keys(equals), ...tighter]
                  : [...Object.keys(logic), ...Object.keys(equals), ...Object.keys(bounds), ...tighter];
        const reach = operands(all, i, ends);
        if (reach === null) return null;
        const [first, last] = reach;
        const left = text_of(source, all, first, i - 1),
            right = text_of(source, all, i + 1, last);
        const mutated = name === 'logic' ? `(${left}) ${to} (${right})` : `${left} ${to} ${right}`;
        return { first, last, mutated };
    };
}

// What an error is compared with, as if there had been none.
function ignored(source, all, i) {
    if (all[i].text !== '==' || !is_word(all[i + 1], 'SM_OK', 'SEMEL_OK')) return null;
    const reach = operands(all, i, [...Object.keys(logic), ...Object.keys(equals), ...tighter]);
    return (
        reach && {
            first: reach[0],
            last: reach[1],
            mutated: `((void)(${text_of(source, all, ...reach)}), true)`,
        }
    );
}

function dropped_check(source, all, i) {
    if (!is_word(all[i], 'if') || all[i + 1].other === undefined) return null;
    const inside = text_of(source, all, i + 2, all[i + 1].other - 1);
    return { first: i + 2, last: all[i + 1].other - 1, mutated: `((void)(${inside}), false)` };
}

function dropped_call(source, all, i) {
    if (all[i].kind !== 'word' || all[i + 1]?.text !== '(' || all[all[i + 1].other + 1]?.text !== ';')
        return null;
    if (statement(all, i) !== i && all[i - 1].text !== ')' && !is_word(all[i - 1], 'else')) return null;
    if (is_word(all[i], 'if', 'for', 'while', 'switch', 'return', 'sizeof') || harmless.test(all[i].text))
        return null;
    const last = all[i + 1].other;
    return {
        first: i,
        last,
        mutated: '(void)0',
        with: (on, original) => `(${on} ? (void)0 : (void)${original})`,
    };
}

function swapped(source, all, i) {
    if (all[i].text !== ',' || all[i].kind !== 'mark') return null;
    const simple = (from, step) => {
        let k = from;
        while (all[k].kind === 'word' || all[k].text === '.' || all[k].text === '->') k += step;
        return k === from ? null : k - step;
    };
    const first = simple(i - 1, -1),
        last = simple(i + 1, 1);
    if (first === null || last === null) return null;
    if (!['(', ','].includes(all[first - 1].text) || ![')', ','].includes(all[last + 1].text)) return null;
    // In a call, so that its value can be chosen.
    let open = first - 1;
    while (open > 0 && !'([{'.includes(all[open].text))
        open = ')]}'.includes(all[open].text) ? all[open].other - 1 : open - 1;
    if (all[open].text !== '(') return null;
    if (
        all[open - 1]?.kind !== 'word' ||
        is_word(all[open - 1], 'if', 'for', 'while', 'switch', 'sizeof', 'return')
    )
        return null;
    const close = all[open].other,
        name = all[open - 1].text;
    if (
        /^[A-Z_0-9]+$/.test(name) ||
        close === undefined ||
        !['.', '->'].every((mark) => all[open - 2]?.text !== mark)
    )
        return null;
    const left = text_of(source, all, first, i - 1),
        right = text_of(source, all, i + 1, last);
    if (left === right || [left, right].includes('NULL')) return null;
    const mutated =
        source.slice(all[open - 1].start, all[first].start) +
        `${right}, ${left}` +
        source.slice(all[last].end, all[close].end);
    return { first: open - 1, last: close, mutated };
}

function off_by_one(source, all, i) {
    if (all[i].text !== '1' || !['+', '-'].includes(all[i - 1]?.text)) return null;
    if (!['word', 'number'].includes(all[i - 2]?.kind) && ![')', ']'].includes(all[i - 2]?.text)) return null;
    return { first: i, last: i, mutated: '0' };
}

function returned(source, all, i) {
    if (
        !is_word(all[i], 'return') ||
        !all[i].of.type.some((word) => /^(sm_err|semel_err)$/.test(word)) ||
        all[i].of.type.includes('*')
    )
        return null;
    let last = i;
    while (all[last + 1].text !== ';')
        last = '([{'.includes(all[last + 1].text) ? all[last + 1].other : last + 1;
    if (last === i || is_word(all[i + 1], 'SM_OK', 'SEMEL_OK', 'SEMEL_E_NOMEM')) return null; // no test takes memory away
    return { first: i + 1, last, mutated: `((void)(${text_of(source, all, i + 1, last)}), SM_OK)` };
}

function constant(source, all, i) {
    if (!is_word(all[i], 'true', 'false')) return null;
    return { first: i, last: i, mutated: all[i].text === 'true' ? 'false' : 'true' };
}

export const operators = {
    bound: compared(bounds, 'bound'),
    equal: compared(equals, 'equal'),
    logic: compared(logic, 'logic'),
    'ignored error': ignored,
    'returned error': returned,
    'dropped check': dropped_check,
    'dropped call': dropped_call,
    'swapped arguments': swapped,
    'off by one': off_by_one,
    constant,
};

// Tokens that must stay: of declarations that have to be constant, of cases and of assertions. (So do
// functions that are nothing but an assertion: their names end with _flaw.)
function fixed(all, i) {
    const first = statement(all, i);
    for (let k = first; k <= i; k++) {
        if (is_word(all[k], 'static', 'case', 'assert', '_Static_assert', 'enum')) return true;
        if (all[k].text === '?' || all[k].text === '{') break;
    }
    return false;
}

// Every mistake that could be planted in a source.
export function candidates(path, source, all) {
    const found = [],
        seen = new Map();
    for (let i = 0; i < all.length; i++) {
        if (all[i].of === undefined || /_flaw$/.test(all[i].of.name) || fixed(all, i)) continue;
        for (const [operator, look] of Object.entries(operators)) {
            const what = look(source, all, i);
            if (what === null) continue;
            const start = all[what.first].start,
                end = all[what.last].end;
            const original = source.slice(start, end);
            const name = `${path}: ${operator}: ${squeeze(original)} -> ${squeeze(what.mutated)}`;
            seen.set(name, (seen.get(name) ?? 0) + 1);
            found.push({
                path,
                operator,
                start,
                end,
                original,
                mutated: what.mutated,
                with: what.with,
                line: source.slice(0, start).split('\n').length,
                name: seen.get(name) > 1 ? `${name} (${seen.get(name)})` : name,
            });
        }
    }
    return found;
}

export const squeeze = (text) => text.replace(/\s+/g, ' ');
