// Correct code must pass the type checker, and mistakes must not.

import { Fatal, JobError, RawJSON, RefusedError, Submitter, Worker, type Job, type Outcome } from "../index.js";

const worker = new Worker(["mail-*"], async (job: Job) => {
  if (job.signal.aborted) throw new Fatal(`no ${job.type}`);
  await job.progress({ done: 0.5 });
  return new RawJSON("1.10");
}, { concurrency: 4, except: ["mail-test"], headers: true, stopTimeout: 1000 });

export async function use(): Promise<number> {
  await worker.start();
  const jobs = new Submitter({ addrs: ["127.0.0.1:9998", "unix:/run/gloom/submit.sock"], window: 10 });
  const pending = await jobs.submit("mail-welcome", { to: "a" }, { priority: 5n, keep: 1000, groups: ["a"] });
  await pending.ack();
  const id: string = pending.id;
  try {
    await jobs.change(id, { priority: -1, delay: 0 });
  } catch (error) {
    if (error instanceof RefusedError || error instanceof JobError) console.log(error.code, error.lost);
  }
  let sum = 0;
  for await (const outcome of jobs.map("mail-many", [1, 2, 3])) {
    const typed: Outcome<number> = outcome;
    sum += typed.body;
  }
  // @ts-expect-error: not an option of a job
  await jobs.do("echo", 1, { prioritty: 1 });
  // @ts-expect-error: a list of jobs has no single id
  jobs.map("echo", [1], { id: "a" });
  // @ts-expect-error: a worker needs a handler
  new Worker("echo");
  await jobs.drain();
  await jobs.leave(100);
  await worker.stop();
  return sum;
}
