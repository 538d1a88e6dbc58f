// Random JSON documents, and what an independent RFC 8785 implementation makes of them.
//
//     node random_documents.mjs COUNT SEED DOCUMENTS FORMS
//
// Writes COUNT documents to the file DOCUMENTS, one to a line, and to the file FORMS the peer's
// canonical form of each. The same seed gives the same documents.
//
// Integers beyond 2^53 that are not what ECMAScript would write are left out: Semel keeps those
// exact, on purpose, where RFC 8785 rounds them.
import { closeSync, openSync, writeSync } from 'node:fs';
import canonicalize from 'canonicalize';

const [count, seed, documentsPath, formsPath] = process.argv.slice(2);

let state = Number(seed) >>> 0;

// 32 bits at a time: a counter, mixed.
function bits() {
  state = (state + 0x9e3779b9) >>> 0;
  let z = state;
  z = Math.imul(z ^ (z >>> 16), 0x85ebca6b);
  z = Math.imul(z ^ (z >>> 13), 0xc2b2ae35);
  return (z ^ (z >>> 16)) >>> 0;
}

const below = (n) => Math.floor((bits() / 2 ** 32) * n);
const between = (low, high) => low + below(high - low + 1);
const chance = (one, outOf) => below(outOf) < one;
const pick = (list) => list[below(list.length)];

// Space between tokens; no line feed, since a document is one line.
function space() {
  if (!chance(1, 4)) return '';
  let text = '';
  for (let n = between(1, 3); n > 0; n--) text += pick([' ', '\t', '\r']);
  return text;
}

const ranges = [
  [0x20, 0x7e], [0x20, 0x7e], [0x20, 0x7e], [0x00, 0x1f], [0x22, 0x22], [0x5c, 0x5c], [0x2f, 0x2f],
  [0x7f, 0x9f], [0xa0, 0x24f], [0x300, 0x36f], [0x370, 0x7ff], [0x800, 0xfff], [0x2000, 0x206f],
  [0x2028, 0x2029], [0x20ac, 0x20ac], [0x3040, 0x30ff], [0x4e00, 0x9fff], [0xac00, 0xd7a3],
  [0xd7b0, 0xd7ff], [0xe000, 0xf8ff], [0xfb00, 0xfdff], [0xfe00, 0xfeff], [0xff00, 0xffff],
  [0x10000, 0x103ff], [0x1f600, 0x1f64f], [0x20000, 0x2ffff], [0xe0000, 0xe01ff],
  [0x100000, 0x10ffff],
];
const character = () => String.fromCodePoint(between(...pick(ranges)));
const brief = new Map(Object.entries({
  '"': '\\"',
  '\\': '\\\\',
  '/': '\\/',
  '\b': '\\b',
  '\f': '\\f',
  '\n': '\\n',
  '\r': '\\r',
  '\t': '\\t',
}));

function escapedUnit(unit) {
  let hex = unit.toString(16).padStart(4, '0');
  if (chance(1, 2)) hex = hex.toUpperCase();
  return '\\u' + hex;
}

function spelled(one) {
  const mustEscape = one < ' ' || one === '"' || one === '\\';
  if (brief.has(one) && chance(1, 2)) return brief.get(one);
  if (!mustEscape && !chance(1, 8)) return one;
  let text = '';
  for (let i = 0; i < one.length; i++) text += escapedUnit(one.charCodeAt(i));
  return text;
}

const quoted = (characters) => '"' + characters.map(spelled).join('') + '"';

function characters() {
  const list = [];
  for (let n = chance(1, 40) ? between(20, 80) : below(8); n > 0; n--) list.push(character());
  return list;
}

// digits x 10^exponent with the decimal point somewhere, perhaps with superfluous zeros.
function literal(digits, exponent) {
  let text;
  const point = between(0, digits.length);
  let shift = exponent + digits.length - point;
  if (exponent < 0 && exponent > -25 && chance(1, 2)) {
    // without an exponent
    const padded = digits.padStart(1 - exponent, '0');
    text = padded.slice(0, exponent) + '.' + padded.slice(exponent);
    shift = 0;
  } else if (point === 0) {
    text = '0.' + digits;
  } else {
    text = digits.slice(0, point) + (point < digits.length ? '.' + digits.slice(point) : '');
  }
  text = text.replace(/^0+(?=\d)/, '');
  if (chance(1, 4)) text += text.includes('.') ? '0'.repeat(between(1, 5)) : '.0';
  if (shift !== 0 || chance(1, 8)) {
    text += pick(['e', 'E']) + (shift < 0 ? '-' : pick(['', '+'])) + pick(['', '', '0', '00'])
      + Math.abs(shift);
  }
  return text;
}

function digitString(length) {
  let text = String(between(1, 9));
  while (text.length < length - 1) text += below(10);
  return length > 1 ? text + between(1, 9) : text;
}

