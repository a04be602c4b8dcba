// A broker whose every frame the test writes.

import { once } from "node:events";
import { createServer } from "node:net";

/** Returns a message as a frame. */
export const frame = (/** @type {object} */ message) => {
  const payload = Buffer.from(JSON.stringify(message));
  const header = Buffer.alloc(4);
  header.writeUInt32BE(payload.length);
  return Buffer.concat([header, payload]);
};

/**
 * Starts a broker that gives each message to the test, and returns its address.
 * @param {import("node:test").TestContext} t
 * @param {(message: any, write: (...frames: Buffer[]) => void) => void} onMessage
 */
export async function listen(t, onMessage) {
  const server = createServer((socket) => {
    let buffer = Buffer.alloc(0);
    socket.on("error", () => {});
    socket.on("data", (data) => {
      buffer = Buffer.concat([buffer, data]);
      while (buffer.length >= 4 && buffer.length >= 4 + buffer.readUInt32BE()) {
        const end = 4 + buffer.readUInt32BE();
        const message = JSON.parse(buffer.subarray(4, end).toString());
        buffer = buffer.subarray(end);
        onMessage(message, (...frames) => socket.write(Buffer.concat(frames)));
      }
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return `127.0.0.1:${/** @type {import("node:net").AddressInfo} */ (server.address()).port}`;
}
