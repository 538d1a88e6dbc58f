// Messages that two readers may read differently. Each looks harmless or broken to one reader, and is a
// call of the tool `pay` for another. A few are plain calls, which show that the servers count.
//
// A case is { name, body, type?, coding?, headers?, http? }. The arguments in `body` have `to` with the
// case's own tag, and its ids are its own. `http`: it has line feeds, or its label matters, so it can only
// be sent over HTTP.

import zlib from 'node:zlib';

const cases = [];

// `make` gets the tag and an id, and returns text or bytes.
function add(name, make, more = {}) {
    const tag = `case-${cases.length}`;
    const body = make(tag, cases.length + 1000);
    cases.push({ name, tag, body: Buffer.isBuffer(body) ? body : Buffer.from(body), ...more });
}

const json = JSON.stringify;
const call = (tag, id, name = 'pay') => ({ jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: { to: tag } } });
const params = (tag, name = 'pay') => json({ name, arguments: { to: tag } });

// ---- names: other spellings, as they stand between the quotes

const unit = (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`;
const spellings = {
    'in capitals': (s) => s.toUpperCase(),
    'with a capital': (s) => s[0].toUpperCase() + s.slice(1),
    'with one capital inside': (s) => s.slice(0, -1) + s.at(-1).toUpperCase(),
    'in escaped capitals': (s) => [...s.toUpperCase()].map(unit).join(''),
    'with a long s': (s) => s.replaceAll('s', '\u017f'),
    'with an escaped long s': (s) => s.replaceAll('s', '\\u017f'),
    'with a Kelvin sign': (s) => s.replaceAll('k', '\u212a'),
    'with a dotless i': (s) => s.replaceAll('i', '\u0131'),
    'with a dotted I': (s) => s.replaceAll('i', '\u0130'),
    'with a NUL behind': (s) => `${s}\\u0000`,
    'with a NUL and more behind': (s) => `${s}\\u0000x`,
    'with a NUL before': (s) => `\\u0000${s}`,
    'with an underscore before': (s) => `_${s}`,
    'with an underscore behind': (s) => `${s}_`,
    'with underscores': (s) => [...s].join('_'),
    'with a dash': (s) => `${s.slice(0, 2)}-${s.slice(2)}`,
    'with a blank before': (s) => ` ${s}`,
    'with a blank behind': (s) => `${s} `,
    'with a tab behind': (s) => `${s}\\t`,
    'with a line feed behind': (s) => `${s}\\n`,
    'with a byte order mark': (s) => `\ufeff${s}`,
    'with a joiner': (s) => `${s.slice(0, 1)}\u200d${s.slice(1)}`,
    'with half a surrogate pair': (s) => `${s}\\ud800`,
    'with a replacement character': (s) => `${s}\ufffd`,
    'in wide letters': (s) => [...s].map((c) => String.fromCharCode(c.charCodeAt(0) + 0xfee0)).join(''),
    'as it is': (s) => s,
    'escaped': (s) => [...s].map(unit).join(''),
};
const each = (name, make) => {
    for (const [how, spell] of Object.entries(spellings))
        if (spell(name) !== name || how === 'as it is') make(how, spell(name));
};

each('method', (how, name) => {
    add(`a second method, ${how}`, (tag, id) =>
        `{"jsonrpc":"2.0","id":${id},"method":"ping","params":${params(tag)},"${name}":"tools/call"}`);
    add(`a method before it, ${how}`, (tag, id) =>
        `{"jsonrpc":"2.0","id":${id},"${name}":"tools/call","params":${params(tag)},"method":"ping"}`);
    if (how !== 'as it is' && how !== 'escaped')
        add(`no method but one ${how}`, (tag, id) => `{"jsonrpc":"2.0","id":${id},"${name}":"tools/call","params":${params(tag)}}`);
    add(`a result with a method, ${how}`, (tag, id) =>
        `{"jsonrpc":"2.0","id":${id},"result":{},"${name}":"tools/call","params":${params(tag)}}`);
});
each('params', (how, name) => {
    add(`second params, ${how}`, (tag, id) =>
        `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":${params(tag, 'look')},"${name}":${params(tag)}}`);
    add(`params before, ${how}`, (tag, id) =>
        `{"jsonrpc":"2.0","id":${id},"method":"tools/call","${name}":${params(tag)},"params":${params(tag, 'look')}}`);
    if (how !== 'as it is' && how !== 'escaped')
        add(`no params but some ${how}`, (tag, id) => `{"jsonrpc":"2.0","id":${id},"method":"tools/call","${name}":${params(tag)}}`);
});
each('name', (how, name) => {
    add(`a second tool, ${how}`, (tag, id) =>
        `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"look","${name}":"pay","arguments":{"to":"${tag}"}}}`);
    add(`a tool before, ${how}`, (tag, id) =>
        `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"${name}":"pay","name":"look","arguments":{"to":"${tag}"}}}`);
    if (how !== 'as it is' && how !== 'escaped')
        add(`no tool but one ${how}`, (tag, id) =>
            `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"${name}":"pay","arguments":{"to":"${tag}"}}}`);
});
for (const member of ['jsonrpc', 'id', 'result', 'error'])
    each(member, (how, name) => {
        const value = { jsonrpc: '"2.0"', id: '1', result: '{}', error: '{"code":1,"message":"x"}' }[member];
        if (how.startsWith('in capitals') || how.startsWith('with an under') || how.startsWith('as it'))
            add(`a second ${member}, ${how}, of a call`, (tag, id) =>
                `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":${params(tag)},"${name}":${value}}`);
    });

