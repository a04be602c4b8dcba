// Frames and messages: encoding and decoding.

import { ProtocolError } from "./errors.js";

/** Size of the length prefix, in bytes. */
export const HEADER = 4;

/** Largest number of bytes of an id, a type or a group. */
export const MAX_NAME = 1024;

/** Bytes that a frame from the broker may have beyond max_frame: id, type, headers, keys. */
const ENVELOPE = 64 * 1024;

/** Deepest nesting of arrays and objects; the message itself is the first level. */
const MAX_DEPTH = 1024;

/** Refuses bytes that are not UTF-8. */
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * JSON as its bytes. As a body it is sent unchanged; with the option `raw`, bodies
 * arrive as RawJSON. Numbers keep all their digits, and objects the order of their
 * keys.
 */
export class RawJSON {
  constructor(json) {
    const bytes = Buffer.from(/** @type {any} */ (json));
    JSON.parse(utf8.decode(bytes));
    this.bytes = bytes;
  }

  static trusted(bytes) {
    const raw = Object.create(RawJSON.prototype);
    raw.bytes = bytes;
    return raw;
  }

  toString() {
    return this.bytes.toString();
  }

  /** The value, as JSON.parse returns it. */
  parse() {
    return JSON.parse(this.toString());
  }

  /** Inside another value it becomes a plain value; only a whole body keeps its bytes. */
  toJSON() {
    return this.parse();
  }
}

/**
 * One frame: an object with these fields, in this order, without undefined ones.
 * @param {Record<string, unknown>} fields
 * @returns {Buffer}
 */
export function encode(fields) {
  const parts = [];
  let text = "{";
  for (const [key, value] of Object.entries(fields)) {
    if (value === undefined) continue;
    if (text !== "{" || parts.length) text += ",";
    text += `${JSON.stringify(key)}:`;
    if (value instanceof RawJSON) {
      parts.push(Buffer.from(text), value.bytes);
      text = "";
    } else {
      text += typeof value === "bigint" ? value : stringify(value);
    }
  }
  parts.push(Buffer.from(`${text}}`));
  const header = Buffer.allocUnsafe(HEADER);
  const payload = parts.reduce((sum, part) => sum + part.length, 0);
  header.writeUInt32BE(payload);
  const frame = Buffer.concat([header, ...parts], HEADER + payload);
  if (isTooDeep(frame.subarray(HEADER))) throw new RangeError(`nested deeper than ${MAX_DEPTH}, the message included`);
  return frame;
}

/** Whether valid JSON is nested deeper than a message may be. */
function isTooDeep(json) {
  if (json.length <= 2 * MAX_DEPTH) return false; // each level has two brackets
  for (let at = 0, depth = 0; at < json.length; at++) {
    const byte = json[at];
    if (byte === QUOTE) {
      for (at++; json[at] !== QUOTE; at++) if (json[at] === BACKSLASH) at++;
    } else if (byte === OPEN || byte === BEGIN) {
      if (++depth > MAX_DEPTH) return true;
    } else if (byte === CLOSE || byte === END) depth--;
  }
  return false;
}

function stringify(value) {
  const text = JSON.stringify(value);
  if (text === undefined) throw new TypeError(`a ${typeof value} cannot be expressed in JSON`);
  if (text.includes("null")) JSON.stringify(value, finite); // stringify writes NaN as null
  return text;
}

/** Lets JSON.stringify refuse numbers that JSON does not have. */
function finite(_, value) {
  if ((typeof value === "number" || value instanceof Number) && !Number.isFinite(Number(value))) throw new TypeError(`${value} cannot be expressed in JSON`);
  return value;
}

/**
 * Reads the payload of a frame. With raw, body and progress become RawJSON.
 * @param {Buffer} payload
 * @param {boolean} raw
 * @returns {Record<string, any>}
 */
export function decode(payload, raw) {
  let message;
  try {
    message = JSON.parse(utf8.decode(payload));
  } catch (cause) {
    throw new ProtocolError("the broker sent a frame that is not JSON", { cause });
  }
  if (message === null || typeof message !== "object" || Array.isArray(message)) {
    throw new ProtocolError("the broker sent a frame that is not an object");
  }
  if (isTooDeep(payload)) throw new ProtocolError("the broker sent a frame that is nested too deep");
  check(message);
  if (raw && ("body" in message || "progress" in message)) keepBytes(payload, message);
  return message;
}

/** Refuses a message whose keys do not fit its kind: a client that ignored it might wait forever. */
function check(message) {
  const { action, ok, id } = message;
  const need = (/** @type {string} */ key) => {
    if (typeof message[key] !== "string") throw new ProtocolError(`the broker sent a frame whose ${key} is not a string`);
  };
  if ("error" in message) {
    need("error");
    need("reason");
    if (id !== undefined && id !== null) need("id");
  } else if (action === "job") {
    need("id");
    need("type");
    if (!("body" in message)) throw new ProtocolError("the broker sent a job without a body");
  } else if (action === "cancel") {
    need("id");
  } else if ("action" in message) {
    return; // a ping, or a kind that this client does not know
  } else if ("ok" in message) {
    if (ok !== true) throw new ProtocolError("the broker sent an ok that is not true");
    if (id !== undefined && id !== null) need("id");
  } else if ("id" in message && ("body" in message || "progress" in message)) {
    need("id");
  }
}

