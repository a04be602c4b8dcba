// The broker's snapshots of all jobs.
import { first } from './api.js';
import { ahead, compare, heard, Lately, look, series } from './live.js';
import { quantile } from './format.js';
import { events } from './events.js';

/** Adds moments, which are five seconds apart, to the plots. @param {any[]} moments */
function past(moments) {
  for (let i = 1; i < moments.length; i++) {
    const a = moments[i - 1], b = moments[i], s = (b.unix_ms - a.unix_ms) / 1000;
    series.push((b.unix_ms + ahead) / 1000, {
      in: (b.submitted - a.submitted) / s, out: (b.ended - a.ended) / s, failed: (b.failed - a.failed) / s,
      queued: b.queued, running: b.running,
    }, 12);
  }
}

const wait = new Lately(), run = new Lately();

if (first?.look) {
  compare(first.unix_ms);
  look.value = first.look;
  past(first.history ?? []);
  heard.value = Date.now();
}

export const source = events(past, (v, t) => {
  const w = wait.add(v.wait_log2_us, t), r = run.add(v.run_log2_us, t);
  return {
    ...v.rates, queued: v.ledger.queued, running: v.ledger.running,
    wait50: quantile(w, 0.5), wait95: quantile(w, 0.95), run50: quantile(r, 0.5), run95: quantile(r, 0.95),
  };
});
