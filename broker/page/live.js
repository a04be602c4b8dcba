// Data that is refreshed continuously, and its history of the last minutes.
import { signal, batch, effect, painted } from './html.js';
import { token, door, enter, again, first } from './api.js';
import { anew } from './parts.js';

/** The last snapshot of the daemon; its content depends on the daemon. */
export const look = signal(/** @type {any} */ (null));
/** away: when the daemon stopped answering, in ms since 1970, 0 while it answers. heard: when it last answered. */
export const away = signal(0);
export const heard = signal(0);
/** Why the daemon refuses to send snapshots, if it answers; '' otherwise. */
export const refusal = signal('');
/** Changes every second. */
export const second = signal(0);

/** How many ms the browser's clock is ahead of the daemon's. */
export let ahead = 0;

/** @param {number} now by the daemon's clock */
export function compare(now) {
  ahead = Date.now() - now;
  if (!(Math.abs(ahead) > 2000)) ahead = 0;
}

/** The time of the data that is shown, in ms since 1970: now, unless the daemon is away. */
const seen = () => (second.value, away.value ? heard.value : Date.now());

/** How many seconds ago something began, given the time by the daemon's clock.
 * @param {string} began */
export const lasted = began => Math.max(0, (seen() - ahead - Date.parse(began)) / 1000);

/** A duration that a table row shows, in seconds, plus the time since the row was read.
 * @param {{at?: number}} row @param {number} seconds */
export const grown = (row, seconds) => seconds + (row.at ? Math.max(0, (seen() - row.at) / 1000) : 0);

const span = 300, window = 10; // seconds

/** Columns of values over time; null means unknown. */
export class Series {
  /** @type {number[]} */ t = [];
  /** @type {Record<string, (number|null)[]>} */
  of = { in: [], out: [], failed: [], queued: [], running: [], wait50: [], wait95: [], run50: [], run95: [] };

  /** The argument gap of the last call of push, in seconds. */
  gap = 0;

  /** @param {number} t in seconds since 1970 @param {Record<string, number|null|undefined>} values
   * @param {number} [gap] if its neighbours are more than this many seconds away, values in between are unknown */
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

/** Adds samples for the time before the first snapshot, or while the tab was hidden: one for each five seconds. @param {any[]} moments */
export function past(moments) {
  for (let i = 1; i < moments.length; i++) {
    const a = moments[i - 1], b = moments[i], s = (b.unix_ms - a.unix_ms) / 1000;
    const by = (/** @type {string} */ k) => b[k] < a[k] ? null : (b[k] - a[k]) / s; // a count falls when a type is forgotten
    series.push((b.unix_ms + ahead) / 1000, {
      ...b, in: by('submitted'), out: by('ended'), failed: by('failed'),
    }, 12);
  }
}

if (first?.look) { // the document contains the first snapshot
  compare(first.unix_ms);
  look.value = first.look;
  past(first.history.items);
  heard.value = Date.now();
}

/** A column's latest known value, undefined if the last three samples have none. @param {string} key */
export const current = key => series.of[key].slice(-3).findLast(v => v !== null) ?? undefined;

/** How much counts have grown in the last few seconds. */
export class Lately {
  /** @type {{t: number, counts: number[]}[]} */
  seen = [];
  /** @param {number[]} counts @param {number} t in seconds @returns {number[]} */
  add(counts, t) {
    const last = this.seen[this.seen.length - 1];
    if (last && counts.some((n, i) => n < last.counts[i])) this.seen = []; // the daemon has restarted
    this.seen.push({ t, counts });
    while (this.seen[0].t < t - window) this.seen.shift();
    return counts.map((n, i) => n - this.seen[0].counts[i]);
  }
}

/** @typedef {{
 *   begin: () => void, end: () => void, beat?: () => void, refuses: string,
 *   sample: (look: any, t: number) => Record<string, number|null|undefined> | null,
 * }} Source Where snapshots come from. begin: starts or restarts it, unless the tab is hidden or
 * has no access; end: stops it when the user leaves the tab; beat: called each second; refuses: the
 * words for a refusal; sample: the columns of a snapshot at a time in seconds since 1970, or null
 * */

/** @type {Source} */
let source;

setInterval(() => {
  if (document.hidden || !source) return;
  source.beat?.();
  const v = look.peek(), t = Date.now() / 1000;
  if (v && !away.peek()) {
    const values = source.sample(v, t);
    if (values) series.push(t, values);
  } else if (v) series.push(t, {});
  second.value++;
}, 1000);

/** Records that the daemon has answered or sent something. @param {() => void} [what] */
export function there(what) {
  batch(() => {
    heard.value = Date.now();
    what?.();
    if (away.value) {
      away.value = 0;
      refusal.value = '';
      enter(); // another daemon may have taken its place
      anew();
      again();
    }
  });
}

/** Records that the daemon does not answer, or refuses. @param {number} code of the refusal, 0 for none @param {string} [reason] */
export function gone(code, reason = '') {
  batch(() => {
    if (code === 401 || code === 403) door.value ||= code === 403 ? 'scope' : token.value ? 'wrong' : 'token';
    else {
      away.value ||= Date.now();
      refusal.value = code ? reason || String(code) : '';
    }
  });
}

/** Takes snapshots while the tab is visible and has access.
 * @param {Source} from */
export function live(from) {
  source = from;
  painted.then(() => effect(() => { token.value; door.value; source.begin(); }));
  document.addEventListener('visibilitychange', () => source.begin());
  addEventListener('pagehide', () => source.end());
  addEventListener('pageshow', e => e.persisted && source.begin());
}