function anyDouble() {
  const view = new DataView(new ArrayBuffer(8));
  do {
    view.setUint32(0, bits());
    view.setUint32(4, bits());
    if (chance(1, 8)) view.setUint32(0, view.getUint32(0) & 0x800fffff); // subnormal
    if (chance(1, 8)) { // a power of two
      view.setUint32(0, view.getUint32(0) & 0xfff00000);
      view.setUint32(4, 0);
    }
  } while (!Number.isFinite(view.getFloat64(0)));
  return view.getFloat64(0);
}

const edges = [
  '0', '0.0', '0e0', '0.000E+5', '0e-7', '1', '1.0', '1e0', '10e-1', '1e-400', '1e20', '1e21', '1e22',
  '1e23', '1e-6', '1e-7', '9007199254740991', '9007199254740992', '0.1', '0.3', '5e-324', '2e-324',
  '3e-324', '1.7976931348623157e308', '2.2250738585072014e-308', '2.2250738585072011e-308',
  '123456789012345680000', '0.30000000000000004', '5.684341886080802e-14',
];

function number() {
  const sign = chance(1, 3) ? '-' : '';
  switch (below(8)) {
    case 0: return sign + below(100);
    case 1: return sign + between(0, Number.MAX_SAFE_INTEGER);
    case 2: return sign + pick(edges);
    case 3: { // up to 15 digits: exact at any exponent
      const length = between(1, 15);
      return sign + literal(digitString(length), between(-345, 307 - length));
    }
    case 4: // longer fractions
      return sign + literal(digitString(between(16, 40)), between(-345, -1));
    case 5: // 17 digits, as many programs print a double
      return sign + literal(digitString(17), between(-25, -1));
    case 6: { // any double as ECMAScript writes it
      return String(anyDouble());
    }
    default: { // a double with more digits than it needs
      const value = anyDouble();
      if (Math.abs(value) >= 2 ** 53) return String(value);
      if (chance(1, 2)) return value.toExponential(between(16, 30));
      return value.toPrecision(between(17, 30));
    }
  }
}

const prefixes = [
  '', '', '', 'a', 'name_', 'a common beginning ', '12345678', '\u00e9t\u00e9', '\ufb33', '\ud83d\ude00',
];
const oddNames = ['__proto__', 'toJSON', 'constructor', 'length', '', '0', '10', '9', '-1'];

// How many members or elements; the document itself has at least one.
function sizeAt(depth, many) {
  if (chance(1, 25)) return between(many, 40);
  return depth < 2 ? between(depth === 0 ? 1 : 0, 6) : below(4);
}

function object(depth) {
  const size = sizeAt(depth, 17);
  const names = new Map();
  const prefix = pick(prefixes);
  while (names.size < size) {
    let name;
    if (chance(1, 30)) name = [...pick(oddNames)];
    else if (chance(1, 2)) name = [...(prefix + below(1000))];
    else name = [...prefix, ...characters()];
    names.set(name.join(''), name);
  }
  const members = [...names.values()].map((name) => ({ name, order: bits() }));
  members.sort((a, b) => a.order - b.order);
  const texts = members.map(
    ({ name }) => space() + quoted(name) + space() + ':' + value(depth + 1),
  );
  return '{' + (texts.length > 0 ? texts.join(',') : space()) + '}';
}

function array(depth) {
  const texts = [];
  for (let size = sizeAt(depth, 10); size > 0; size--) texts.push(value(depth + 1));
  return '[' + (texts.length > 0 ? texts.join(',') : space()) + ']';
}

function nested(depth) {
  let text = value(depth + 8);
  for (let n = between(1, 100 - depth); n > 0; n--) {
    text = chance(1, 2) ? `[${text}]` : `{${quoted(characters())}:${text}}`;
  }
  return text;
}

function value(depth) {
  let text;
  const kind = below(depth < 2 ? 14 : depth < 7 ? 12 : 9); // containers are rarer below
  if (kind < 1) text = 'null';
  else if (kind < 2) text = pick(['true', 'false']);
  else if (kind < 5) text = quoted(characters());
  else if (kind < 9) text = number();
  else if (kind < 13 && chance(1, 2)) text = array(depth);
  else if (kind < 13 || !chance(1, 4)) text = object(depth);
  else text = nested(depth);
  return space() + text + space();
}

// Most documents are containers: scalars alone are soon exhausted.
function root() {
  if (chance(1, 30)) return value(0);
  return space() + (chance(1, 2) ? object(0) : array(0)) + space();
}

const documents = openSync(documentsPath, 'w');
const forms = openSync(formsPath, 'w');
for (let done = 0; done < Number(count);) {
  const texts = [];
  for (; texts.length < 1000 && done < Number(count); done++) texts.push(root());
  writeSync(documents, texts.join('\n') + '\n');
  writeSync(forms, texts.map((text) => canonicalize(JSON.parse(text))).join('\n') + '\n');
}
closeSync(documents);
closeSync(forms);
