// Requests the daemon's statistics every two seconds, and computes the samples of the plots.
import { quantile } from './format.js';
import { RecentGrowth } from './live.js';
import { poll } from './poll.js';

const wait = new RecentGrowth(), run = new RecentGrowth();

/** The last reply, and the time when it came. @type {any} */
let lastReply = null, at = 0;
/** @type {Record<string, number|null>} */
let values = {};

/** @param {any} v @param {number} t */
function sample(v, t) {
  if (v === lastReply) return values.in === null ? null : values;
  const m = lastReply, s = t - at, w = wait.add(v.times.wait, t), r = run.add(v.times.run, t);
  const endedJobs = (/** @type {any} */ x) => Object.values(x.ended).reduce((/** @type {number} */ a, /** @type {any} */ b) => a + b, 0), n = (/** @type {any} */ x, /** @type {string} */ code) => x.ended[code] ?? 0;
  const upto = (/** @type {number} */ i) => v.times.bounds[Math.min(i, v.times.bounds.length - 1)];
  const bad = (/** @type {any} */ x) => endedJobs(x) - n(x, 'ok') - n(x, 'retry');
  const rate = (/** @type {(x: any) => number} */ get) => m && s < 10 && get(v) >= get(m) ? (get(v) - get(m)) / s : null;
  values = {
    in: rate(x => x.added), out: rate(x => n(x, 'ok') + n(x, 'failed') + n(x, 'abandoned')), failed: rate(bad),
    queued: v.ledger && v.ledger.waiting, running: v.ledger && v.ledger.running,
    wait50: quantile(w, 0.5, upto), wait95: quantile(w, 0.95, upto),
    run50: quantile(r, 0.5, upto), run95: quantile(r, 0.95, upto),
  };
  lastReply = v;
  at = t;
  return sample(v, t);
}

export const source = poll('/v1/stats', 2000, sample);
