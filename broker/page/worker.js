// A shared worker that reads one stream of events for all tabs of a browser.
import { follow } from './stream.js';

/** @type {Set<MessagePort>} */
const tabs = new Set();
let stop = new AbortController();

/** @param {boolean} [begun] */
function begin(begun = false) {
  stop.abort();
  stop = new AbortController();
  if (tabs.size) follow(begun, {}, stop.signal, (event, data) => tabs.forEach(tab => tab.postMessage([event, data])));
}

addEventListener('connect', e => {
  const [tab] = /** @type {MessageEvent} */ (e).ports;
  tab.onmessage = m => {
    if (m.data) {
      tabs.add(tab);
      begin(m.data.begun); // even if a stream is open: the new tab needs one from its beginning
    } else if (tabs.delete(tab) && !tabs.size) begin();
  };
});
