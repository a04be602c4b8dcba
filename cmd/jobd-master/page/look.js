// The master's statistics of the fleet, requested every two seconds.
import { RecentGrowth } from './live.js';
import { poll } from './poll.js';
import { quantile } from './format.js';

const runs = new RecentGrowth();

/** The last reply, and the values computed from it. @type {any} */
let lastReply = null;
/** @type {Record<string, number|null>} */
let values = {};

/** @param {any} v @param {number} t */
function sample(v, t) {
  if (v.at === lastReply?.at) return values.in === null ? null : values; // the reply is the same snapshot as before
  const s = lastReply ? (Date.parse(v.at) - Date.parse(lastReply.at)) / 1000 : 0, r = v.runs ? runs.add(v.runs, t) : [];
  const rate = (/** @type {(x: any) => number} */ get) => s > 0 && s < 10 && get(v) >= get(lastReply) ? (get(v) - get(lastReply)) / s : null;
  const upto = (/** @type {number} */ i) => v.bounds[Math.min(i, v.bounds.length - 1)];
  values = {
    in: rate(x => x.accepted), out: rate(x => x.ok + x.fail), failed: rate(x => x.fail), queued: v.waiting + v.queued, running: v.running,
    wait95: v.oldest ? Math.max(0, (Date.parse(v.at) - Date.parse(v.oldest)) / 1000) : null, run50: quantile(r, 0.5, upto), run95: quantile(r, 0.95, upto),
  };
  lastReply = v;
  return sample(v, t);
}

export const source = poll('/v1/stats', 2000, sample);
