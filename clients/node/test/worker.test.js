// The worker against a broker whose every frame the test writes.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Worker } from "../src/index.js";
import { frame, listen } from "./broker.js";

/**
 * Starts a broker that answers each request until the given one comes, and sends this many jobs after a join.
 * Returns its address.
 * @param {import("node:test").TestContext} t
 * @param {string} silentAt
 */
function listenUntil(t, silentAt, jobs = 0) {
  return listen(t, ({ action }, write) => {
    if (action === silentAt) return;
    write(frame({ ok: true }));
    for (let n = 0; action === "join" && n < jobs; n++) write(frame({ action: "job", id: `${n}`, type: "t", body: 1 }));
  });
}

for (const [jobs, why] of /** @type {const} */ ([
  [0, "without the brokers' replies"],
  [1, "with 1 job unanswered"],
  [2, "with 2 jobs unanswered"],
])) {
  test(`a worker that is cut off says what it left: ${jobs} jobs`, { timeout: 20_000 }, async (t) => {
    let begun = 0;
    let all = () => {};
    const working = new Promise((resolve) => (all = () => resolve(undefined)));
    const options = { addrs: await listenUntil(t, "leave", jobs), concurrency: 2, notify: () => {} };
    const worker = new Worker("t", () => new Promise(() => ++begun === jobs && all()), options);
    await worker.start();
    if (jobs) await working;
    await assert.rejects(worker.stop(1), { message: `the worker stopped after 1 ms ${why}` });
  });
}

test("a worker whose join is not answered tries again, and can be stopped", { timeout: 20_000 }, async (t) => {
  const options = { addrs: await listenUntil(t, "join"), connectTimeout: 100 };
  let worker;
  const failed = new Promise((resolve) => (worker = new Worker("t", () => 1, { ...options, notify: resolve })));
  worker.start().catch(() => {});
  const { event, error } = await failed;
  assert.deepEqual([event, error.message], ["failed", "no connection within 100 ms"]);
  await worker.stop(1);
});

test("a worker that stops while it joins gives the job back", { timeout: 20_000 }, async (t) => {
  /** @type {unknown[]} */
  const sent = [];
  let stopped;
  const addrs = await listen(t, ({ action, id }, write) => {
    sent.push(action);
    if (action === "join") stopped = worker.stop(10_000);
    else if (action === "leave") write(frame({ ok: true }), frame({ action: "job", id: "a", type: "t", body: 1 }), frame({ ok: true }));
    else write(frame({ ok: true, id }));
  });
  const worker = new Worker("t", () => 1, { addrs, notify: () => {} });
  await assert.rejects(worker.start(), /stopped/);
  await stopped;
  assert.deepEqual(sent, ["hello", "join", "leave", "release"]);
});

test("a worker whose notify throws joins once", { timeout: 20_000 }, async (t) => {
  let joins = 0;
  const addrs = await listen(t, ({ action }, write) => {
    write(frame({ ok: true }));
    if (action === "join" && ++joins === 1) write(frame({ action: "job", id: "a", type: "t", body: 1 }));
  });
  let begun = () => {};
  const working = new Promise((resolve) => (begun = () => resolve(undefined)));
  const notify = () => {
    throw new Error("no");
  };
  const told = t.mock.method(console, "error", () => {});
  const worker = new Worker("t", begun, { addrs, notify, backoff: [1, 1] });
  await worker.start();
  await working;
  await new Promise((resolve) => setTimeout(resolve, 50));
  await worker.stop();
  assert.equal(joins, 1);
  assert.equal(told.mock.callCount(), 1);
});

test("a worker may have longer to stop than a timer can last", { timeout: 20_000 }, async (t) => {
  const addrs = await listenUntil(t, "", 1);
  let begun = () => {};
  const working = new Promise((resolve) => (begun = () => resolve(undefined)));
  let ended = false;
  const work = () => new Promise((resolve) => {
    begun();
    setTimeout(() => resolve((ended = true)), 200);
  });
  const worker = new Worker("t", work, { addrs, stopTimeout: 31_536_000_000 });
  await worker.start();
  await working;
  await worker.stop();
  assert.equal(ended, true);
});

test("an error's text may end in half a character, and its job may be retried", { timeout: 20_000 }, async (t) => {
  const told = new Promise((resolve) => {
    listen(t, ({ action, ...rest }, write) => {
      if (action === "fail") resolve(rest);
      write(frame({ ok: true }));
      if (action === "join") write(frame({ action: "job", id: "a", type: "t", body: 1 }));
    }).then((addrs) => {
      const worker = new Worker("t", () => { throw new Error("no \u{1f600}".slice(0, 4)); }, { addrs, notify: () => {} });
      t.after(() => worker.stop(1).catch(() => {}));
      worker.start();
    });
  });
  assert.deepEqual(await told, { id: "a", reason: "Error: no \ufffd" });
});

test("a failure that is refused does not take the job's retries", { timeout: 20_000 }, async (t) => {
  const told = new Promise((resolve) => {
    let first = true;
    listen(t, ({ action, ...rest }, write) => {
      if (action === "fail" && first) {
        first = false;
        write(frame({ error: "invalid_type", reason: "none", id: "a" }));
        return;
      }
      if (action === "fail") resolve(rest);
      write(frame({ ok: true }));
      if (action === "join") write(frame({ action: "job", id: "a", type: "t", body: 1 }));
    }).then((addrs) => {
      const worker = new Worker("t", () => { throw new Error("no"); }, { addrs, notify: () => {} });
      t.after(() => worker.stop(1).catch(() => {}));
      worker.start();
    });
  });
  assert.deepEqual(await told, { id: "a", reason: "answer refused: invalid_type: none (id \"a\")" });
});