// ---- values

for (const method of [
    'Tools/Call', 'TOOLS/CALL', 'tools/call ', ' tools/call', 'tools/call\\u0000', 'tools/call\\u0000/x', 'tools\\/call', 'tools/call\\n',
    'tool\u017f/call', 'tools//call', '/tools/call', 'tools/call/', 'tools.call', 'tools_call', 'tools/c\\u0061ll', 'tools/call?', 'tools/call#',
    '\ufefftools/call', 'tools/call\u200b', 'tools/call\\ud800', 'callTool', 'call_tool', 'tools/list/../call',
])
    add(`the method ${json(method)}`, (tag, id) => `{"jsonrpc":"2.0","id":${id},"method":"${method}","params":${params(tag)}}`);
for (const tool of ['Pay', 'PAY', 'pay ', ' pay', 'pay\\u0000', 'pay\\u0000x', 'p\\u0061y', 'pay\\n', 'pay\u200b', '\ufeffpay', 'pay\\ud800', 'p-ay', 'pay_'])
    add(`the tool ${json(tool)}`, (tag, id) =>
        `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"${tool}","arguments":{"to":"${tag}"}}}`);
for (const id of ['1.0', '1e0', '1e400', '-0', '-1', '9007199254740993', '18446744073709551616', 'null', 'true', '{}', '[1]', '"\\ud800"', '"\\u0000"', '01', '+1', '0x1', '""', 'NaN'])
    add(`a call with the id ${id}`, (tag) => `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":${params(tag)}}`);
add('a call without an id', (tag) => `{"jsonrpc":"2.0","method":"tools/call","params":${params(tag)}}`);
for (const version of ['"1.0"', '2.0', '2', '"2"', '"2.00"', 'null', '["2.0"]', '"2.0\\u0000"', '" 2.0"'])
    add(`a call of version ${version}`, (tag, id) => `{"jsonrpc":${version},"id":${id},"method":"tools/call","params":${params(tag)}}`);
add('a call without a version', (tag, id) => `{"id":${id},"method":"tools/call","params":${params(tag)}}`);
for (const method of ['["tools/call"]', '{"toString":"tools/call"}', '{"":"tools/call"}', 'null', 'true', '0'])
    add(`the method ${method}`, (tag, id) => `{"jsonrpc":"2.0","id":${id},"method":${method},"params":${params(tag)}}`);
for (const [what, text] of Object.entries({
    'in order': (tag) => `["pay",{"to":"${tag}"}]`, 'in an array': (tag) => `[${params(tag)}]`, 'as text': (tag) => json(params(tag)),
    'null': () => 'null', 'that are empty': () => '{}',
    'with the tool in an array': (tag) => `{"name":["pay"],"arguments":{"to":"${tag}"}}`,
    'with the tool in an object': (tag) => `{"name":{"name":"pay"},"arguments":{"to":"${tag}"}}`,
    'with arguments as text': (tag) => `{"name":"pay","arguments":${json(json({ to: tag }))}}`,
    'with arguments in an array': (tag) => `{"name":"pay","arguments":["${tag}"]}`,
    'with arguments null': () => '{"name":"pay","arguments":null}',
    'with the tool behind __proto__': (tag) => `{"__proto__":{"name":"pay"},"arguments":{"to":"${tag}"}}`,
    'with __proto__ beside the tool': (tag) => `{"name":"look","__proto__":{"name":"pay"},"arguments":{"to":"${tag}"}}`,
    'with a path for a name': (tag) => `{"name":"look","arguments":{"to":"${tag}"},"params.name":"pay","name[0]":"pay"}`,
    'with a params of their own': (tag) => `{"name":"look","arguments":{"to":"${tag}"},"params":${params(tag)}}`,
    'with other words for the tool': (tag) => `{"tool":"pay","toolName":"pay","tool_name":"pay","arguments":{"to":"${tag}"},"input":{"to":"${tag}"}}`,
    'with a method of their own': (tag) => `{"method":"tools/call","name":"look","arguments":{"to":"${tag}"}}`,
}))
    add(`a call with params ${what}`, (tag, id) => `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":${text(tag)}}`);
