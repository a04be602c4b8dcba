/** One JSON value as its bytes, with every digit and the order of keys. */
export class RawJSON {
  /** Throws SyntaxError if it is not JSON. */
  constructor(json: string | Uint8Array);
  readonly bytes: Uint8Array;
  toString(): string;
  parse(): any;
}

/** A connection event that no call reports, or an error thrown by a handler. */
export interface Notice {
  event: "connected" | "joined" | "lost" | "failed" | "given up" | "threw";
  /** The broker's address. */
  addr: string;
  /** The cause. */
  error?: unknown;
  /** Milliseconds until the next attempt. */
  wait?: number;
}

/** Settings that submitters and workers share. */
export interface ConnectionOptions {
  /**
   * Brokers: "host:port", "tls://host:port" or "unix:/path". Default: the unix socket
   * of this host's broker, if there is one, else 127.0.0.1:9998 or :9999. A submitter
   * uses one at a time, a worker joins all.
   */
  addrs?: string | string[];
  /** Authenticates each connection. */
  token?: string;
  /** A name for the broker's log, such as "mailer/1.4". */
  client?: string;
  /** Milliseconds between the broker's pings, 100 to 3600000; silence for three intervals ends the connection. Default: none. */
  heartbeat?: number;
  /** Encrypts all connections: options of tls.connect, such as ca, cert and key. */
  tls?: object;
  /** Milliseconds for one attempt to connect, including TLS and hello. Default: 10000. */
  connectTimeout?: number;
  /** Bytes of the largest frame that the broker accepts, unless its hello gives the limit. Default: 16 MiB. */
  maxFrame?: number;
  /** The first and the largest wait before another attempt to connect, in milliseconds. Default: [100, 15000]. */
  backoff?: [number, number];
  /** Bodies arrive as RawJSON. Default: false. */
  raw?: boolean;
  /** Called with each notice. Default: console.error for "threw" and "given up". What it throws is only printed. */
  notify?: (notice: Notice) => void;
}

/** Options of a job. Durations are milliseconds, at most a year. */
export interface JobOptions {
  /** 1 to 1024 bytes, unique in the broker while the job has not ended. Default: a unique one. */
  id?: string;
  /** Jobs of a larger priority go first; of two with the same, the older one. Default: 0. */
  priority?: number | bigint;
  /** The time before the job may be handed out. Default: 0. */
  delay?: number;
  /** The longest time of one run; after that the run has failed. Default: no limit. */
  timeout?: number;
  /** Runs after the first, 0 to 1000. Default: the broker's, which is 3. */
  retries?: number;
  /**
   * The wait before the first retry, doubled for each further one; at most a day. A job whose worker
   * is lost runs again at once. Default: 1000, unless retries is 0.
   */
  backoff?: number;
  /** The deadline for starting, counted from now, including the delay. */
  expires?: number;
  /** The job outlives its submitter; its answer is discarded. */
  detach?: boolean;
  /** The groups that the job belongs to, such as its tenant: at most 16 names. */
  groups?: string[];
  /** The job is ordered as if it had been submitted this long ago. */
  age?: number;
  /** The job outlives its connection, and its outcome is kept for this time, at most a day. */
  keep?: number;
  /** With keep: submit the job again if the broker no longer knows it, even though it may have run. */
  atLeastOnce?: boolean;
  /** For workers that ask for them: at most 4 KiB of JSON. */
  headers?: Record<string, unknown>;
  /** Called with the progress that the worker reports. */
  onProgress?: (body: any) => void;
  /** When it aborts, the job is not submitted or is cancelled; result and ack reject with its reason. */
  signal?: AbortSignal;
}

/** A submitted job. */
export interface Pending {
  readonly id: string;
  /** Waits until the broker has accepted the job. */
  ack(): Promise<void>;
  /** Waits for the answer; undefined for a detached job. Rejects with JobError, RefusedError or LostError. */
  result(): Promise<any>;
}

/** The result for one body given to map. */
export interface Outcome<B = unknown> {
  /** The index of the body in the iterable, from 0. */
  index: number;
  id: string;
  body: B;
  result?: any;
  error?: any;
}

/**
 * Submits jobs to a broker over one connection. It connects when it is first used, and
 * again whenever the connection is lost. Until it is closed, it keeps the process
 * alive.
 */
