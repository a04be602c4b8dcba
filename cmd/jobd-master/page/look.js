// The master's statistics of the fleet, requested every two seconds.
import { Lately } from './live.js';
import { poll } from './poll.js';
import { quantile } from './format.js';

const runs = new Lately();

/** The last reply, and the values computed from it. @type {any} */
let last = null;
/** @type {Record<string, number|null>} */
let values = {};

/** @param {any} v @param {number} t */
function sample(v, t) {
  if (v.at === last?.at) return values.in === null ? null : values; // the reply is the same snapshot as before
  const s = last ? (Date.parse(v.at) - Date.parse(last.at)) / 1000 : 0, r = v.runs ? runs.add(v.runs, t) : [];
  const rate = (/** @type {(x: any) => number} */ get) => s > 0 && s < 10 && get(v) >= get(last) ? (get(v) - get(last)) / s : null;
  const upto = (/** @type {number} */ i) => v.bounds[Math.min(i, v.bounds.length - 1)];
  values = {
    in: rate(x => x.accepted), out: rate(x => x.ok + x.fail), failed: rate(x => x.fail), queued: v.waiting + v.queued, running: v.running,
    wait95: v.oldest ? Math.max(0, (Date.parse(v.at) - Date.parse(v.oldest)) / 1000) : null, run50: quantile(r, 0.5, upto), run95: quantile(r, 0.95, upto),
  };
  last = v;
  return sample(v, t);
}

export const source = poll('/v1/stats', 2000, sample);
