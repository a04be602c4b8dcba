// The golden frames that all clients must agree on, read in place.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { ENDS } from "../src/errors.js";
import { decode, encode, Framer, RawJSON } from "../src/wire.js";

function cases(name) {
  const url = new URL(`../../../wire/testdata/${name}.json`, import.meta.url);
  const found = JSON.parse(readFileSync(url, "utf8")).cases;
  assert.ok(found.length > 0);
  return found;
}

function kind(message) {
  if (typeof message.error === "string") return "error";
  if (message.action !== undefined) return message.action;
  if (message.ok === true) return "ok";
  return "body" in message ? "result" : "progress";
}

test("replies mean what they should, raw or not", () => {
  for (const { name, text, meaning } of cases("replies")) {
    for (const raw of [true, false]) {
      const message = decode(Buffer.from(text), raw);
      const told = { kind: kind(message) };
      for (const key of ["id", "type", "server", "state", "reason", "cause", "delay_ms"]) {
        if (message[key] !== undefined && message[key] !== null) told[key] = message[key];
      }
      if (told.kind === "error") told.code = message.error;
      for (const [key, value] of Object.entries(message.limits ?? {})) {
        if (key in meaning) told[key] = value;
      }
      const body = "body" in message ? message.body : message.progress;
      if (body !== undefined) told.body = raw ? String(body) : body;
      if (message.headers !== undefined) told.headers = message.headers;
      const want = { ...meaning };
      if (!raw && "body" in want) want.body = JSON.parse(want.body);
      if ("headers" in want) want.headers = JSON.parse(want.headers);
      assert.deepEqual(told, want, `${name}, raw: ${raw}`);
    }
  }
});

test("a message that is nested too deep is not sent", () => {
  const levels = (/** @type {number} */ n) => "[".repeat(n) + "]".repeat(n);
  for (const make of [(/** @type {string} */ json) => new RawJSON(json), JSON.parse]) {
    assert.ok(encode({ action: "respond", body: make(levels(1023)) }));
    assert.ok(encode({ action: "respond", body: make(`["${"[{".repeat(2000)}\\""]`) }));
    assert.throws(() => encode({ action: "respond", body: make(levels(1024)) }), RangeError);
  }
});

test("streams are cut alike, however their bytes arrive", () => {
  for (const { name, hex, max_frame, payloads, rest = 0, error } of cases("streams")) {
    const bytes = Buffer.from(hex, "hex");
    for (const size of [1, 2, 3, 7, bytes.length || 1]) {
      const framer = new Framer(max_frame);
      framer.limit = max_frame;
      const cut = [];
      let failed;
      try {
        for (let at = 0; at < bytes.length; at += size) {
          for (const payload of framer.push(bytes.subarray(at, at + size))) cut.push(String(payload));
        }
      } catch (caught) {
        failed = caught;
      }
      assert.deepEqual(cut, payloads, `${name}, by ${size}`);
      if (error) for (const word of error.says) assert.ok(failed?.message.includes(word), `${name}: ${failed}`);
      else assert.deepEqual([failed, framer.held], [undefined, rest], `${name}, by ${size}`);
    }
  }
});

test("requests are written so that the broker reads what is meant", () => {
  let tried = 0;
  const numbers = /"priority":(-?\d{16,})/;
  for (const { name, text, meaning } of [...cases("submitter"), ...cases("worker"), ...cases("both")]) {
    if (!meaning || text === undefined || numbers.test(text)) continue;
    const { body, ...fields } = JSON.parse(text);
    const raw = decode(Buffer.from(text), true).body;
    const frame = encode(body === undefined ? fields : { ...fields, body: raw });
    assert.equal(frame.readUInt32BE(0), frame.length - 4);
    const again = JSON.parse(frame.subarray(4));
    assert.equal(JSON.stringify({ ...again, body: 0 }), JSON.stringify({ ...fields, body: 0 }), name);
    if (raw) assert.equal(String(decode(frame.subarray(4), true).body), String(raw), name);
    tried++;
  }
  assert.ok(tried > 50);
});

test("codes that end a job are known", () => {
  for (const { name, ends_job } of cases("codes")) assert.equal(ENDS.has(name), ends_job, name);
});

test("numbers that JSON does not have are refused, not sent as null", () => {
  for (const [body, number] of /** @type {[unknown, string][]} */ ([
    [NaN, "NaN"],
    [{ a: [1, -Infinity] }, "-Infinity"],
    [[new RawJSON("1e999")], "Infinity"],
  ])) {
    assert.throws(() => encode({ body }), { name: "TypeError", message: `${number} cannot be expressed in JSON` });
  }
  const written = encode({ body: { a: null, b: [undefined], c: "null" } }).subarray(4).toString();
  assert.equal(written, '{"body":{"a":null,"b":[null],"c":"null"}}');
});

test("raw JSON is JSON, and passes as it is", () => {
  const text = ' {"price": 1.10, "id": 1E400, "big": 123456789012345678901234567890} ';
  assert.ok(String(encode({ body: new RawJSON(text) })).endsWith(`{"body":${text}}`));
  for (const wrong of ["", "{", '1,"id":2', "nul", Buffer.from([0x22, 0xff, 0x22])]) {
    assert.throws(() => new RawJSON(wrong), `${wrong}`);
  }
  assert.throws(() => encode({ body: () => {} }), TypeError);
});

test("frames in raw mode that are not objects are refused", () => {
  for (const text of ["", "[]", "5", "null", "{", '{"a"}', '{"a":1,}', '{"a":1}x', '{"a" 1}', '{"a":"', '"x"']) {
    for (const raw of [true, false]) assert.throws(() => decode(Buffer.from(text), raw), { name: "ProtocolError" }, text);
  }
});