export class Submitter {
  /** window: the maximum number of jobs submitted and not ended; at the limit submit waits. Default: 1024. */
  constructor(options?: ConnectionOptions & { window?: number });
  /** The number of jobs submitted and not ended. */
  readonly outstanding: number;
  /** Connects; rejects if the first attempt fails at all brokers. */
  connect(): Promise<void>;
  /** Submits a job; resolves as soon as it is being sent. Waits for room and for a connection. */
  submit(type: string | null, body?: unknown, options?: JobOptions): Promise<Pending>;
  /** Submits a job and waits for its answer. */
  do(type: string | null, body?: unknown, options?: JobOptions): Promise<any>;
  /**
   * Submits a job for each body, as fast as the window allows, and yields their results
   * in the order in which the jobs end. Leaving the loop cancels the rest.
   */
  map<B>(type: string | null, bodies: Iterable<B> | AsyncIterable<B>, options?: Omit<JobOptions, "id">):
    AsyncGenerator<Outcome<B>, void, undefined>;
  /** Attaches to a kept job to get its outcome. The connection that had the job gets a JobError "taken_over". */
  attach(id: string, options?: { onProgress?: (body: any) => void; signal?: AbortSignal }): Promise<Pending>;
  /** Cancels a job of this submitter, or a detached one; RefusedError "unknown_id" if it has ended. */
  cancel(id: string): Promise<void>;
  /** Changes a waiting job. */
  change(id: string, what: { priority?: number | bigint; groups?: string[]; delay?: number }): Promise<void>;
  /** Sends a ping and waits for the broker's answer. */
  ping(): Promise<void>;
  /** Takes no more jobs, waits for the outstanding ones to end, and closes. */
  drain(): Promise<void>;
  /**
   * Reads what the broker has sent to kept jobs, for at most this many milliseconds, and closes.
   * Without a pending kept job it closes at once. Default: 2000. The broker forgets the outcome of
   * a kept job once it has sent it; leave delivers such outcomes. The other pending jobs fail as
   * with close, and the broker still keeps the outcomes of those that are kept.
   */
  leave(within?: number): Promise<void>;
  /**
   * Closes at once; pending jobs fail with a LostError. Outcomes of kept jobs that the broker has
   * sent, but that have not been read, are lost; leave reads them.
   */
  close(): Promise<void>;
}

/** A job as its handler sees it. */
export interface Job {
  readonly id: string;
  readonly type: string;
  readonly body: any;
  /** Empty unless the worker asked for headers. */
  readonly headers: Record<string, any>;
  /** Aborted when nobody waits for the run any more; its reason says why. */
  readonly signal: AbortSignal;
  /** Sends progress of the run to a submitter that asked for it. */
  progress(body: unknown): Promise<void>;
}

export interface WorkerOptions extends ConnectionOptions {
  /** The maximum number of jobs that run at once, per broker. Default: 1. */
  concurrency?: number;
  /** Types and patterns to leave out, if type is an array. */
  except?: string[];
  /** Jobs come with their headers. Default: false. */
  headers?: boolean;
  /** Milliseconds that running jobs have to finish when the worker stops. Default: 30000. */
  stopTimeout?: number;
}

/**
 * Serves jobs of one or more types; in an array, * matches any characters. What the
 * handler returns is the answer; an exception fails the run, with its text as the reason.
 */
export class Worker {
  constructor(type: string | string[], handler: (job: Job) => unknown, options?: WorkerOptions);
  /**
   * Serves jobs until stop is called, signal aborts, or SIGTERM or SIGINT arrives; then lets
   * running jobs finish. A second SIGTERM or SIGINT stops at once.
   */
  run(options?: { signals?: boolean; signal?: AbortSignal }): Promise<void>;
  /** Starts to serve; resolves when it has joined one broker. Call stop when the worker is no
   * longer needed. */
  start(): Promise<void>;
  /** Takes no more jobs and waits for the running ones, for at most this many milliseconds. */
  stop(timeout?: number): Promise<void>;
}

/** The base class of all errors of this package. */
export class GloomError extends Error {}
/** The broker violated the protocol. */
export class ProtocolError extends GloomError {}
/** The object was used after close, drain or stop. */
export class ClosedError extends GloomError {}
/** No connection to a broker. */
export class NotConnectedError extends GloomError {}

/** The connection was lost while a job or a request was pending on it. */
export class LostError extends GloomError {
  readonly addr: string;
  readonly id?: string;
  /** The broker had accepted the job. */
  readonly acked: boolean;
  /** Part of the submit may have left this process. False: the job never ran. */
  readonly sent: boolean;
}

declare class BrokerError extends GloomError {
  /** The error code of the protocol, such as "id_exists". */
  readonly code: string;
  /** A sentence for people. */
  readonly reason: string;
  readonly id?: string;
  /** The worker of the last run was lost: that run may have finished. */
  readonly lost: boolean;
  /** The worker wants no further run. */
  readonly final: boolean;
  /** The delay that the worker asked for although no retry was left, in milliseconds. */
  readonly delay?: number;
}
/** The broker refused a request: nothing has changed. */
export class RefusedError extends BrokerError {}
/** A job that the broker had accepted ended without an answer, or another connection has it now. */
export class JobError extends BrokerError {}

/** Thrown by a handler: the job fails at once, even if it has retries left. */
export class Fatal extends GloomError {
  constructor(reason: string);
}
/** Thrown by a handler: the run has failed, and the next one waits this many milliseconds. */
export class RetryAfter extends GloomError {
  constructor(delay: number, reason?: string);
  readonly delay: number;
}
/** Thrown by a handler: the job goes back to its place as if it had never been handed out. */
export class Release extends GloomError {
  constructor(delay?: number);
  readonly delay: number;
}
