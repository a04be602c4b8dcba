const { Queue, Worker } = require('bullmq');
const [port, jobs, pushers, slots, size] = process.argv.slice(1).map(Number);
const connection = { host: '127.0.0.1', port, maxRetriesPerRequest: null };
const pad = 'x'.repeat(size);
const sent = new Float64Array(jobs), took = new Float64Array(jobs), runs = new Uint8Array(jobs);
let ended = 0, next = 0;

async function main() {
  const queue = new Queue('bench', { connection });
  await queue.waitUntilReady();
  let over;
  const all = new Promise((resolve) => { over = resolve; });
  const worker = new Worker('bench', async (job) => { runs[job.data.n]++; }, { connection, concurrency: slots, removeOnComplete: { count: 0 } });
  worker.on('completed', (job) => {
    took[job.data.n] = performance.now() - sent[job.data.n];
    if (++ended === jobs) over();
  });
  await worker.waitUntilReady();
  const began = performance.now();
  await Promise.all(Array.from({ length: pushers }, async () => {
    while (next < jobs) {
      const n = next++;
      sent[n] = performance.now();
      await queue.add('bench', { n, pad }, { attempts: 10 });
    }
  }));
  await all;
  const Seconds = (performance.now() - began) / 1000;
  if (runs.some((r) => r !== 1)) throw new Error('a job did not run once');
  took.sort();
  const at = (q) => took[Math.min(jobs - 1, Math.floor(jobs * q))];
  console.log(JSON.stringify({ Seconds, P50: at(0.5), P99: at(0.99) }));
  process.exit(0);
}
main().catch((e) => { console.error(e); process.exit(1); });
