// Numbers, times and names as people read them.

/** A count, in full up to a million: 1,234. A string is already exact.
 * @param {number|string|undefined} n */
export function count(n) {
  if (n === undefined || n === null) return '–';
  if (typeof n === 'string') return n;
  if (Math.abs(n) < 1e6) return String(n).replace(/^(-?\d+)(\d{3})/, '$1,$2');
  const [unit, size] = Math.abs(n) < 1e9 ? ['M', 1e6] : ['G', 1e9];
  return threeDigits(n / size) + '\u2009' + unit;
}

/** At most three digits: 1.23, 12.3, 123.
 * @param {number} n */
function threeDigits(n) {
  const digits = Math.abs(n) >= 99.95 ? 0 : Math.abs(n) >= 9.995 ? 1 : 2;
  return n.toFixed(digits);
}

/** A rate per second, without its unit.
 * @param {number|undefined} n */
export function rate(n) {
  if (n === undefined) return '–';
  if (n < 0.05) return '0';
  return n < 10 ? n.toFixed(1).replace('.0', '') : count(Math.round(n));
}

/** A limit of so many per second, in a unit in which it is a round number: 100/s, 30/min, 1/h.
 * @param {number} n */
export function limitRate(n) {
  const round = (/** @type {number} */ x) => Number(x.toPrecision(x < 1000 ? 6 : 12));
  const units = [{ unit: '/s', x: n }, { unit: '/min', x: n * 60 }, { unit: '/h', x: n * 3600 }];
  const chosen = units.find(u => round(u.x) >= 1 && Math.abs(u.x * 100 - Math.round(u.x * 100)) <= 1e-4) ?? units.find(u => round(u.x) >= 1) ?? units[2];
  return count(round(chosen.x)) + chosen.unit;
}

/** A duration of this many seconds: 840 µs, 12 ms, 3.2 s, 4 min 10 s, 3 h 20 min, 2 d 4 h.
 * @param {number|undefined|null} s */
export function duration(s) {
  if (s === undefined || s === null) return '–';
  if (s === 0) return '0 s';
  if (s < 0.9995e-3) return Math.max(1, Math.round(s * 1e6)) + '\u202fµs';
  if (s < 0.9995) return threeDigits(s * 1e3) .replace(/\.0+$/, '') + '\u202fms';
  if (s < 59.95) return (s < 10 ? s.toFixed(1) : Math.round(s)) + '\u202fs';
  const two = (/** @type {number} */ big, /** @type {string} */ a, /** @type {number} */ small, /** @type {string} */ b) =>
    `${big}\u202f${a}` + (small ? ` ${small}\u202f${b}` : '');
  s = Math.round(s);
  if (s < 3600) return two(Math.floor(s / 60), 'min', s % 60, 's');
  if (s < 86400) return two(Math.floor(s / 3600), 'h', Math.floor(s % 3600 / 60), 'min');
  return two(Math.floor(s / 86400), 'd', Math.floor(s % 86400 / 3600), 'h');
}

/** A number of bytes.
 * @param {number|undefined} n */
export function bytes(n) {
  if (n === undefined) return '–';
  if (n < 1024) return `${n}\u202fB`;
  let unit = -1;
  do { n /= 1024; unit++; } while (n >= 1023.5 && unit < 4);
  return threeDigits(n) + '\u202f' + ['KiB', 'MiB', 'GiB', 'TiB', 'PiB'][unit];
}

/** Text for a line: line breaks, control characters and marks that would reverse the following text are escaped.
 * @param {string} s */
