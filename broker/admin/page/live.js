// What the stream of events tells, and what it told in the last minutes.
import { signal, batch, effect, painted } from './html.js';
import { token, door, enter, first, again, silence } from './api.js';
import { parse, quantile } from './format.js';
import { follow } from './stream.js';
import { anew } from './parts.js';

/** The last look, see /openapi.json. */
export const look = signal(/** @type {any} */ (null));
/** Since when the broker has been away, in ms since 1970, and when it was last heard of; 0 while it is there. */
export const away = signal(0);
export const heard = signal(0);
/** Why it lends no stream, though it answers; '' if that is not so. */
export const refusal = signal('');
/** Changes every second. */
export const second = signal(0);

/** By how many ms the browser's clock is ahead of the broker's. */
let ahead = 0;

/** @param {number} now by the broker's clock */
function compare(now) {
  ahead = Date.now() - now;
  if (!(Math.abs(ahead) > 2000)) ahead = 0;
}

/** What is seen is of this time, in ms since 1970: of now, unless the broker is away. */
const seen = () => (second.value, away.value ? heard.value : Date.now());

/** For how many seconds something has lasted that began at a time of the broker's clock.
 * @param {string} began */
export const lasted = began => Math.max(0, (seen() - ahead - Date.parse(began)) / 1000);

/** What a number of seconds has come to since it was read with a row.
 * @param {{at?: number}} row @param {number} seconds */
export const grown = (row, seconds) => seconds + (row.at ? Math.max(0, (seen() - row.at) / 1000) : 0);

const span = 300, window = 10; // seconds

/** Columns over time; null is not known. */
export class Series {
  /** @type {number[]} */ t = [];
  /** @type {Record<string, (number|null)[]>} */
  of = { in: [], out: [], failed: [], queued: [], running: [], wait50: [], wait95: [], run50: [], run95: [] };

  /** What may lie behind the last column, as it came. */
  gap = 0;

  /** @param {number} t in seconds since 1970 @param {Record<string, number|null|undefined>} values
   * @param {number} [gap] after how many seconds before or behind it what is between is not known */
  push(t, values, gap = 3) {
    const last = this.t[this.t.length - 1];
    if (t <= last) return;
    if (t - last > Math.max(gap, this.gap)) this.push(last + 1, {});
    this.gap = gap;
    this.t.push(t);
    for (const k in this.of) this.of[k].push(values[k] ?? null);
    while (this.t[0] < t - span) {
      this.t.shift();
      for (const k in this.of) this.of[k].shift();
    }
  }
}
export const series = new Series();

/** Counts by powers of two, of the last seconds: what has been added since then. */
export class Lately {
  /** @type {{t: number, counts: number[]}[]} */
  seen = [];
  /** @param {number[]} counts @param {number} t in seconds @returns {number[]} */
  add(counts, t) {
    const last = this.seen[this.seen.length - 1];
    if (last && counts.some((n, i) => n < last.counts[i])) this.seen = []; // another broker
    this.seen.push({ t, counts });
    while (this.seen[0].t < t - window) this.seen.shift();
    return counts.map((n, i) => n - this.seen[0].counts[i]);
  }
}
let wait = new Lately(), run = new Lately();

/** The stream has begun anew, and tells first what was meanwhile. */
let behind = false;

/** Moments come every five seconds. @param {any[]} moments */
function past(moments) {
  for (let i = 1; i < moments.length; i++) {
    const a = moments[i - 1], b = moments[i], s = (b.unix_ms - a.unix_ms) / 1000;
    series.push((b.unix_ms + ahead) / 1000, {
      in: (b.submitted - a.submitted) / s, out: (b.ended - a.ended) / s, failed: (b.failed - a.failed) / s,
      queued: b.queued, running: b.running,
    }, 12);
  }
}

/** When the stream was last asked for. */
let began = 0;

setInterval(() => {
  if (document.hidden) return;
  const quiet = Math.max(heard.peek(), began);
  if (!door.peek() && Date.now() - quiet > silence) { // its host is frozen, or the network is gone
    away.value ||= quiet;
    shared?.postMessage(false);
    shared = undefined; // its script may not have come
    start();
  }
  const v = look.peek(), t = Date.now() / 1000;
  if (v && !away.peek()) {
    if (behind) return;
    const w = wait.add(v.wait_log2_us, t), r = run.add(v.run_log2_us, t);
    series.push(t, {
      ...v.rates, queued: v.ledger.queued, running: v.ledger.running,
      wait50: quantile(w, 0.5), wait95: quantile(w, 0.95), run50: quantile(r, 0.5), run95: quantile(r, 0.95),
    });
  } else if (v) series.push(t, {});
  second.value++;
}, 1000);

/** @param {string} event @param {string} data */
function on(event, data) {
  batch(() => {
    if (event === 'away') {
      away.value ||= Date.now();
      refusal.value = '';
      return;
    }
    if (event === 'refused') {
      const [, code, reason] = /^(\d+) (.*)$/s.exec(data) ?? [];
      if (code === '401' || code === '403') door.value ||= code === '403' ? 'scope' : token.value ? 'wrong' : 'token';
      else {
        away.value ||= Date.now();
        refusal.value = reason || code;
      }
      return;
    }
    heard.value = Date.now();
    if (event === 'clock') compare(Date.parse(data) + 500); // it is told in whole seconds
    else if (event === 'history') past(parse(data));
    else if (event === 'look') {
      look.value = parse(data);
      behind = false;
    }
    if (away.value) {
      away.value = 0;
      refusal.value = '';
      enter(); // another broker, perhaps
      anew();
      again();
    }
  });
}

let stop = new AbortController();
/** @type {MessagePort|undefined} */
let shared;

function start() {
  stop.abort();
  shared?.postMessage(false);
  if (document.hidden || door.peek()) return;
  const begun = !began && Date.now() - heard.peek() < 2000; // the document has told what a stream begins with
  began = Date.now();
  behind = !begun;
  stop = new AbortController();
  if (token.value || !('SharedWorker' in globalThis)) {
    follow(begun, token.value ? { Authorization: 'Bearer ' + token.value } : {}, stop.signal, on);
    return;
  }
  if (!shared) {
    shared = new SharedWorker('worker.js', { type: 'module', name: 'gloom' }).port;
    shared.onmessage = m => on(m.data[0], m.data[1]);
  }
  shared.postMessage({ begun });
}

/** Streams for as long as the tab is seen and nothing keeps it out. */
export function live() {
  if (first?.look) {
    compare(first.unix_ms);
    look.value = first.look;
    past(first.history ?? []);
    heard.value = Date.now();
  }
  painted.then(() => effect(() => { token.value; door.value; start(); }));
  document.addEventListener('visibilitychange', start);
  addEventListener('pagehide', () => shared?.postMessage(false));
  addEventListener('pageshow', e => e.persisted && start());
}
