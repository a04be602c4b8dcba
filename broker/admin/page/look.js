// The broker's snapshots of all jobs.
import { RecentGrowth, addMoments } from './live.js';
import { quantile } from './format.js';
import { events } from './events.js';

const waitColumns = new RecentGrowth(), run = new RecentGrowth();

export const source = events(addMoments, (v, t) => {
  const w = waitColumns.add(v.wait_log2_us, t), r = run.add(v.run_log2_us, t);
  return {
    ...v.rates, queued: v.ledger.queued, running: v.ledger.running,
    wait50: quantile(w, 0.5), wait95: quantile(w, 0.95), run50: quantile(r, 0.5), run95: quantile(r, 0.95),
  };
});