add('a method behind __proto__', (tag, id) => `{"jsonrpc":"2.0","id":${id},"__proto__":{"method":"tools/call","params":${params(tag)}}}`);
add('a call behind __proto__', (tag, id) => `{"__proto__":${json(call(tag, id))}}`);
add('a call behind __proto__ of a ping', (tag, id) => `{"jsonrpc":"2.0","id":${id},"method":"ping","__proto__":${json(call(tag, id))}}`);
add('a call behind constructor', (tag, id) => `{"jsonrpc":"2.0","id":${id},"method":"ping","constructor":{"prototype":${json(call(tag, id))}}}`);
add('a call as root', (tag, id) => `{"root":${json(call(tag, id))}}`);
add('a call as message', (tag, id) => `{"message":${json(call(tag, id))},"jsonrpc":"2.0","id":${id},"method":"ping"}`);
add('no name at all', (tag, id) => `{"":"tools/call","jsonrpc":"2.0","id":${id},"params":${params(tag)}}`);

// ---- batches

const hidden = (tag, id) => `{"jsonrpc":"2.0","id":${id},"method":"ping","Method":"tools/call","params":${params(tag)}}`;
const one = (tag, id) => json(call(tag, id));
for (const [what, text] of Object.entries({
    'of one call': (tag, id) => `[${one(tag, id)}]`,
    'of a ping and a call': (tag, id) => `[{"jsonrpc":"2.0","id":"p${id}","method":"ping"},${one(tag, id)}]`,
    'of a hidden call': (tag, id) => `[${hidden(tag, id)}]`,
    'of a ping and a hidden call': (tag, id) => `[{"jsonrpc":"2.0","id":"p${id}","method":"ping"},${hidden(tag, id)}]`,
    'of a notification and a hidden call': (tag, id) => `[{"jsonrpc":"2.0","method":"notifications/x"},${hidden(tag, id)}]`,
    'in a batch': (tag, id) => `[[${one(tag, id)}]]`,
    'in a batch, beside a ping': (tag, id) => `[{"jsonrpc":"2.0","id":"p${id}","method":"ping"},[${one(tag, id)}]]`,
    'with rubbish': (tag, id) => `[1,null,"x",${one(tag, id)}]`,
    'with a comma too much': (tag, id) => `[${one(tag, id)},]`,
    'that is an object': (tag, id) => `{"0":${one(tag, id)},"length":1}`,
    'that is empty, and a call': (tag, id) => `[]${one(tag, id)}`,
    'of a hidden tool': (tag, id) => `[{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"look","Name":"pay","arguments":{"to":"${tag}"}}}]`,
}))
    add(`a batch ${what}`, text);

// ---- text that is not quite JSON, or more than one

