// Drives the Node client for the tests of all clients; package agent says how.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import {
  ClosedError, Fatal, JobError, LostError, NotConnectedError, RawJSON, RefusedError, Release,
  RetryAfter, Submitter, Worker,
} from "../../node/src/index.js";

const [role, text] = process.argv.slice(2);
const { ca, token, heartbeat, window, types, except, headers, concurrency, ...rest } = JSON.parse(text);
const tls = ca ? { ca: readFileSync(ca) } : undefined;
const options = { ...rest, token, heartbeat: heartbeat ?? 0, tls, raw: true };
const tell = (event) => process.stdout.write(`${JSON.stringify(event)}\n`);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function failure(error) {
  const kinds = [[RefusedError, "refused"], [JobError, "job"], [LostError, "lost"],
    [NotConnectedError, "not connected"], [ClosedError, "closed"]];
  const kind = kinds.find(([one]) => error instanceof one)?.[1] ?? String(error);
  const { code = "", reason = "", final = false, lost = false, acked = false, sent = false } = error;
  return { kind, code, reason, final, lost, acked, sent };
}

async function submitter() {
  const jobs = new Submitter({ ...options, window: window || 1024 });
  const does = {
    async submit(c) {
      const job = await jobs.submit(c.type ?? null, new RawJSON(c.body), {
        id: c.id, priority: c.priority, delay: c.delay, timeout: c.timeout, retries: c.retries,
        backoff: c.backoff, expires: c.expires, age: c.age, keep: c.keep,
        atLeastOnce: c.at_least_once, detach: c.detach, groups: c.groups, headers: c.headers,
        onProgress: c.progress ? (body) => tell({ tag: c.tag, progress: String(body) }) : undefined,
      });
      await follow(c, job);
    },
    async attach(c) {
      const onProgress = c.progress ? (body) => tell({ tag: c.tag, progress: String(body) }) : undefined;
      await follow(c, await jobs.attach(c.id, { onProgress }));
    },
    cancel: (c) => jobs.cancel(c.id),
    change: (c) => jobs.change(c.id, { priority: c.priority, delay: c.delay, groups: c.groups }),
    ping: () => jobs.ping(),
    drain: () => jobs.drain(),
    leave: () => jobs.leave(),
    close: () => jobs.close(),
    async bench(c) {
      const began = performance.now();
      if (c.window === 1) {
        for (let i = 0; i < c.count; i++) await jobs.do(c.type, i);
      } else {
        const bodies = Array.from({ length: c.count }, (_, i) => i);
        for await (const { error } of jobs.map(c.type, bodies)) if (error) throw error;
      }
      tell({ tag: c.tag, seconds: (performance.now() - began) / 1000 });
    },
  };
  async function follow(c, job) {
    job.ack().then(() => tell({ tag: c.tag, acked: true }), () => {});
    const result = await job.result();
    tell({ tag: c.tag, result: result === undefined ? "" : String(result) });
  }
  for await (const line of createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    does[command.do](command).then(
      () => ["submit", "attach", "bench"].includes(command.do) || tell({ tag: command.tag, ok: true }),
      (error) => tell({ tag: command.tag, error: failure(error) }),
    );
  }
  await jobs.close();
}

async function worker() {
  const released = new Set();
  const handler = async (job) => {
    const body = job.body.parse();
    const told = body !== null && typeof body === "object" ? body : {};
    if (told.fail) throw new Error(told.fail);
    if (told.fatal) throw new Fatal(told.fatal);
    if (told.retry_after) throw new RetryAfter(told.retry_after, "later");
    if (told.release && !released.has(job.id)) {
      released.add(job.id);
      throw new Release(told.release);
    }
    if (told.progress) await job.progress(told.progress);
    if (told.unwanted) {
      if (!job.signal.aborted) await new Promise((resolve) => job.signal.addEventListener("abort", resolve));
      tell({ unwanted: job.id });
      throw job.signal.reason;
    }
    if (told.sleep) await sleep(told.sleep);
    if (told.exit) process.exit(1);
    if (told.headers) return job.headers;
    return told.type ? job.type : job.body;
  };
  const notify = ({ event }) => event === "joined" && tell({ joined: true });
  const type = types.length === 1 && !types[0].includes("*") ? types[0] : types;
  const it = new Worker(type, handler, { ...options, except: except ?? [], headers, concurrency: concurrency || 1, notify });
  await it.run();
  tell({ left: true });
}

await (role === "worker" ? worker() : submitter());
