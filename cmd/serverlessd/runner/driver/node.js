// Runs the jobs of a Node context. Frames come in on descriptor 3: a line of
// JSON, then as many bytes as its size says. Each except "code" is answered on
// standard output: a line with the secret, a status and a size, then the
// data.
(() => {
  const AsyncFunction = (async () => {}).constructor;
  const { stdout, stderr } = process, { writeSync } = require('fs'), { inspect } = require('util');
  const print = stdout.write.bind(stdout);
  const sources = new Map();
  let secret, head, chunks = [], have = 0, busy = false;

  function answer(status, data) {
    const size = Buffer.byteLength(data);
    let left = Buffer.from(`\n${secret} ${status} ${size}\n`);
    if (size) left = Buffer.concat([left, Buffer.from(data)]);
    try { // a direct write costs less than the stream, but must not overtake what the stream still has to write
      while (left.length && !stdout.writableLength) left = left.subarray(writeSync(1, left));
    } catch {} // the stream writes the rest, or reports the error
    if (left.length) print(left);
  }

  // compiled returns the function of a source. If the source does not compile, the function throws
  // the error at each run.
  function compiled(n) {
    let f = sources.get(n);
    if (typeof f === 'string') sources.set(n, f = new AsyncFunction('payload', 'job', f));
    return f;
  }

  function result(r) {
    if (r === undefined || r === null) return [200, ''];
    if (typeof r === 'number') return [r, ''];
    if (typeof r === 'string' || r instanceof Uint8Array) return [200, r];
    if (typeof r === 'object' && ('status' in r || 'data' in r)) {
      const data = r.data ?? '';
      return [r.status ?? 200, typeof data === 'string' || data instanceof Uint8Array ? data : JSON.stringify(data)];
    }
    throw new TypeError('the handler must return nothing, a number, a string or {status, data}');
  }

  async function run(frame, bytes) {
    let status = 200, data = '';
    try {
      const f = compiled(frame.code);
      if (frame.do === 'hook') await f();
      else [status, data] = result(await f(bytes.toString(), { id: frame.id, type: frame.type, tries: frame.tries, raw: bytes }));
      if (!Number.isSafeInteger(status)) [status, data] = [500, data.length ? data : `status ${inspect(status)} counts as 500`];
    } catch (e) {
      console.error(e);
      [status, data] = [500, String(e?.message || e)];
    }
    if (stderr.writableLength) await new Promise((written) => stderr.write('', written));
    answer(status, data);
  }

  // take returns the first n bytes of the input.
  function take(n) {
    const all = chunks.length === 1 ? chunks[0] : Buffer.concat(chunks);
    chunks = [all.subarray(n)];
    have = all.length - n;
    return all.subarray(0, n);
  }

  async function serve() {
    busy = true;
    for (;;) {
      if (!head) {
        const last = chunks.at(-1), end = last ? last.indexOf(10) : -1;
        if (end < 0) break;
        head = JSON.parse(take(have - last.length + end + 1));
      }
      if (have < head.size) break;
      const frame = head, bytes = take(frame.size);
      head = undefined;
      if (frame.do === 'code') sources.set(frame.code, bytes.toString());
      else if (frame.do === 'hello') answer(200, ((secret = frame.secret), ''));
      else await run(frame, bytes);
    }
    busy = false;
  }

  const input = new (require('net').Socket)({
    fd: 3, readable: true, writable: false,
    onread: { // cheaper than the stream's events
      buffer: Buffer.allocUnsafeSlow(65536),
      callback(n, buffer) {
        chunks.push(Buffer.from(buffer.subarray(0, n)));
        have += n;
        if (!busy) serve();
        return true;
      },
    },
  });
  input.on('end', () => process.exit());
})();