export const escapeLine = s => s.replace(/[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
  c => ({ '\n': '\\n', '\r': '\\r', '\t': '\\t' })[c] ?? '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));

/** A visible form of a name that a client chose: invisible characters are escaped, and a name with spaces at its ends is quoted.
 * @param {string} s */
export function visibleName(s) {
  s = escapeLine(s).replace(/[^\S ]|\u2800|(?<![\p{L}\p{M}\p{S}])[\u200c\u200d\ufe0f]|(?![\u200c\u200d\ufe0f])\p{DI}/gu, c => '\\u' + c.codePointAt(0)?.toString(16).padStart(4, '0'));
  return /^ | $/.test(s) ? `"${s}"` : s;
}

/** A text in which each word that contains a digit becomes "…", so that similar texts become equal.
 * @param {string} s */
export const pattern = s => s.slice(0, 200).replace(/[^\s"'(),;=]*\d(?:[^\s"'(),;=]*[^\s"'(),;=:.])?/g, '…');

/** The time of day.
 * @param {number} ms since 1970 */
export const timeOfDay = ms => new Date(ms).toLocaleTimeString('en-GB');

/** A time of the daemon, with the date if it is not today.
 * @param {string} at in RFC 3339 */
export function dateTime(at) {
  const t = new Date(at), day = t.toLocaleDateString('sv');
  return (day === new Date().toLocaleDateString('sv') ? '' : day + ' ') + t.toLocaleTimeString('en-GB') + '.' + String(t.getMilliseconds()).padStart(3, '0');
}

/** @param {number} n @param {string} one @param {string} [many] */
export const plural = (n, one, many = one + 's') => `${count(n)} ${n === 1 ? one : many}`;

/** Calls each for every token of a JSON text, with its position. A regular expression would run out of stack on long strings.
 * @param {string} json @param {(token: string, at: number) => void} each */
function eachToken(json, each) {
  const first = /["{}[\],:]|[^\s{}[\],:"]+/g;
  for (let m; (m = first.exec(json)); ) {
    if (m[0] !== '"') { each(m[0], m.index); continue; }
    let end = m.index + 1;
    for (; end < json.length && json[end] !== '"'; end++) if (json[end] === '\\') end++;
    each(json.slice(m.index, ++end), m.index);
    first.lastIndex = end;
  }
}

/** JSON formatted for reading. It is not parsed: numbers stay as written.
 * @param {string} json */
export function indent(json) {
  let out = '', depth = 0, before = '', room = 2_000_000; // spaces in all lines together
  const line = () => {
    const spaces = Math.min(2 * depth, 80, room);
    room -= spaces;
    return '\n' + ' '.repeat(spaces);
  };
  eachToken(json, t => {
    if (t === '}' || t === ']') {
      depth--;
      out += (before === '{' || before === '[' ? '' : line()) + t;
    } else {
      out += (before === '{' || before === '[' || before === ',' ? line() : '') + t + (t === ':' ? ' ' : '');
      if (t === '{' || t === '[') depth++;
    }
    before = t;
  });
  return out;
}

/** The members of a JSON object as written.
 * @param {string} json @returns {Record<string, string>} */
export function members(json) {
  /** @type {Record<string, string>} */
  const out = Object.create(null);
  let depth = 0, key = '', start = -1;
  eachToken(json, (t, at) => {
    if (t === '}' || t === ']') depth--;
    if (depth === 1 && t === ':' && start < 0) start = at + 1;
    else if (depth === 1 && start < 0 && t[0] === '"') key = JSON.parse(t);
    else if (start >= 0 && (depth === 1 && t === ',' || depth === 0)) {
      out[key] = json.slice(start, at).trim();
      start = -1;
    }
    if (t === '{' || t === '[') depth++;
  });
  return out;
}

/** The elements of a JSON array as written.
 * @param {string} json @returns {string[]} */
export function elements(json) {
  /** @type {string[]} */
  const out = [];
  let depth = 0, start = json.indexOf('[') + 1;
  eachToken(json, (t, at) => {
    if (t === '}' || t === ']') depth--;
    if (depth === 1 && t === ',' || depth === 0 && t === ']') {
      const one = json.slice(start, at).trim();
      if (one) out.push(one);
      start = at + 1;
    }
    if (t === '{' || t === '[') depth++;
  });
  return out;
}

/** Parses JSON; integers that a number cannot hold exactly become strings. The expression fails on strings with
 * millions of escapes. Bodies, which may have that many, are not parsed here.
 * @param {string} json */
export const parse = json =>
  JSON.parse(json.replace(/"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g, t => t[0] !== '"' && t.length > 15 && /^-?\d+$/.test(t) && !Number.isSafeInteger(+t) ? `"${t}"` : t));

/** The quantile q of counts, in seconds.
 * @param {number[]} counts @param {number} q @param {(i: number) => number} [upto] the upper limit of each; by default powers of two, in microseconds */
export function quantile(counts, q, upto = i => 2 ** i / 1e6) {
  const all = counts.reduce((a, b) => a + b, 0);
  if (!all) return null;
  let rest = q * all;
  for (let i = 0; i < counts.length; i++) {
    if (rest <= counts[i] && counts[i]) {
      const low = i ? upto(i - 1) : 0;
      return low + (upto(i) - low) * rest / counts[i];
    }
    rest -= counts[i];
  }
  return null;
}
