// One connection to one broker: it turns bytes into messages, and matches replies
// to requests.

import { connect } from "node:net";
import { connect as connectTLS } from "node:tls";
import { ClosedError, LostError, NotConnectedError, ProtocolError, RefusedError } from "./errors.js";
import { splitAddr } from "./options.js";
import { decode, encode, Framer } from "./wire.js";

/** With this many bytes waiting to be sent, the connection accepts no new jobs. */
const MAX_UNSENT = 1024 * 1024;

/** The longest time of a timer, in milliseconds: a longer one would be over at once. */
export const MAX_TIMER = 2 ** 31 - 1;

/**
 * @typedef {object} Request
 * @property {string | undefined} id the job that it is about
 * @property {(error: Error | null, reply?: Record<string, any>) => void} done
 */

export class Connection {
  /**
   * Begins to connect; open waits for it.
   * @param {string} addr
   * @param {import("./options.js").Options} options
   */
  constructor(addr, options) {
    this.addr = addr;
    this.options = options;
    /** Largest payload that the broker accepts, in bytes. */
    this.maxFrame = options.maxFrame;
    this.framer = new Framer(options.maxFrame);
    /**
     * Requests that wait for a reply, in the order in which they were sent.
     * @type {Request[]}
     */
    this.requests = [];
    /**
     * The error that ended the connection.
     * @type {Error | undefined}
     */
    this.endError = undefined;
    /** Whether the broker was asked to join, so that jobs may come. */
    this.askedToJoin = false;
    /** Whether this side of the connection is shut down. */
    this.outputEnded = false;
    const at = splitAddr(addr);
    const tls = "host" in at && (options.tls || at.tls);
    const servername = "host" in at && !/^[\d.]+$|:/.test(at.host) ? at.host : "";
    const socket = tls ? connectTLS({ servername, ...options.tls, ...at }) : connect(at);
    socket.setNoDelay(true);
    socket.setKeepAlive(true, 30_000);
    socket.on("error", (error) => this.close(error));
    socket.on("end", () => this.close(new NotConnectedError("closed by the broker")));
    socket.on("data", (chunk) => this.#read(chunk));
    this.connected = new Promise((resolve) => socket.once(tls ? "secureConnect" : "connect", resolve));
    /**
     * Resolves with the error that ended the connection, once its socket is closed.
     * @type {Promise<Error>}
     */
    this.lost = new Promise((resolve) => {
      socket.on("close", () => {
        this.close(new NotConnectedError("closed by the broker"));
        resolve(/** @type {Error} */ (this.endError));
      });
    });
    this.socket = socket;
  }

  /**
   * Waits until the connection is open, and the broker has answered hello and, for a worker, join.
   * @param {AbortSignal} signal ends the attempt
   * @param {Buffer} [join]
   */
  async open(signal, join) {
    const { token, client, heartbeat, connectTimeout } = this.options;
    const late = new NotConnectedError(`no connection within ${connectTimeout} ms`);
    const timer = setTimeout(() => this.close(late), connectTimeout);
    const abort = () => this.giveUp();
    signal.addEventListener("abort", abort);
    try {
      await Promise.race([this.connected, this.lost]);
      const hello = { action: "hello", token, client, heartbeat_ms: heartbeat || undefined };
      const { limits } = await this.request(hello);
      if (Number.isInteger(limits?.max_frame)) this.maxFrame = limits.max_frame;
      if (Number.isInteger(limits?.max_frame_out)) this.framer.limit = limits.max_frame_out;
      if (heartbeat) this.watchSilence(3 * heartbeat);
      if (join) {
        this.askedToJoin = true;
        await new Promise((resolve, reject) => this.ask(join, (error) => (error ? reject(error) : resolve(undefined))));
      }
      return this;
    } catch (error) {
      this.close(/** @type {Error} */ (error));
      throw await this.lost;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", abort);
    }
  }

  /** Ends the connection, which is not needed any more. */
  giveUp() {
    this.close(new ClosedError("closed"));
  }

  /** Whether the connection accepts more to send. */
  get writable() {
    return this.endError === undefined && this.socket.writableLength < MAX_UNSENT;
  }

  /** Sends a frame that has no reply. */
  send(frame) {
    if (this.endError === undefined && !this.outputEnded) this.socket.write(frame);
  }

  /** Shuts down this side of the connection; frames from the broker are still read. */
  endOutput() {
    this.outputEnded = true;
    this.socket.end();
  }

  /**
   * Sends a request; done is called with its reply, or with the error that ended the
   * connection.
   * @param {Buffer} frame
   * @param {Request["done"]} done
   * @param {string} [id]
   */
  ask(frame, done, id) {
    if (this.endError) {
      done(new LostError(this.endError, { addr: this.addr, id, sent: false }));
      return;
    }
    this.requests.push({ id, done });
    this.send(frame);
  }

  /**
   * Like ask, with a promise.
   * @param {Record<string, unknown>} fields
   * @param {string} [id]
   * @returns {Promise<Record<string, any>>}
   */
  request(fields, id) {
    return new Promise((resolve, reject) => {
      this.ask(encode(fields), (error, reply) => (error ? reject(error) : resolve(reply ?? {})), id);
    });
  }

  /** Drops the connection with this error. */
  close(error) {
    if (this.endError) return;
    this.endError = error;
    clearTimeout(this.silenceTimer);
    this.socket.destroy();
    const requests = this.requests;
    this.requests = [];
    for (const { id, done } of requests) done(new LostError(error, { addr: this.addr, id }));
  }

  /** Drops the connection when nothing has arrived for this many milliseconds. */
  watchSilence(ms) {
    const silent = new NotConnectedError(`nothing came for ${ms} ms`);
    this.silenceTimer = setTimeout(() => {
      // While the event loop was blocked, nothing was read: first it reads what has arrived.
      const { bytesRead } = this.socket;
      setImmediate(() => this.socket.bytesRead === bytesRead && this.close(silent));
    }, ms);
  }

  /** Called with a job, a result, or progress. */
  onMessage(_message) {}

  /** Called with an error; if it is not a reply, it ends the connection. */
  onError(frame) {
    const request = this.requests.shift();
    if (request) request.done(new RefusedError(frame));
    else this.close(new RefusedError(frame));
  }

  #read(chunk) {
    this.silenceTimer?.refresh();
    try {
      for (const payload of this.framer.push(chunk)) {
        if (this.endError) return;
        this.#handle(decode(payload, this.options.raw));
      }
    } catch (error) {
      this.close(/** @type {Error} */ (error));
    }
  }

  #handle(message) {
    if ("error" in message) this.onError(message);
    else if (message.action === "ping") this.send(PONG);
    else if ("ok" in message) this.#reply(message);
    else if (message.action !== undefined || "body" in message || "progress" in message) this.onMessage(message);
  }

  #reply(message) {
    const request = this.requests.shift();
    if (!request) throw new ProtocolError("an ok without a request");
    if (request.id !== undefined && message.id !== undefined && message.id !== request.id) {
      throw new ProtocolError(`an ok for ${JSON.stringify(message.id)} instead of ${JSON.stringify(request.id)}`);
    }
    request.done(null, message);
  }
}

const PONG = encode({ action: "pong" });

/** Whether another attempt would only get the same refusal. */
export function isPermanent(error) {
  return error instanceof RefusedError && !["overloaded", "draining", "invalid_state"].includes(error.code);
}

/** Sleeps for ms milliseconds, or until signal aborts. */
export function sleep(ms, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve(undefined);
    };
    const timer = setTimeout(done, Math.min(ms, MAX_TIMER));
    signal.addEventListener("abort", done);
    if (signal.aborted) done();
  });
}
