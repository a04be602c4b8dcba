// Snapshots from a stream of events, /v1/events.
import { access, silenceLimit, token } from './api.js';
import { parse } from './format.js';
import { awaySince, compareClock, recordLoss, heardAt, snapshot, recordContact } from './live.js';
import { follow } from './stream.js';

/** The time at which the stream was last requested. */
let requestedAt = 0;

/** The stream was restarted, and first sends what has happened in between. */
let catchingUp = false;

let stop = new AbortController();
/** @type {MessagePort|undefined} */
let shared;

function end() { shared?.postMessage(false); }

/** @param {(moments: any[]) => void} past gets the moments before the first snapshot
 * @param {(look: any, t: number) => Record<string, number|null|undefined>} sample @returns {import('./live.js').Source} */
export function events(past, sample) {
  /** @param {string} event @param {string} data */
  function on(event, data) {
    if (event === 'away') return recordLoss(0);
    if (event === 'refused') {
      const [, code, reason] = /^(\d+) (.*)$/s.exec(data) ?? [];
      return recordLoss(+code, reason);
    }
    recordContact(() => {
      if (event === 'clock') compareClock(Date.parse(data) + 500); // the header has only whole seconds
      else if (event === 'history') past(parse(data));
      else if (event === 'look') {
        snapshot.value = parse(data);
        catchingUp = false;
      }
    });
  }

  function begin() {
    stop.abort();
    end();
    if (document.hidden || access.peek()) return;
    const begun = !requestedAt && Date.now() - heardAt.peek() < 2000; // the document already contains the beginning of the stream
    requestedAt = Date.now();
    catchingUp = !begun;
    stop = new AbortController();
    if (token.value || !('SharedWorker' in globalThis)) {
      follow(begun, token.value ? { Authorization: 'Bearer ' + token.value } : {}, stop.signal, on);
      return;
    }
    if (!shared) {
      shared = new SharedWorker('worker.js', { type: 'module', name: 'gloom' }).port;
      shared.onmessage = m => on(m.data[0], m.data[1]);
    }
    shared.postMessage({ begun });
  }

  return {
    begin, end, refuses: 'refuses its events',
    beat() {
      const quiet = Math.max(heardAt.peek(), requestedAt);
      if (access.peek() || Date.now() - quiet <= silenceLimit) return;
      awaySince.value ||= quiet; // the host is frozen, or the network is gone
      end();
      shared = undefined; // its script may not have loaded
      begin();
    },
    sample: (v, t) => catchingUp ? null : sample(v, t),
  };
}
