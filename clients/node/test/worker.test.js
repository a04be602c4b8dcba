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

for (const [jobs, why] of /** @type {const} */ ([
  [0, "without the brokers' replies"],
  [1, "with 1 job unanswered"],
  [2, "with 2 jobs unanswered"],
])) {
  test(`a worker that is cut off says what it left: ${jobs} jobs`, { timeout: 20_000 }, async (t) => {
    let begun = 0;
    let all = () => {};
    const working = new Promise((resolve) => (all = () => resolve(undefined)));
    const server = createServer((socket) => {
      let buffer = Buffer.alloc(0);
      socket.on("error", () => {});
      socket.on("data", (data) => {
        buffer = Buffer.concat([buffer, data]);
        while (buffer.length >= 4 && buffer.length >= 4 + buffer.readUInt32BE()) {
          const end = 4 + buffer.readUInt32BE();
          const { action } = JSON.parse(buffer.subarray(4, end).toString());
          buffer = buffer.subarray(end);
          if (action === "leave") continue; // from now on this broker is silent
          socket.write(frame({ ok: true }));
          for (let n = 0; action === "join" && n < jobs; n++) socket.write(frame({ action: "job", id: `${n}`, type: "t", body: 1 }));
        }
      });
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    t.after(() => server.close());
    const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
    const options = { addrs: [`127.0.0.1:${port}`], concurrency: 2, notify: () => {} };
    const worker = new Worker("t", () => new Promise(() => ++begun === jobs && all()), options);
    await worker.start();
    if (jobs) await working;
    await assert.rejects(worker.stop(1), { message: `the worker stopped after 1 ms ${why}` });
  });
}
