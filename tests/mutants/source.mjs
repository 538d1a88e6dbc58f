// A C source as tokens, and which of them are inside of functions. It knows as much of C as the
// operators need: no macros are expanded, and what it does not understand is left alone.

const pattern = new RegExp(
    [
        String.raw`(?<blank>\s+|\/\*[^]*?\*\/|\/\/[^\n]*)`,
        String.raw`(?<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')`,
        String.raw`(?<word>[A-Za-z_]\w*)`,
        String.raw`(?<number>\.?\d(?:[eEpP][+-]|[\w.])*)`,
        String.raw`(?<mark>->|\+\+|--|<<=|>>=|\.\.\.|<<|>>|[<>=!+*\/%&|^-]=|&&|\|\||.)`,
    ].join('|'),
    'gy',
);

// Tokens without blanks. A directive of the preprocessor is one token.
function tokens(text) {
    const found = [];
    let at = 0;
    while (at < text.length) {
        const start = text.lastIndexOf('\n', at - 1) + 1;
        if (text[at] === '#' && text.slice(start, at).trim() === '') {
            let end = at;
            do end = text.indexOf('\n', end + 1);
            while (end > 0 && text[end - 1] === '\\');
            end = end < 0 ? text.length : end;
            found.push({ kind: 'directive', text: text.slice(at, end), start: at, end });
            at = end;
            continue;
        }
        pattern.lastIndex = at;
        const match = pattern.exec(text);
        const kind = Object.keys(match.groups).find((name) => match.groups[name] !== undefined);
        const end = at + match[0].length;
        if (kind !== 'blank') found.push({ kind, text: match[0], start: at, end });
        at = end;
    }
    return found;
}

const closing = { '(': ')', '[': ']', '{': '}' };

// Each bracket's counterpart.
function pair(all) {
    const open = [];
    all.forEach((token, i) => {
        if (token.kind !== 'mark') return;
        if (closing[token.text]) open.push(i);
        else if (')]}'.includes(token.text)) {
            token.other = open.pop();
            if (token.other !== undefined) all[token.other].other = i;
        }
    });
}

// Marks the tokens of bodies with the function that they are of: its type, as words, and its name.
function mark_bodies(all) {
    for (let i = 0; i < all.length; i++) {
        if (all[i].text !== '{' || all[i].other === undefined) continue;
        const body = all[i - 1]?.text === ')';
        if (body) {
            let start = all[i - 1].other - 1;
            while (start > 0 && (all[start - 1].kind === 'word' || all[start - 1].text === '*')) start--;
            const type = all.slice(start, all[i - 1].other - 1).map((token) => token.text);
            const name = all[all[i - 1].other - 1]?.text;
            for (let k = i + 1; k < all[i].other; k++) all[k].of = { type, name };
        }
        i = all[i].other; // a structure, a table, or the body: over
    }
}

export function read(text) {
    const all = tokens(text);
    pair(all);
    mark_bodies(all);
    return all;
}

// The first token of the statement that this one is in.
export function statement(all, i) {
    while (i > 0) {
        const before = all[i - 1];
        if (before.text === ';' || before.text === '{' || before.text === '}' || before.kind === 'directive')
            break;
        i = ')]'.includes(before.text) && before.other !== undefined ? before.other : i - 1;
        if (all[i].text === '(' && ['if', 'for', 'while', 'switch'].includes(all[i - 1]?.text)) return i - 1;
    }
    return i;
}

// From where to where the operands of an operator reach: up to one of `ends` on the same level.
export function operands(all, i, ends) {
    const brackets = ['(', '[', '{', '}', ';', ',', '?', ':', 'return', 'case'];
    const assigns = (token) => token.kind === 'mark' && /^([-+*/%&|^]|<<|>>)?=$/.test(token.text);
    const stops = (token) =>
        brackets.includes(token.text) ||
        ends.includes(token.text) ||
        assigns(token) ||
        token.kind === 'directive';
    let first = i;
    while (first > 0) {
        const before = all[first - 1];
        if ((before.text === ')' || before.text === ']') && before.other !== undefined) first = before.other;
        else if (stops(before)) break;
        else first--;
    }
    let last = i;
    while (last + 1 < all.length) {
        const after = all[last + 1];
        if ((after.text === '(' || after.text === '[') && after.other !== undefined) last = after.other;
        else if (stops(after) || after.text === ')' || after.text === ']') break;
        else last++;
    }
    return first < i && last > i ? [first, last] : null;
}
