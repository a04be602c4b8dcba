// The broker's snapshots of all jobs.
import { Lately, past } from './live.js';
import { quantile } from './format.js';
import { events } from './events.js';

const wait = new Lately(), run = new Lately();

export const source = events(past, (v, t) => {
  const w = wait.add(v.wait_log2_us, t), r = run.add(v.run_log2_us, t);
  return {
    ...v.rates, queued: v.ledger.queued, running: v.ledger.running,
    wait50: quantile(w, 0.5), wait95: quantile(w, 0.95), run50: quantile(r, 0.5), run95: quantile(r, 0.95),
  };
});
