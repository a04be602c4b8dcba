// Submitter submits jobs to a broker over one connection, and reconnects when it is
// lost.

import { randomBytes } from "node:crypto";
import { setMaxListeners } from "node:events";
import { isPermanent, sleep } from "./connection.js";
import { ClosedError, LostError, NotConnectedError, RefusedError } from "./errors.js";
import { Backoff, Options } from "./options.js";
import { Pending, Session } from "./session.js";
import { duration, encode, HEADER, integer, name } from "./wire.js";

const DAY = 86_400_000;

export class Submitter {
  #options;
  #window;
  #prefix = randomBytes(9).toString("base64url");
  #count = 0;
  #outstanding = 0;
  /**
   * Submits that wait for room or a connection, in order.
   * @type {Waiter[]}
   */
  #waiting = [];
  /**
   * Callers that wait for the first attempt to connect.
   * @type {Waiter[]}
   */
  #connecting = [];
  /** @type {(() => void)[]} */
  #draining = [];
  /** @type {Set<Session>} */
  #sessions = new Set();
  /**
   * The session for new jobs.
   * @type {Session | undefined}
   */
  #current;
  /**
   * Kept jobs of a lost session, and the address of its broker.
   * @type {Pending[]}
   */
  #kept = [];
  #keptAt = "";
  #closing = false;
  #closed = new AbortController();
  /** @type {Promise<void> | undefined} */
  #running;

  constructor({ window = 1024, ...options } = {}) {
    this.#options = new Options(options, "submit");
    this.#window = integer("window", window, 1, 1_000_000);
  }

  /** The number of jobs submitted and not ended. */
  get outstanding() {
    return this.#outstanding;
  }

