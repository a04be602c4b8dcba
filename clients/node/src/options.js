// Settings that submitters and workers share.

import { existsSync } from "node:fs";
import { join } from "node:path";
import { integer } from "./wire.js";

const MAX_FRAME = 16 * 1024 * 1024;

/**
 * @typedef {object} Notice
 * @property {"connected" | "joined" | "lost" | "failed" | "given up" | "threw"} event
 * @property {string} addr the broker
 * @property {unknown} [error] why
 * @property {number} [wait] milliseconds until the next attempt
 */

/** Validated settings of a connection. */
export class Options {
  /**
   * @param {Record<string, any>} options
   * @param {"submit" | "worker"} port
   */
  constructor(options, port) {
    const known = Object.keys(defaults);
    for (const key of Object.keys(options)) {
      if (!known.includes(key)) throw new TypeError(`unknown option ${key}; the options are ${known.join(", ")}`);
    }
    const given = Object.entries(options).filter(([, value]) => value !== undefined);
    const set = { ...defaults, ...Object.fromEntries(given) };
    this.port = port;
    this.told = set.addrs === undefined ? undefined : [set.addrs].flat();
    if (this.told?.length === 0) throw new RangeError("addrs: no address");
    for (const addr of this.told ?? []) splitAddr(addr);
    this.token = optionalText("token", set.token);
    this.client = optionalText("client", set.client);
    this.heartbeat = set.heartbeat === 0 ? 0 : integer("heartbeat", set.heartbeat, 100, 3_600_000);
    this.tls = set.tls;
    this.connectTimeout = integer("connectTimeout", set.connectTimeout, 1, 3_600_000);
    this.maxFrame = integer("maxFrame", set.maxFrame, 1024, 0x7fff0000);
    this.backoff = set.backoff.map((/** @type {any} */ ms) => integer("backoff", ms, 1, 86_400_000));
    this.raw = Boolean(set.raw);
    /** @type {(notice: Notice) => void} */
    this.notify = (notice) => {
      try {
        set.notify(notice);
      } catch (error) {
        console.error("gloom: notify failed:", error);
      }
    };
  }

  /**
   * Where to connect. By default the unix socket of this host's broker, if there is
   * one, else its TCP port.
   * @returns {string[]}
   */
  get addrs() {
    if (this.told) return this.told;
    const runtime = process.env.XDG_RUNTIME_DIR;
    const folder = runtime?.startsWith("/") && process.geteuid?.() !== 0 ? runtime : "/run";
    const socket = join(folder, "gloom", `${this.port}.sock`);
    if (!this.tls && existsSync(socket)) return [`unix:${socket}`];
    return [this.port === "submit" ? "127.0.0.1:9998" : "127.0.0.1:9999"];
  }
}

/** @type {Record<string, any>} */
const defaults = {
  addrs: undefined,
  token: undefined,
  client: undefined,
  heartbeat: 0,
  tls: undefined,
  connectTimeout: 10_000,
  maxFrame: MAX_FRAME,
  backoff: [100, 15_000],
  raw: false,
  notify: (/** @type {Notice} */ { event, addr, error }) => {
    if (event === "threw" || event === "given up") console.error(`gloom: ${addr}: ${event}:`, error);
  },
};

function optionalText(field, value) {
  if (value !== undefined && typeof value !== "string") throw new TypeError(`${field}: must be a string`);
  return value;
}

/**
 * The parts of "host:port", "tls://host:port" or "unix:/path".
 * @param {unknown} addr
 * @returns {{path: string} | {host: string, port: number, tls: boolean}}
 */
export function splitAddr(addr) {
  const given = String(addr);
  if (given.startsWith("unix:/")) return { path: given.slice(5) };
  const parts = /^(tls:\/\/)?(?:\[([^\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(given);
  if (!parts || Number(parts[4]) > 65_535) {
    throw new RangeError(`address ${JSON.stringify(addr)}: must be host:port, tls://host:port or unix:/path`);
  }
  return { host: parts[2] ?? parts[3], port: Number(parts[4]), tls: parts[1] !== undefined };
}

/**
 * Computes the waits before attempts to connect: random, below a limit that doubles each
 * time, so that the clients of a broker that restarts do not all reconnect at once.
 */
export class Backoff {
  constructor([first, most]) {
    this.first = first;
    this.most = most;
    this.limit = first;
  }

  next() {
    const wait = Math.random() * this.limit;
    this.limit = Math.min(2 * this.limit, this.most);
    return wait;
  }

  /** Records how many milliseconds a connection lasted. After a long one the next wait is short again. */
  recordDuration(ms) {
    if (ms >= this.most) this.limit = this.first;
  }
}