const pinged = (id) => `{"jsonrpc":"2.0","id":"p${id}","method":"ping"}`;
for (const [what, join] of Object.entries({
    'with nothing between': '', 'with a blank between': ' ', 'with a comma between': ',', 'with a carriage return between': '\r',
    'with a vertical tab between': '\v', 'with a form feed between': '\f', 'with a file separator between': '\x1c',
    'with a group separator between': '\x1d', 'with a record separator between': '\x1e', 'with U+0085 between': '\u0085',
    'with U+2028 between': '\u2028', 'with U+2029 between': '\u2029', 'with a NUL between': '\0', 'with a byte order mark between': '\ufeff',
    'with a semicolon between': ';', 'with an end of text between': '\x04', 'with a substitute between': '\x1a',
})) {
    add(`a ping and a call ${what}`, (tag, id) => `${pinged(id)}${join}${one(tag, id)}`);
    add(`a ping that holds a call, ${what}`, (tag, id) => `{"jsonrpc":"2.0","id":${id},"method":"ping","params":{"x":[${join}${one(tag, id)}${join}]}}`);
    add(`a ping with text, ${what}`, (tag, id) => `{"jsonrpc":"2.0","id":"p${id}","method":"ping","params":{"x":"${join}"}}`);
}
add('a ping and a call with a line feed between', (tag, id) => `${pinged(id)}\n${one(tag, id)}`, { http: true });
add('a ping that holds a call, on lines', (tag, id) => `{"jsonrpc":"2.0","id":${id},"method":"ping","params":{"x":[\n${one(tag, id)}\n]}}`, { http: true });
for (const [what, wrap] of Object.entries({
    'behind a byte order mark': (s) => `\ufeff${s}`, 'behind two of them': (s) => `\ufeff\ufeff${s}`, 'behind a NUL': (s) => `\0${s}`,
    'with a NUL behind': (s) => `${s}\0`, 'behind a comment': (s) => `/* */${s}`, 'with a comment behind': (s) => `${s}// x`,
    'behind a hash': (s) => `# x\r${s}`, 'in single quotes': (s) => s.replaceAll('"', '\''), 'without quotes': (s) => s.replace('"method"', 'method'),
    'with a comma too much': (s) => s.replace(/\}$/, ',}'), 'with an equals sign': (s) => s.replace('"method":', '"method"='),
    'behind a length': (s) => `Content-Length: ${s.length}\r\r${s}`, 'behind a prefix of others': (s) => `)]}',\r${s}`, 'as data of an event': (s) => `data: ${s}`,
    'in parentheses': (s) => `(${s})`, 'as text': (s) => json(s), 'as text of text': (s) => json(json(s)), 'half of it': (s) => s.slice(0, -1),
    'with more brackets': (s) => `${s}}`, 'with a brace before': (s) => `{${s}`, 'with a number that is infinite': (s) => s.replace('"params"', '"x":1e999,"params"'),
    'with Infinity': (s) => s.replace('"params"', '"x":Infinity,"params"'), 'with NaN': (s) => s.replace('"params"', '"x":NaN,"params"'),
    'with a huge number': (s) => s.replace('"params"', `"x":${'9'.repeat(5000)},"params"`),
    'with leading zeros': (s) => s.replace('"params"', '"x":007,"params"'), 'with hex': (s) => s.replace('"params"', '"x":0x7,"params"'),
    'with a raw tab in a string': (s) => s.replace('"params"', '"x":"\t","params"'), 'with a raw control in a string': (s) => s.replace('"params"', '"x":"\x01","params"'),
    'with half a pair in a string': (s) => s.replace('"params"', '"x":"\\ud800","params"'), 'with an unknown escape': (s) => s.replace('"params"', '"x":"\\x41","params"'),
    'with DEL in a string': (s) => s.replace('"params"', '"x":"\x7f","params"'), 'with True': (s) => s.replace('"params"', '"x":True,"params"'),
    'in capitals': (s) => s.toUpperCase(),
    ...Object.fromEntries([100, 190, 210, 900, 1030, 5000].map((deep) =>
        [`with ${deep} levels`, (s) => s.replace('"params"', `"x":${'['.repeat(deep)}${']'.repeat(deep)},"params"`)])),
}))
    add(`a call ${what}`, (tag, id) => wrap(one(tag, id)));

const bytes = (...parts) => Buffer.concat(parts.map((part) => (typeof part === 'string' ? Buffer.from(part) : Buffer.from(part))));
for (const [what, make] of Object.entries({
    'a wrong byte in a string': (tag, id) => bytes(one(tag, id).slice(0, -1), ',"x":"', [0xff], '"}'),
    'a wrong byte in a name': (tag, id) => bytes(`{"jsonrpc":"2.0","id":${id},"method":"ping","method`, [0xff], `":"tools/call","params":${params(tag)}}`),
    'a wrong byte outside': (tag, id) => bytes([0xff], one(tag, id)),
    'an overlong quote': (tag, id) => bytes(`{"jsonrpc":"2.0","id":${id},"method":"ping","x":"`, [0xc0, 0xa2], `,"method":"tools/call","params":${params(tag)}}`),
    'an encoded surrogate': (tag, id) => bytes(one(tag, id).slice(0, -1), ',"x":"', [0xed, 0xa0, 0x80], '"}'),
    'Latin 1': (tag, id) => bytes(one(tag, id).slice(0, -1), ',"x":"', [0xe4], '"}'),
}))
    add(`a call with ${what}`, make);