  /**
   * Connects; rejects if the first attempt fails at all brokers.
   * @returns {Promise<void>}
   */
  connect() {
    if (this.#closing) return Promise.reject(new ClosedError("the submitter is closed"));
    if (this.#current) return Promise.resolve();
    this.#begin();
    return new Promise((resolve, reject) => this.#connecting.push({ resolve, reject }));
  }

  /**
   * @param {string | null} type
   * @param {unknown} [body]
   * @param {Record<string, any>} [options]
   * @returns {Promise<Pending>}
   */
  async submit(type, body = null, options = {}) {
    const id = name("id", options.id ?? this.#prefix + (this.#count++).toString(36));
    return this.#send(new Pending(id, encodeSubmit(id, type, body, options), options), options.signal);
  }

  /**
   * @param {string} id
   * @param {Record<string, any>} [options]
   * @returns {Promise<Pending>}
   */
  async attach(id, options = {}) {
    const { onProgress, signal, ...rest } = options;
    refuseUnknownOptions(rest, ["onProgress", "signal"]);
    const frame = encode({ action: "attach", id: name("id", id), progress: onProgress ? true : undefined });
    return this.#send(new Pending(id, frame, { keep: true, onProgress }), signal);
  }

  /**
   * @param {string | null} type
   * @param {unknown} [body]
   * @param {Record<string, any>} [options]
   */
  async do(type, body, options) {
    return (await this.submit(type, body, options)).result();
  }

  /**
   * Submits a job for each body of an iterable, as fast as the window allows, and yields
   * their results in the order in which the jobs end.
   * @param {string | null} type
   * @param {Iterable<unknown> | AsyncIterable<unknown>} bodies
   * @param {Record<string, any>} [options]
   */
  async *map(type, bodies, options = {}) {
    if (options.id !== undefined) throw new TypeError("id: map makes the ids");
    /** @type {any[]} */
    const ended = [];
    /** @type {Set<Pending>} */
    const pending = new Set();
    const stop = new AbortController();
    const signal = stop.signal;
    const abort = () => stop.abort(options.signal.reason);
    if (options.signal?.aborted) abort();
    options.signal?.addEventListener("abort", abort);
    let wake = () => {};
    let hold = () => {};
    let feeding = true;
    /** @type {unknown} */
    let failure;
    const feed = async () => {
      let index = 0;
      for await (const body of bodies) {
        if (signal.aborted) return;
        // A slow consumer holds back the results that it has not read.
        while (ended.length >= this.#window) await new Promise((resolve) => (hold = () => resolve(undefined)));
        const at = index++;
        const job = await this.submit(type, body, { ...options, signal });
        pending.add(job);
        const tell = (/** @type {object} */ outcome) => {
          pending.delete(job);
          ended.push({ index: at, id: job.id, body, ...outcome });
          wake();
        };
        job.result().then((result) => tell({ result }), (error) => tell({ error }));
      }
    };
    feed().catch((error) => (failure = error)).finally(() => {
      feeding = false;
      wake();
    });
    try {
      while (feeding || pending.size || ended.length) {
        if (ended.length) {
          yield ended.shift();
          hold();
        } else {
          await new Promise((resolve) => (wake = () => resolve(undefined)));
        }
      }
      if (failure) throw failure;
    } finally {
      options.signal?.removeEventListener("abort", abort);
      stop.abort(new ClosedError("nobody waits for the rest"));
      hold();
    }
  }

  async cancel(id) {
    await this.#sessionOf(name("id", id)).cancel(id);
  }

  /**
   * @param {string} id
   * @param {{priority?: number | bigint, groups?: string[], delay?: number}} what
   * @returns {Promise<void>}
   */
  async change(id, { priority, groups, delay, ...rest }) {
    refuseUnknownOptions(rest, ["priority", "groups", "delay"]);
    const fields = { priority: checkPriority(priority), groups: optionalNames("groups", groups), delay_ms: optionalDuration("delay", delay) };
    await this.#sessionOf(name("id", id)).request({ action: "change", id, ...fields }, id);
  }

  /** @returns {Promise<void>} */
  async ping() {
    await this.connect();
    await this.#sessionOf("").request({ action: "ping" });
  }

  /** Takes no more jobs, waits for the outstanding ones to end, and closes. */
  async drain() {
    this.#closing = true;
    this.#wake();
    if (this.#outstanding) await new Promise((resolve) => this.#draining.push(() => resolve(undefined)));
    await this.close();
  }

  /**
   * Reads what the broker has sent to kept jobs, for at most this many milliseconds, and closes.
   * @returns {Promise<void>}
   */
  async leave(within = 2_000) {
    this.#stop();
    const kept = [...this.#sessions].filter(({ jobs }) => [...jobs.values()].some((job) => job.kept));
    for (const session of kept) session.endOutput();
    const over = new AbortController();
    await Promise.race([Promise.all(kept.map(({ lost }) => lost)), sleep(within, over.signal)]);
    over.abort();
    await this.close();
  }

  /** Takes no more jobs and makes no more connections. */
  #stop() {
    this.#closing = true;
    this.#closed.abort(new ClosedError("closed"));
    this.#wake();
  }

  /**
   * Closes at once; pending jobs fail with a LostError.
   * @returns {Promise<void>}
   */
  async close() {
    this.#stop();
    for (const session of this.#sessions) session.close(new ClosedError("closed"));
    await this.#running;
    await Promise.all([...this.#sessions].map(({ lost }) => lost));
    this.#dropKept(new ClosedError("closed"));
  }

  /**
   * @param {Pending} job
   * @param {AbortSignal} [signal]
   */
  async #send(job, signal) {
    signal?.throwIfAborted();
    await this.#enter(signal);
    // Since then the connection may have been lost, or the signal may have aborted.
    while ((!this.#current || this.#current.endError) && !signal?.aborted) {
      this.#leaveWindow();
      await this.#enter(signal);
    }
    if (signal?.aborted) {
      this.#leaveWindow();
      throw signal.reason;
    }
    const session = /** @type {Session} */ (this.#current);
    const size = /** @type {Buffer} */ (job.frame).length - HEADER;
    if (size > session.maxFrame) {
      this.#leaveWindow();
      const reason = `frame of ${size} bytes, at most ${session.maxFrame} are allowed`;
      throw new RefusedError({ error: "size_error", reason, id: job.id });
    }
    session.submit(job);
    if (signal) {
      setMaxListeners(0, signal); // many jobs may share it
      const abort = () => {
        job.taken.reject(signal.reason);
        job.end.reject(signal.reason);
        job.unwanted = true;
        // The caller does not learn whether it was cancelled in time.
        this.cancel(job.id).catch(() => {});
      };
      signal.addEventListener("abort", abort);
      const over = () => signal.removeEventListener("abort", abort);
      job.result().then(over, over);
    }
    return job;
  }

  /** Waits for a place in the window and a connection. */
  async #enter(signal) {
    this.#begin();
    await new Promise((resolve, reject) => {
      const abort = () => {
        this.#waiting = this.#waiting.filter((other) => other !== waiter);
        reject(signal?.reason);
      };
      const waiter = {
        resolve: () => {
          signal?.removeEventListener("abort", abort);
          resolve(undefined);
        },
        reject: (/** @type {Error} */ error) => {
          signal?.removeEventListener("abort", abort);
          reject(error);
        },
      };
      signal?.addEventListener("abort", abort);
      this.#waiting.push(waiter);
      this.#wake();
    });
  }

  /** Lets waiting submits continue while there is room. */
  #wake() {
    if (this.#closing) {
      const closed = new ClosedError("the submitter is closed");
      for (const { reject } of this.#waiting.splice(0)) reject(closed);
      if (this.#outstanding === 0) for (const drained of this.#draining.splice(0)) drained();
      return;
    }
    while (this.#waiting.length && this.#current?.writable && this.#outstanding < this.#window) {
      this.#outstanding++;
      /** @type {Waiter} */ (this.#waiting.shift()).resolve();
    }
  }

  #leaveWindow() {
    this.#outstanding--;
    this.#wake();
  }

  /** The session where a job is pending, else the one for new jobs. */
  #sessionOf(id) {
    for (const session of this.#sessions) if (session.jobs.has(id)) return session;
    if (this.#current) return this.#current;
    throw new NotConnectedError("no connection to a broker");
  }

  #begin() {
    if (this.#closing) throw new ClosedError("the submitter is closed");
    this.#running ??= this.#run();
  }

  /** Stays connected to one of the brokers until closed. */
  async #run() {
    const { notify, backoff } = this.#options;
    const waits = new Backoff(/** @type {[number, number]} */ (backoff));
    const closed = this.#closed.signal;
    let next = 0;
    /** @type {Session | undefined} */
    let old;
    while (!closed.aborted) {
      const addrs = this.#options.addrs;
      const errors = [];
      /** @type {Session | undefined} */
      let session;
      for (let tried = 0; tried < addrs.length && !session && !closed.aborted; tried++) {
        const addr = addrs[next++ % addrs.length];
        if (addr === old?.addr && !old.endError) continue; // it is draining
        try {
          session = await new Session(addr, this.#options).open(closed);
        } catch (error) {
          errors.push({ addr, error });
        }
      }
      if (closed.aborted) {
        session?.close(new ClosedError("closed"));
        break;
      }
      if (!session) {
        const wait = waits.next();
        for (const { addr, error } of errors) notify({ event: "failed", addr, error, wait });
        this.#onUnreachable(errors);
        await sleep(wait, closed);
        continue;
      }
      this.#adopt(session);
      old?.retire();
      old = session;
      const began = performance.now();
      const left = new Promise((resolve) => (old && (old.draining = () => resolve(undefined))));
      await (addrs.length > 1 ? Promise.race([session.lost, left]) : session.lost);
      if (!session.endError) continue;
      waits.recordDuration(performance.now() - began);
      const wait = waits.next();
      if (closed.aborted) break;
      notify({ event: "lost", addr: session.addr, error: session.endError, wait });
      if (this.#kept.length) next = Math.max(0, addrs.indexOf(session.addr)); // the broker that has the kept jobs comes first
      await sleep(wait, closed);
    }
  }

  /** Uses this session for new jobs. */
  #adopt(session) {
    session.freed = () => this.#leaveWindow();
    session.socket.on("drain", () => this.#wake());
    this.#sessions.add(session);
    this.#current = session;
    session.lost.then((error) => {
      const cause = this.#closed.signal.aborted ? new ClosedError("closed") : error;
      const current = this.#current === session;
      this.#sessions.delete(session);
      if (current) {
        this.#current = undefined;
        this.#keptAt = session.addr;
      }
      this.#kept.push(...session.leave(cause, current && !(cause instanceof ClosedError)));
    });
    this.#options.notify({ event: "connected", addr: session.addr });
    for (const job of this.#kept.splice(0)) {
      if (job.sent && session.addr !== this.#keptAt) {
        this.#drop(job, new NotConnectedError(`now connected to ${session.addr}`));
      } else {
        session.resume(job);
        if (job.unwanted) session.cancel(job.id).catch(() => {});
      }
    }
    for (const { resolve } of this.#connecting.splice(0)) resolve();
    this.#wake();
  }

  /** Handles a round in which no broker was reached. */
  #onUnreachable(errors) {
    if (!errors.length) return;
    const told = errors.map(({ addr, error }) => `${addr}: ${error.message}`).join("; ");
    const refused = errors.every(({ error }) => isPermanent(error));
    const cause = errors[0].error;
    const error = refused ? cause : new NotConnectedError(`no broker reached: ${told}`, { cause });
    for (const { reject } of this.#connecting.splice(0)) reject(error);
    if (!refused) return;
    for (const { reject } of this.#waiting.splice(0)) reject(error);
    this.#dropKept(error);
  }

  #dropKept(cause) {
    for (const job of this.#kept.splice(0)) this.#drop(job, cause);
  }

  #drop(job, cause) {
    const error = new LostError(cause, { addr: this.#keptAt, id: job.id, acked: job.acked, sent: job.sent });
    job.taken.reject(error);
    job.end.reject(error);
    this.#leaveWindow();
  }
}

/** @typedef {{resolve: () => void, reject: (error: Error) => void}} Waiter */

const JOB_OPTIONS = [
  "id", "priority", "delay", "timeout", "retries", "backoff", "expires", "detach", "groups", "age",
  "keep", "atLeastOnce", "headers", "onProgress", "signal",
];

/**
 * @param {string} id
 * @param {string | null} type
 * @param {unknown} body
 * @param {Record<string, any>} options
 */
function encodeSubmit(id, type, body, options) {
  refuseUnknownOptions(options, JOB_OPTIONS);
  if (options.keep && options.detach) throw new TypeError("keep: not with detach");
  if (options.atLeastOnce && !options.keep) throw new TypeError("atLeastOnce: only with keep");
  const { headers, retries } = options;
  if (headers !== undefined && (headers === null || typeof headers !== "object" || Array.isArray(headers))) {
    throw new TypeError("headers: must be an object");
  }
  return encode({
    action: "submit",
    id,
    type: type === null || type === undefined ? undefined : name("type", type),
    priority: checkPriority(options.priority),
    delay_ms: optionalDuration("delay", options.delay),
    timeout_ms: optionalDuration("timeout", options.timeout),
    retries: retries === undefined ? undefined : integer("retries", retries, 0, 1000),
    backoff_ms: optionalDuration("backoff", options.backoff ?? (retries === 0 ? undefined : 1_000), DAY),
    expires_ms: optionalDuration("expires", options.expires),
    detach: options.detach ? true : undefined,
    progress: options.onProgress ? true : undefined,
    groups: optionalNames("groups", options.groups),
    age_ms: optionalDuration("age", options.age),
    keep_ms: optionalDuration("keep", options.keep, DAY),
    headers,
    body: body === undefined ? null : body,
  });
}

function refuseUnknownOptions(options, known) {
  for (const key of Object.keys(options)) {
    if (!known.includes(key)) throw new TypeError(`unknown option ${key}; the options are ${known.join(", ")}`);
  }
}

function optionalDuration(field, value, max) {
  return value === undefined ? undefined : duration(field, value, max);
}

/** Checks a priority: a signed 64-bit integer. */
function checkPriority(value) {
  if (value === undefined || Number.isSafeInteger(value)) return value;
  if (typeof value === "bigint" && BigInt.asIntN(64, value) === value) return value;
  throw new TypeError(`priority ${value}: must be a safe integer or a 64-bit bigint`);
}

function optionalNames(field, values) {
  if (values === undefined) return undefined;
  if (!Array.isArray(values)) throw new TypeError(`${field}: must be an array`);
  return values.map((value) => name(field, value));
}
