// Worker joins its types at every broker, and runs a handler for each job.

import { Connection, isPermanent, MAX_TIMER, sleep } from "./connection.js";
import { ClosedError, Fatal, JobError, LostError, RefusedError, Release, RetryAfter } from "./errors.js";
import { Backoff, Options } from "./options.js";
import { duration, encode, HEADER, integer, name } from "./wire.js";

/** The maximum number of bytes of an error's text that are sent as the reason. */
const MAX_REASON = 4096;

/** A job as its handler sees it. */
export class Job {
  #service;
  /**
   * @param {Record<string, any>} message
   * @param {AbortSignal} signal
   * @param {Service} service
   */
  constructor({ id, type, body, headers = {} }, signal, service) {
    /** @type {string} */
    this.id = id;
    /** @type {string} */
    this.type = type;
    this.body = body;
    this.headers = headers;
    /** Aborted when nobody waits for the run any more; its reason says why. */
    this.signal = signal;
    this.#service = service;
  }

  /**
   * Sends progress of the run to a submitter that asked for it. Resolves once the broker
   * has it, or the run has ended.
   * @param {unknown} body
   * @returns {Promise<void>}
   */
  progress(body) {
    const frame = encode({ action: "progress", id: this.id, body: body === undefined ? null : body });
    return new Promise((resolve) => this.#service.ask(frame, () => resolve()));
  }
}

/** One connection that serves jobs. */
class Service extends Connection {
  /**
   * Runs that have not been answered.
   * @type {Map<string, AbortController>}
   */
  runs = new Map();
  leaving = false;
  /**
   * Called with each job.
   * @type {(message: Record<string, any>) => void}
   */
  begin = () => {};

  onMessage(message) {
    if (message.action === "cancel") {
      const reason = "nobody waits for this run any more";
      this.runs.get(message.id)?.abort(new JobError({ error: "cancelled", reason, id: message.id }));
    } else if (message.action === "job" && this.leaving) {
      this.ask(encode({ action: "release", id: message.id }), () => this.finish());
    } else if (message.action === "job") {
      this.begin(message);
    }
  }

  /** Asks for no more jobs, and closes when all jobs are answered. */
  leave() {
    if (this.leaving) return;
    this.leaving = true;
    this.ask(encode({ action: "leave" }), () => this.finish());
  }

  giveUp() {
    if (this.askedToJoin) this.leave();
    else super.giveUp();
  }

  finish() {
    if (this.leaving && this.runs.size === 0 && this.requests.length === 0) {
      this.close(new ClosedError("the worker has left"));
    }
  }

  /**
   * Ends a run with the frame of its answer or failure.
   * @param {string} id
   * @param {Buffer} frame
   * @param {boolean} [mayRetry] the frame is that of a failure after which the job may be retried
   */
  answer(id, frame, mayRetry) {
    const size = frame.length - HEADER;
    if (size > this.maxFrame) {
      frame = failure(id, new Fatal(`answer of ${size} bytes, at most ${this.maxFrame} are allowed`));
    }
    this.ask(frame, (error) => {
      this.runs.delete(id);
      // The broker would refuse the same answer again.
      const refused = error instanceof RefusedError && error.code !== "unknown_id";
      if (refused) {
        const why = `answer ${error.message}`;
        this.ask(failure(id, mayRetry ? why : new Fatal(why)), () => this.finish());
      }
      this.finish();
    });
  }
}

export class Worker {
  #options;
  #join;
  #handler;
  #stopTimeout;
  /** @type {Set<Service>} */
  #services = new Set();
  #stopping = new AbortController();
  /** @type {Promise<void[]> | undefined} */
  #running;
  /** @type {unknown} */
  #refusal;
  /** @type {() => void} */
  #joined = () => {};