const QUOTE = 0x22, COMMA = 0x2c, BACKSLASH = 0x5c, OPEN = 0x5b, CLOSE = 0x5d;
const BEGIN = 0x7b, END = 0x7d;

/** Replaces body and progress of a valid message by their bytes. */
function keepBytes(payload, message) {
  let at = skipSpace(payload, 0);
  do {
    at = skipSpace(payload, at + 1); // after { or ,
    const end = skipValue(payload, at);
    const key = JSON.parse(payload.toString("utf8", at, end));
    const from = skipSpace(payload, skipSpace(payload, end) + 1);
    at = skipValue(payload, from);
    if (key === "body" || key === "progress") message[key] = RawJSON.trusted(Buffer.from(payload.subarray(from, at)));
    at = skipSpace(payload, at);
  } while (payload[at] === COMMA);
}

function skipSpace(json, at) {
  while (json[at] === 0x20 || json[at] === 0x0a || json[at] === 0x0d || json[at] === 0x09) at++;
  return at;
}

/** The index after the value that begins at this one, in valid JSON. */
function skipValue(json, at) {
  for (let depth = 0; at < json.length; at++) {
    const byte = json[at];
    if (byte === QUOTE) {
      for (at++; json[at] !== QUOTE; at++) {
        if (json[at] === BACKSLASH) at++;
      }
      if (depth === 0) return at + 1;
    } else if (byte === OPEN || byte === BEGIN) {
      depth++;
    } else if (byte === CLOSE || byte === END) {
      if (depth === 0) return at;
      if (--depth === 0) return at + 1;
    } else if (depth === 0 && (byte === COMMA || byte <= 0x20)) {
      return at;
    }
  }
  return at;
}

/** Splits a stream into frames. */
export class Framer {
  constructor(maxFrame) {
    /** Largest payload that the broker may send, in bytes. */
    this.limit = maxFrame + ENVELOPE;
    /** @type {Buffer[]} */
    this.chunks = [];
    this.held = 0;
    /** Bytes that must have arrived before the next frame can be complete. */
    this.needed = HEADER;
  }

  /**
   * Takes bytes and yields the complete payloads. Throws a ProtocolError if a
   * length is above the limit, because nothing after it can be read.
   * @param {Buffer} chunk
   */
  *push(chunk) {
    this.chunks.push(chunk);
    this.held += chunk.length;
    if (this.held < this.needed) return;
    let bytes = this.chunks.length === 1 ? chunk : Buffer.concat(this.chunks, this.held);
    let at = 0;
    this.needed = HEADER;
    while (bytes.length - at >= HEADER) {
      const length = bytes.readUInt32BE(at);
      if (length > this.limit) {
        throw new ProtocolError(`frame of ${length} bytes, at most ${this.limit} are allowed`);
      }
      if (bytes.length - at < HEADER + length) {
        this.needed = HEADER + length;
        break;
      }
      at += HEADER + length;
      yield bytes.subarray(at - length, at);
    }
    bytes = bytes.subarray(at);
    this.chunks = bytes.length ? [bytes] : [];
    this.held = bytes.length;
  }
}

/**
 * A name as the broker accepts it; otherwise TypeError or RangeError.
 * @param {string} field
 * @param {unknown} value
 * @returns {string}
 */
export function name(field, value) {
  if (typeof value !== "string") throw new TypeError(`${field} ${value}: must be a string`);
  const size = Buffer.byteLength(value);
  if (size < 1 || size > MAX_NAME) {
    throw new RangeError(`${field} of ${size} bytes: must be 1 to ${MAX_NAME}`);
  }
  if (/\p{Surrogate}/u.test(value)) {
    throw new TypeError(`${field} ${JSON.stringify(value)}: contains an unpaired surrogate`);
  }
  return value;
}

/**
 * An integer within its range; otherwise TypeError or RangeError.
 * @param {string} field
 * @param {unknown} value
 * @param {number} min
 * @param {number} max
 * @returns {number}
 */
export function integer(field, value, min, max) {
  if (typeof value !== "number" || !Number.isInteger(value)) {
    throw new TypeError(`${field} ${value}: must be an integer`);
  }
  if (value < min || value > max) throw new RangeError(`${field} ${value}: must be ${min} to ${max}`);
  return value;
}

/** The longest duration, a year, in milliseconds. */
export const YEAR = 31_536_000_000;

/**
 * Milliseconds, rounded up; otherwise TypeError or RangeError.
 * @param {string} field
 * @param {unknown} value
 * @param {number} [max]
 */
export function duration(field, value, max = YEAR) {
  return integer(field, typeof value === "number" ? Math.ceil(value) : value, 0, max);
}
