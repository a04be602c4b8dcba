// The submitter against a broker whose every frame the test writes.

import assert from "node:assert/strict";
import { test } from "node:test";
import { JobError, LostError, NotConnectedError, Submitter } from "../src/index.js";
import { frame, listen } from "./broker.js";

/**
 * Starts a broker and a submitter with a window of one job.
 * @param {import("node:test").TestContext} t
 * @param {(message: any, write: (...frames: Buffer[]) => void) => void} onSubmit
 * @param {object} [options]
 */
async function begin(t, onSubmit, options) {
  const addr = await listen(t, (message, write) => {
    if (message.action === "submit") onSubmit(message, write);
    else write(frame({ ok: true, id: message.id }));
  });
  const jobs = new Submitter({ addrs: [addr], window: 1, backoff: [1, 10], notify: () => {}, ...options });
  t.after(() => jobs.close());
  await jobs.connect();
  return jobs;
}

const answer = (/** @type {any} */ { id, body }) => [frame({ ok: true, id }), frame({ id, body })];

test("a submit whose signal aborts when its turn has come is not sent", async (t) => {
  /** @type {unknown[]} */
  const sent = [];
  const jobs = await begin(t, (message, write) => {
    sent.push(message.body);
    write(...answer(message));
  });
  const stop = new AbortController();
  const first = await jobs.submit("t", "first");
  const waits = jobs.submit("t", "waits", { signal: stop.signal });
  first.result().then(() => stop.abort(new Error("stopped")));
  await assert.rejects(waits, /stopped/);
  assert.equal(await jobs.do("t", "last"), "last");
  assert.deepEqual(sent, ["first", "last"]);
  assert.equal(jobs.outstanding, 0);
});

test("a submit whose turn has come on a connection that ends waits for the next one", async (t) => {
  const jobs = await begin(t, (message, write) => {
    const tooLong = message.body === "first" ? [Buffer.alloc(4, 255)] : [];
    write(...answer(message), ...tooLong);
  });
  const first = await jobs.submit("t", "first");
  const waits = jobs.do("t", "waits");
  assert.equal(await first.result(), "first");
  assert.equal(await waits, "waits");
  assert.equal(jobs.outstanding, 0);
});

test("an option that is undefined is not given", async (t) => {
  const none = { heartbeat: undefined, connectTimeout: undefined, maxFrame: undefined, backoff: undefined, notify: undefined };
  const jobs = new Submitter({ addrs: "127.0.0.1:1", ...none });
  t.after(() => jobs.close());
  await assert.rejects(jobs.connect(), NotConnectedError);
});

test("frames of unknown kinds are ignored", async (t) => {
  const jobs = await begin(t, ({ id, body }, write) => {
    const unknown = frame({ action: "dance", id });
    write(unknown, frame({ ok: true, id }), unknown, frame({ id, body }));
  });
  assert.equal(await jobs.do("t", 5), 5);
});

test("an error after the ack ends the job, whatever its code", async (t) => {
  const jobs = await begin(t, ({ id }, write) => {
    write(frame({ ok: true, id }), frame({ error: "retired", reason: "r", id }));
  });
  await assert.rejects(jobs.do("t", 1), (/** @type {any} */ e) => e instanceof JobError && e.code === "retired");
});

test("an ok or error of the wrong kind ends the connection", async (t) => {
  /** @type {[(id: string) => object[], string][]} */
  const wrong = [
    [(id) => [{ ok: "true", id }], "an ok that is not true"],
    [(id) => [{ ok: true, id }, { error: 5, reason: "r", id }], "whose error is not a string"],
    [(id) => [{ ok: true, id }, { error: null, id }], "whose error is not a string"],
    [(id) => [{ ok: true, id }, { error: "job_failed", id }], "whose reason is not a string"],
  ];
  let at = 0;
  const jobs = await begin(t, ({ id }, write) => write(...wrong[at][0](id).map(frame)));
  for (; at < wrong.length; at++) {
    await assert.rejects(jobs.do("t", 1), (/** @type {any} */ e) => e instanceof LostError && e.message.includes(wrong[at][1]));
  }
});

