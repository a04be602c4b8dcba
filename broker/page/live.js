// Data that is refreshed continuously, and its history of the last minutes.
import { signal, batch, effect, painted } from './html.js';
import { token, access, status, loadStatus, repeatQueries, initialData } from './api.js';
import { refreshListings } from './parts.js';

/** The last snapshot of the daemon; its content depends on the daemon. */
export const snapshot = signal(/** @type {any} */ (null));
/** awaySince: when the daemon stopped answering, in ms since 1970, 0 while it answers. heardAt: when it last answered. */
export const awaySince = signal(0);
export const heardAt = signal(0);
/** Why the daemon refuses to send snapshots, if it answers; '' otherwise. */
export const refusal = signal('');
/** Changes every second. */
export const everySecond = signal(0);

/** How many ms the browser's clock is ahead of the daemon's. */
export let clockAhead = 0;

/** @param {number} now by the daemon's clock */
export function compareClock(now) {
  clockAhead = Date.now() - now;
  if (!(Math.abs(clockAhead) > 2000)) clockAhead = 0;
}

/** What an absent daemon's shown data is from, in ms since 1970, 0 if there is none. Replies may have come without a snapshot. */
export const shownFrom = () => heardAt.value || (status.value ? awaySince.value : 0);

/** The time of the data that is shown, in ms since 1970: now, unless the daemon is away. */
const shownTime = () => (everySecond.value, awaySince.value ? shownFrom() : Date.now());

/** How many seconds ago something began, given the time by the daemon's clock.
 * @param {string} began */
export const secondsSince = began => Math.max(0, (shownTime() - clockAhead - Date.parse(began)) / 1000);

/** A duration that a table row shows, in seconds, plus the time since the row was read.
 * @param {{at?: number}} row @param {number} seconds */
export const currentAge = (row, seconds) => seconds + (row.at ? Math.max(0, (shownTime() - row.at) / 1000) : 0);

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
export function addMoments(moments) {
  for (let i = 1; i < moments.length; i++) {
    const a = moments[i - 1], b = moments[i], s = (b.unix_ms - a.unix_ms) / 1000;
    const by = (/** @type {string} */ k) => b[k] < a[k] ? null : (b[k] - a[k]) / s; // a count falls when a type is forgotten
    series.push((b.unix_ms + clockAhead) / 1000, {
      ...b, in: by('submitted'), out: by('ended'), failed: by('failed'),
    }, 12);
  }
}

if (initialData?.look) { // the document contains the first snapshot
  compareClock(initialData.unix_ms);
  snapshot.value = initialData.look;
  addMoments(initialData.history.items);
  heardAt.value = Date.now();
}

/** A column's latest known value, undefined if the last three samples have none. @param {string} key */
export const current = key => series.of[key].slice(-3).findLast(v => v !== null) ?? undefined;

/** How much counts have grown in the last few seconds. */
export class RecentGrowth {
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
  const v = snapshot.peek(), t = Date.now() / 1000;
  if (v && !awaySince.peek()) {
    const values = source.sample(v, t);
    if (values) series.push(t, values);
  } else if (v) series.push(t, {});
  everySecond.value++;
}, 1000);

/** Records that the daemon has answered or sent something. @param {() => void} [what] */
export function recordContact(what) {
  batch(() => {
    heardAt.value = Date.now();
    what?.();
    if (awaySince.value) {
      awaySince.value = 0;
      refusal.value = '';
      loadStatus(); // another daemon may have taken its place
      refreshListings();
      repeatQueries();
    }
  });
}

/** Records that the daemon does not answer, or refuses. @param {number} code of the refusal, 0 for none @param {string} [reason] */
export function recordLoss(code, reason = '') {
  batch(() => {
    if (code === 401 || code === 403) access.value ||= code === 403 ? 'scope' : token.value ? 'wrong' : 'token';
    else {
      awaySince.value ||= Date.now();
      refusal.value = code ? reason || String(code) : '';
    }
  });
}

/** Takes snapshots while the tab is visible and has access.
 * @param {Source} from */
export function startSource(from) {
  source = from;
  painted.then(() => effect(() => { token.value; access.value; source.begin(); }));
  document.addEventListener('visibilitychange', () => source.begin());
  addEventListener('pagehide', () => source.end());
  addEventListener('pageshow', e => e.persisted && source.begin());
}
