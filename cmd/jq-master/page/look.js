// Requests the master's statistics every two seconds, and computes the samples of the plots.
import { RecentGrowth } from './live.js';
import { poll } from './poll.js';
import { quantile } from './format.js';

const wait = new RecentGrowth(), run = new RecentGrowth();

/** The last reply, and the time when it came. @type {any} */
let lastReply = null, at = 0;
/** @type {Record<string, number|null>} */
let values = {};

/** @param {any} v @param {number} t */
function sample(v, t) {
  if (v === lastReply) return values.in === null ? null : values;
  const l = v.ledger, m = lastReply?.ledger, s = t - at;
  const w = wait.add(v.times.wait, t), r = run.add(v.times.run, t);
  const upto = (/** @type {number} */ i) => v.times.bounds[Math.min(i, v.times.bounds.length - 1)];
  const rate = (/** @type {(x: any) => number} */ get) => m && s < 10 && get(l) >= get(m) ? (get(l) - get(m)) / s : null;
  values = {
    in: rate(x => x.enqueued + x.revived), out: rate(x => x.done + x.error + x.cancelled), failed: rate(x => x.error),
    queued: l.waiting, running: l.running,
    wait50: quantile(w, 0.5, upto), wait95: quantile(w, 0.95, upto), run50: quantile(r, 0.5, upto), run95: quantile(r, 0.95, upto),
  };
  lastReply = v;
  at = t;
  return sample(v, t);
}

export const source = poll('/v1/stats?names=20&shared=true', 2000, sample);
