// The worker against a broker whose every frame the test writes.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { test } from "node:test";
import { Worker } from "../src/index.js";

const frame = (/** @type {object} */ message) => {
  const payload = Buffer.from(JSON.stringify(message));
  const header = Buffer.alloc(4);
  header.writeUInt32BE(payload.length);
  return Buffer.concat([header, payload]);
};

/**
 * Starts a broker that answers each request until the given one comes, and sends this many jobs after a join.
 * Returns its address.
 * @param {import("node:test").TestContext} t
 * @param {string} silentAt
 */
async function listen(t, silentAt, jobs = 0) {
  const server = createServer((socket) => {
    let buffer = Buffer.alloc(0);
    socket.on("error", () => {});
    socket.on("data", (data) => {
      buffer = Buffer.concat([buffer, data]);
      while (buffer.length >= 4 && buffer.length >= 4 + buffer.readUInt32BE()) {
        const end = 4 + buffer.readUInt32BE();
        const { action } = JSON.parse(buffer.subarray(4, end).toString());
        buffer = buffer.subarray(end);
        if (action === silentAt) return;
        socket.write(frame({ ok: true }));
        for (let n = 0; action === "join" && n < jobs; n++) socket.write(frame({ action: "job", id: `${n}`, type: "t", body: 1 }));
      }
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return `127.0.0.1:${/** @type {import("node:net").AddressInfo} */ (server.address()).port}`;
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
    const options = { addrs: await listen(t, "leave", jobs), concurrency: 2, notify: () => {} };
    const worker = new Worker("t", () => new Promise(() => ++begun === jobs && all()), options);
    await worker.start();
    if (jobs) await working;
    await assert.rejects(worker.stop(1), { message: `the worker stopped after 1 ms ${why}` });
  });
}

test("a worker whose join is not answered tries again, and can be stopped", { timeout: 20_000 }, async (t) => {
  const options = { addrs: await listen(t, "join"), connectTimeout: 100 };
  let worker;
  const failed = new Promise((resolve) => (worker = new Worker("t", () => 1, { ...options, notify: resolve })));
  worker.start().catch(() => {});
  const { event, error } = await failed;
  assert.deepEqual([event, error.message], ["failed", "no connection within 100 ms"]);
  await worker.stop(1);
});
