// The errors of this package about brokers and jobs. Misuse, such as an empty id, is
// a TypeError or RangeError, before anything is sent.

/** The base class of all errors of this package. */
export class GloomError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The broker violated the protocol; the connection is dropped. */
export class ProtocolError extends GloomError {}

/** The object was used after close, drain or stop. */
export class ClosedError extends GloomError {}

/** No connection to a broker. */
export class NotConnectedError extends GloomError {}

/**
 * The connection was lost while a job or a request was pending on it. Unless the job is
 * detached or kept, the broker discards it if it waits, and its answer if it runs.
 */
export class LostError extends GloomError {
  /**
   * @param {unknown} cause
   * @param {{addr?: string, id?: string, acked?: boolean, sent?: boolean}} about
   */
  constructor(cause, { addr = "", id, acked = false, sent = true } = {}) {
    const told = acked ? "acked" : sent ? "sent, not acked" : "not sent";
    const job = id === undefined ? "" : ` with job ${JSON.stringify(id)} ${told}`;
    const why = cause instanceof Error ? cause.message : String(cause);
    super(`connection to ${addr} lost${job}: ${why}`, { cause });
    this.addr = addr;
    /** The job, undefined if no job is concerned. */
    this.id = id;
    /** The broker had accepted the job. */
    this.acked = acked;
    /** Part of the submit may have left this process. False: the job never ran. */
    this.sent = sent;
  }
}

/** An error frame of the broker. */
class BrokerError extends GloomError {
  constructor(what, { error, reason, id, cause, delay_ms }) {
    const about = id === undefined || id === null ? "" : ` (id ${JSON.stringify(id)})`;
    super(`${what}: ${error}: ${reason}${about}`);
    /** The error code of the protocol, such as "id_exists". */
    this.code = String(error);
    /** A sentence for people. */
    this.reason = String(reason);
    /** The job, undefined if no job is concerned. */
    this.id = typeof id === "string" ? id : undefined;
    /** The worker of the job's last run was lost: that run may have finished. */
    this.lost = cause === "lost";
    /** The worker wants no further run. */
    this.final = cause === "final";
    /** The delay that the worker asked for although no retry was left, in milliseconds. */
    this.delay = typeof delay_ms === "number" ? delay_ms : undefined;
  }
}

/** The broker refused a request: nothing has changed. */
export class RefusedError extends BrokerError {
  constructor(frame) {
    super("refused", frame);
  }
}

/** A job that the broker had accepted ended without an answer, or another connection has it now. */
export class JobError extends BrokerError {
  constructor(frame) {
    super("job ended", frame);
  }
}

/** Codes that end a job that the broker had accepted. */
export const ENDS = new Set(["job_failed", "expired", "cancelled", "draining"]);

/** Thrown by a handler: the job fails at once, even if it has retries left. */
export class Fatal extends GloomError {}

/** Thrown by a handler: the run has failed, and the next one waits this many milliseconds. */
export class RetryAfter extends GloomError {
  constructor(delay, reason = "failed, to be retried later") {
    super(reason);
    this.delay = delay;
  }
}

/**
 * Thrown by a handler: the job goes back to its place as if it had never been handed
 * out, and first waits for this time. Without a wait, the same worker may get it at
 * once.
 */
export class Release extends GloomError {
  constructor(delay = 0) {
    super("released");
    this.delay = delay;
  }
}