for (const losses of [1, 2]) {
  test(`a kept job that is refused after ${losses} lost connections may have run`, async (t) => {
    let submits = 0;
    const addrs = await listen(t, ({ action, id }, write) => {
      const ok = frame({ ok: true, id });
      if (action === "attach") write(frame({ error: "unknown_id", reason: "none", id }));
      else if (action !== "submit") write(ok);
      else if (++submits <= losses) write(...(submits === 1 ? [ok] : []), Buffer.alloc(4, 255)); // this ends the connection
      else write(frame({ error: "overloaded", reason: "full", id }));
    });
    const jobs = new Submitter({ addrs, backoff: [1, 10], notify: () => {} });
    t.after(() => jobs.close());
    await assert.rejects(jobs.do("t", 1, { keep: 60_000, atLeastOnce: true }), (/** @type {any} */ e) => {
      return e instanceof LostError && e.acked && e.sent && /** @type {any} */ (e.cause).code === "overloaded";
    });
    assert.equal(jobs.outstanding, 0);
  });
}

for (const known of [true, false]) {
  test(`a kept job that is aborted while its connection is lost is cancelled, ${known ? "" : "not "}known to the broker`, async (t) => {
    const stop = new AbortController();
    /** @type {string[]} */
    const sent = [];
    let hellos = 0;
    const addrs = await listen(t, ({ action, id }, write) => {
      const reply = frame(known || action === "submit" || !id ? { ok: true, id } : { error: "unknown_id", reason: "none", id });
      sent.push(action);
      if (action === "hello" && ++hellos === 2) stop.abort(new Error("stopped"));
      write(reply, ...(action === "submit" ? [Buffer.alloc(4, 255)] : [])); // this ends the connection
    });
    const jobs = new Submitter({ addrs, backoff: [1, 10], notify: () => {} });
    t.after(() => jobs.close());
    const job = await jobs.submit("t", 1, { keep: 60_000, atLeastOnce: true, signal: stop.signal });
    await assert.rejects(job.result(), /stopped/);
    await jobs.drain();
    assert.deepEqual(sent, ["hello", "submit", "hello", "attach", "cancel"]);
  });
}

for (const when of ["before", "after"]) {
  test(`a kept job that is cancelled ${when} its connection is lost is not submitted again`, async (t) => {
    /** @type {string[]} */
    const sent = [];
    /** @type {Promise<unknown> | undefined} */
    let cancelled;
    const cancel = (/** @type {string} */ id) => (cancelled = assert.rejects(jobs.cancel(id)));
    const addrs = await listen(t, ({ action, id }, write) => {
      const again = action === "submit" && sent.includes(action);
      sent.push(action);
      if (action === "attach" && when === "after") cancel(id);
      const reply = frame(action === "attach" || action === "cancel" ? { error: "unknown_id", reason: "none", id } : { ok: true, id });
      const ends = action === (when === "before" ? "cancel" : "submit") && !again;
      write(reply, again ? frame({ id, body: 1 }) : Buffer.alloc(ends ? 4 : 0, 255)); // which ends the connection
    });
    const jobs = new Submitter({ addrs, backoff: [1, 10], notify: () => {} });
    t.after(() => jobs.close());
    const job = await jobs.submit("t", 1, { keep: 60_000, atLeastOnce: true });
    await job.ack();
    if (when === "before") cancel(job.id);
    await assert.rejects(job.result(), LostError);
    await cancelled;
    await jobs.ping();
    assert.deepEqual(sent, ["hello", "submit", ...(when === "before" ? ["cancel", "hello", "attach"] : ["hello", "attach", "cancel"]), "ping"]);
  });
}

test("what arrived while the event loop was blocked shows that the broker is alive", async (t) => {
  const jobs = await begin(t, (message, write) => {
    write(...answer(message));
    for (const end = performance.now() + 500; performance.now() < end; );
  }, { heartbeat: 100 });
  assert.equal(await jobs.do("t", "answered"), "answered");
});