for (const encoding of ['utf16le', 'utf16be', 'utf32le', 'utf32be'])
    for (const mark of ['', '\ufeff'])
        add(`a call in ${encoding}${mark && ' with a mark'}`, (tag, id) => encode(mark + one(tag, id), encoding), { http: true });

function encode(text, encoding) {
    const little = Buffer.from(text, 'utf16le');
    if (encoding === 'utf16le') return little;
    if (encoding === 'utf16be') return little.swap16();
    const wide = Buffer.concat([...text].map((c) => Buffer.from([c.charCodeAt(0) & 255, c.charCodeAt(0) >> 8, 0, 0])));
    return encoding === 'utf32le' ? wide : wide.swap32();
}

// ---- labels: a body that is a ping in UTF-8 and a call in UTF-7, and calls in other encodings

const seven = (s) => `+${Buffer.from(s, 'utf16le').swap16().toString('base64').replace(/=+$/, '')}-`;
const polyglot = (tag, id) => `{"jsonrpc":"2.0","id":${id},"method":"ping","params":{"x":"${
    seven(`"},"method":"tools/call","params":{"name":"pay","arguments":{"to":"${tag}"},"y":"`)}"}}`;
for (const type of [
    'application/json; charset=utf-7', 'application/json; charset = utf-7', 'application/json;charset="utf-7"', 'application/json; charset=utf-8; charset=utf-7',
    'application/json; charset=utf-7; charset=utf-8', 'application/json; xcharset=utf-7', 'application/json; charset=UTF-7', 'text/json; charset=utf-7',
    'application/json; charset=unicode-1-1-utf-7', 'application/json; charset=utf-7-imap',
])
    add(`UTF-7 as ${type}`, polyglot, { http: true, type });
for (const encoding of ['utf16le', 'utf16be', 'utf32le', 'utf32be'])
    add(`${encoding} as such`, (tag, id) => encode(one(tag, id), encoding), { http: true, type: `application/json; charset=${encoding.replace('utf', 'utf-')}` });
for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'application/vnd.api+json', 'application/json-rpc', 'application/cbor', '*/*', ''])
    add(`a call as ${type || 'nothing'}`, one, { http: true, type });
for (const [coding, pack] of Object.entries({ gzip: zlib.gzipSync, deflate: zlib.deflateSync, br: zlib.brotliCompressSync }))
    add(`a call in ${coding}`, (tag, id) => pack(one(tag, id)), { http: true, coding });

// ---- the era without sessions, where headers repeat the body

const version = '2026-07-28';
const envelope = json({ 'io.modelcontextprotocol/protocolVersion': version, 'io.modelcontextprotocol/clientCapabilities': {} });
const modern = (method, name) => ({
    http: true, headers: { 'mcp-protocol-version': version, 'mcp-method': method, ...(name && { 'mcp-name': name }) },
});
const paramsNow = (tag, name = 'pay', more = '') => `{"name":"${name}","arguments":{"to":"${tag}"},"_meta":${envelope}${more}}`;
each('method', (how, name) => {
    for (const said of ['tools/call', 'ping'])
        add(`modern, a second method, ${how}, under headers of ${said}`, (tag, id) =>
            `{"jsonrpc":"2.0","id":${id},"method":"ping","params":${paramsNow(tag)},"${name}":"tools/call"}`, modern(said, 'pay'));
});
each('name', (how, name) => {
    for (const said of ['pay', 'look'])
        add(`modern, a second tool, ${how}, under headers of ${said}`, (tag, id) =>
            `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":${paramsNow(tag, 'look', `,"${name}":"pay"`)}}`, modern('tools/call', said));
});
each('_meta', (how, name) => add(`modern, a call with _meta ${how}`, (tag, id) =>
    `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"pay","arguments":{"to":"${tag}"},"${name}":${envelope}}}`, modern('tools/call', 'pay')));
add('modern, a call under headers of a read', (tag, id) => `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":${paramsNow(tag)}}`, modern('tools/call', 'look'));
add('modern, a read under headers of a call', (tag, id) => `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":${paramsNow(tag, 'look')}}`, modern('tools/call', 'pay'));
add('modern, a call under headers of a ping', (tag, id) => `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":${paramsNow(tag)}}`, modern('ping'));
add('modern, a plain call', (tag, id) => `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":${paramsNow(tag)}}`, modern('tools/call', 'pay'));

// ---- plain calls

for (let i = 0; i < 3; i++) add(`a plain call ${i}`, one, { plain: true });

export default cases;
