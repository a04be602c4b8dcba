// Matches the frames of a submitter's connection to its jobs. Replies
// come in the order of the requests; results, progress and ends of jobs come in any
// order between them. An error with an id may be either.

import { Connection } from "./connection.js";
import { ClosedError, ENDS, JobError, LostError, ProtocolError, RefusedError } from "./errors.js";
import { encode } from "./wire.js";

/** A job as its connection sees it, until it ends. */
export class Pending {
  /**
   * @param {string} id
   * @param {Buffer} frame the submit or attach
   * @param {Record<string, any>} options
   */
  constructor(id, frame, { detach, keep, atLeastOnce, onProgress }) {
    this.id = id;
    /**
     * Kept while it may have to be sent.
     * @type {Buffer | undefined}
     */
    this.frame = frame;
    this.detached = Boolean(detach);
    this.kept = Boolean(keep);
    this.again = Boolean(atLeastOnce);
    this.onProgress = onProgress;
    this.acked = false;
    /** Whether the broker has replied to the last submit. */
    this.replied = false;
    this.sent = false;
    /** Whether the caller has given it up: it is cancelled as soon as there is a connection. */
    this.unwanted = false;
    this.taken = deferred();
    this.end = deferred();
  }

  /**
   * Waits until the broker has accepted the job.
   * @returns {Promise<void>}
   */
  ack() {
    return this.taken.promise;
  }

  /**
   * Waits for the answer; undefined for a detached job.
   * @returns {Promise<any>}
   */
  result() {
    return this.end.promise;
  }
}

/** A promise whose rejection need not be handled. */
function deferred() {
  /** @type {(value?: any) => void} */
  let resolve = () => {};
  /** @type {(error: unknown) => void} */
  let reject = () => {};
  const promise = new Promise((res, rej) => ([resolve, reject] = [res, rej]));
  promise.catch(() => {});
  return { promise, resolve, reject };
}

export class Session extends Connection {
  /**
   * Jobs pending on this connection.
   * @type {Map<string, Pending>}
   */
  jobs = new Map();
  /** Called once for each job that no longer counts as outstanding. */
  freed = () => {};
  /** Called when the broker reports that it is stopping. */
  draining = () => {};
  retired = false;

  submit(job) {
    if (!this.#add(job)) return;
    job.sent = true;
    this.ask(/** @type {Buffer} */ (job.frame), (error) => this.#settle(job, error), job.id);
  }

  /**
   * Continues a kept job of a lost connection: attaches to it, or submits it if it was
   * never sent.
   * @param {Pending} job
   */
  resume(job, again = true) {
    if (!job.sent) {
      this.submit(job);
      return;
    }
    if (!this.#add(job)) return;
    const frame = encode({ action: "attach", id: job.id, progress: job.onProgress ? true : undefined });
    this.ask(frame, (error) => {
      const unknown = error instanceof RefusedError && error.code === "unknown_id";
      if (unknown && again && job.again) this.#resubmit(job);
      else this.#settleResumed(job, error);
    }, job.id);
  }

  #resubmit(job) {
    job.replied = false;
    this.ask(/** @type {Buffer} */ (job.frame), (error) => {
      const exists = error instanceof RefusedError && error.code === "id_exists";
      // The submit on the lost connection arrived after the attach.
      if (exists && this.jobs.delete(job.id)) this.resume(job, false);
      else this.#settleResumed(job, error);
    }, job.id);
  }

  /** Settles a job that may have run before, even if the broker refuses it now. */
  #settleResumed(job, error) {
    this.#settle(job, error && new LostError(error, { addr: this.addr, id: job.id, acked: job.acked }));
  }

  async cancel(id) {
    const job = this.jobs.get(id);
    if (job) job.again = false;
    await this.request({ action: "cancel", id }, id);
    if (job && this.jobs.get(id) === job) {
      this.#fail(job, new JobError({ error: "cancelled", reason: "by its submitter", id }));
    }
  }

  /** Closes as soon as nothing is pending. */
  retire() {
    this.retired = true;
    if (this.jobs.size === 0 && this.requests.length === 0) this.close(new ClosedError("nothing pending"));
  }

  /**
   * Fails the jobs, because the connection is gone. If keep is true, kept jobs do not fail
   * but are returned.
   * @param {Error} cause
   * @param {boolean} keep
   */
  leave(cause, keep) {
    const kept = [];
    for (const job of this.jobs.values()) {
      if (keep && job.kept) kept.push(job);
      else this.#fail(job, new LostError(cause, { addr: this.addr, id: job.id, acked: job.acked, sent: job.sent }));
    }
    this.jobs.clear();
    return kept;
  }

  onMessage(message) {
    if ("action" in message) return; // ignore a frame of an unknown kind
    const job = this.jobs.get(message.id);
    if (!job) return; // no longer pending
    if (!job.replied) throw new ProtocolError(`a result or progress of job ${JSON.stringify(job.id)} before its ack`);
    if ("progress" in message) {
      try {
        job.onProgress?.(message.progress);
      } catch (error) {
        this.options.notify({ event: "threw", addr: this.addr, error });
      }
    } else {
      this.#remove(job);
      job.end.resolve(message.body);
    }
  }

  onError(frame) {
    if (frame.error === "draining") this.draining();
    const job = this.jobs.get(frame.id);
    const mayReply = this.requests[0]?.id === frame.id;
    if (job?.replied && (!mayReply || ENDS.has(frame.error) || frame.error === "taken_over")) {
      this.#fail(job, new JobError(frame));
    } else if (typeof frame.id !== "string" && ["overloaded", "unauthorized"].includes(frame.error)) {
      this.close(new RefusedError(frame)); // about the connection
    } else if (typeof frame.id !== "string" || mayReply) {
      super.onError(frame);
    } else if (job) {
      throw new ProtocolError(`an error about job ${JSON.stringify(job.id)} out of order`);
    }
    if (this.retired) this.retire();
  }

  #add(job) {
    if (this.jobs.has(job.id)) {
      // The broker's refusal would look like the end of the first job.
      const reason = "a job of this id is pending on this connection";
      this.#fail(job, new RefusedError({ error: "id_exists", reason, id: job.id }));
      return false;
    }
    this.jobs.set(job.id, job);
    return true;
  }

  /** Handles the reply to a submit or attach. */
  #settle(job, error) {
    if (this.endError || this.jobs.get(job.id) !== job) return; // leave fails the job, or it was cancelled
    if (error) {
      this.#fail(job, error);
      return;
    }
    job.acked = job.replied = true;
    if (!job.again) job.frame = undefined;
    job.taken.resolve();
    if (job.detached) {
      this.#remove(job);
      job.end.resolve(undefined);
    }
  }

  #fail(job, error) {
    this.#remove(job);
    job.taken.reject(error);
    job.end.reject(error);
  }

  #remove(job) {
    if (this.jobs.get(job.id) === job) this.jobs.delete(job.id);
    this.freed();
    if (this.retired) this.retire();
  }
}