  /**
   * @param {string | string[]} type
   * @param {(job: Job) => unknown} handler
   * @param {Record<string, any>} [options]
   */
  constructor(type, handler, options = {}) {
    const { concurrency = 1, except = [], headers = false, stopTimeout = 30_000, ...rest } = options;
    if (typeof handler !== "function") throw new TypeError("handler: must be a function");
    const several = Array.isArray(type);
    if (several && !type.length) throw new RangeError("type: an empty array");
    if (!Array.isArray(except)) throw new TypeError("except: must be an array");
    if (except.length && !several) throw new TypeError("except: only with an array of types");
    this.#options = new Options(rest, "worker");
    this.#handler = handler;
    this.#stopTimeout = duration("stopTimeout", stopTimeout);
    this.#join = encode({
      action: "join",
      type: several ? undefined : name("type", type),
      types: several ? type.map((one) => name("type", one)) : undefined,
      except: except.length ? except.map((one) => name("except", one)) : undefined,
      prefetch: integer("concurrency", concurrency, 1, 1_000_000),
      cancel: true,
      headers: headers ? true : undefined,
    });
  }

  /**
   * Serves jobs until stop is called, signal aborts, or SIGTERM or SIGINT comes; then lets
   * running jobs finish. A second SIGTERM or SIGINT stops at once.
   * @param {{signals?: boolean, signal?: AbortSignal}} [options]
   * @returns {Promise<void>}
   */
  async run(options = {}) {
    const { signals = true, signal } = options;
    /** @type {Promise<void> | undefined} */
    let stopped;
    const stop = () => {
      stopped = this.stop(this.#stopping.signal.aborted ? 0 : undefined);
      stopped.catch(() => {});
    };
    signal?.addEventListener("abort", stop);
    if (signals) for (const one of ["SIGTERM", "SIGINT"]) process.on(one, stop);
    try {
      if (signal?.aborted) return;
      this.#begin();
      await this.#running;
      await stopped;
    } finally {
      signal?.removeEventListener("abort", stop);
      if (signals) for (const one of ["SIGTERM", "SIGINT"]) process.off(one, stop);
    }
    if (this.#refusal) throw this.#refusal;
  }

  /**
   * Starts to serve jobs; resolves when it has joined one broker.
   * @returns {Promise<void>}
   */
  async start() {
    const joined = new Promise((resolve) => (this.#joined = () => resolve(undefined)));
    this.#begin();
    await Promise.race([joined, this.#running]);
    if (this.#refusal) throw this.#refusal;
    if (this.#stopping.signal.aborted) throw new ClosedError("the worker was stopped");
  }

  /**
   * Takes no more jobs, gives back those not started, lets running ones finish, and waits
   * until the brokers have their answers. After timeout milliseconds it closes the
   * connections in any case.
   * @param {number} [timeout]
   * @returns {Promise<void>}
   */
  async stop(timeout = this.#stopTimeout) {
    this.#stopping.abort();
    for (const service of this.#services) service.giveUp();
    /** @type {ClosedError | undefined} */
    let late;
    const timer = setTimeout(() => {
      const open = [...this.#services].filter(({ endError }) => !endError);
      if (open.length === 0) return;
      let jobs = 0;
      for (const service of open) jobs += service.runs.size;
      const left = jobs ? `with ${jobs} ${jobs > 1 ? "jobs" : "job"} unanswered` : "without the brokers' replies";
      late = new ClosedError(`the worker stopped after ${timeout} ms ${left}`);
      for (const service of open) service.close(late);
    }, Math.min(timeout, MAX_TIMER));
    await this.#running;
    clearTimeout(timer);
    if (late) throw late;
  }

  #begin() {
    if (this.#running) throw new TypeError("the worker has already been started");
    const serving = this.#options.addrs.map((addr) => this.#serve(addr));
    this.#running = Promise.all(serving);
  }

  /** Stays joined to one broker. */
  async #serve(addr) {
    const { notify, backoff } = this.#options;
    const waits = new Backoff(/** @type {[number, number]} */ (backoff));
    const stopping = this.#stopping.signal;
    while (!stopping.aborted) {
      let event = /** @type {"failed" | "lost"} */ ("failed");
      let error;
      const began = performance.now();
      try {
        const at = this.#options.told ? addr : this.#options.addrs[0];
        const service = new Service(at, this.#options);
        service.begin = (message) => void this.#work(message, service);
        this.#services.add(service);
        service.lost.then(() => this.#services.delete(service));
        await service.open(stopping, this.#join);
        notify({ event: "joined", addr });
        this.#joined();
        if (stopping.aborted) service.leave();
        error = await service.lost;
        for (const run of service.runs.values()) run.abort(new LostError(error, { addr }));
        event = "lost";
      } catch (failed) {
        error = failed;
      }
      if (stopping.aborted) return;
      if (event === "failed" && isPermanent(error)) {
        notify({ event: "given up", addr, error });
        this.#refusal ??= error;
        return;
      }
      waits.recordDuration(performance.now() - began);
      const wait = waits.next();
      notify({ event, addr, error, wait });
      await sleep(wait, stopping);
    }
  }

  /** Runs the handler for a job. */
  async #work(message, service) {
    const { id } = message;
    const run = new AbortController();
    service.runs.set(id, run);
    try {
      const body = await this.#handler(new Job(message, run.signal, service));
      service.answer(id, answer(id, body));
    } catch (error) {
      const meant = [Fatal, RetryAfter, Release].some((kind) => error instanceof kind);
      if (!meant && !run.signal.aborted) this.#options.notify({ event: "threw", addr: service.addr, error });
      service.answer(id, failure(id, error), !(error instanceof Fatal));
    }
  }
}

/** The frame for a run whose handler returned. */
function answer(id, body) {
  try {
    return encode({ action: "respond", id, body: body === undefined ? null : body });
  } catch (error) {
    return failure(id, new Fatal(`answer: ${/** @type {Error} */ (error).message}`));
  }
}

/** The frame for a run whose handler threw. */
function failure(id, error) {
  const delay = error instanceof RetryAfter || error instanceof Release ? delayOf(error.delay) : undefined;
  if (error instanceof Release) return encode({ action: "release", id, delay_ms: delay || undefined });
  const meant = error instanceof Fatal || error instanceof RetryAfter;
  const text = error instanceof Error ? (meant ? error.message : `${error.name}: ${error.message}`) : String(error);
  let reason = Buffer.from(text || "failed by the worker").toString(); // without unpaired surrogates
  if (Buffer.byteLength(reason) > MAX_REASON) {
    const head = Buffer.from(reason).subarray(0, MAX_REASON);
    reason = `${new TextDecoder().decode(head, { stream: true })}…`;
  }
  return encode({ action: "fail", id, reason, retry: error instanceof Fatal ? false : undefined, delay_ms: delay });
}

/** The handler's delay, limited to what the broker accepts. */
function delayOf(delay) {
  try {
    return duration("delay", delay);
  } catch {
    return 0;
  }
}
