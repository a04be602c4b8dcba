// Snapshots that are requested repeatedly, for daemons without a stream of
// events.
import { call, access } from './api.js';
import { recordLoss, heardAt, snapshot, addMoments, recordContact } from './live.js';

/** The time without a snapshot, in ms, after which the moments in between are requested. */
const maxGap = 12_000;

/** Requests a snapshot from a path every `every` ms while the tab is visible, and first the last minutes from /v1/moments.
 * @param {string} path @param {number} every @param {(look: any, t: number) => Record<string, number|null|undefined>} sample
 * @returns {import('./live.js').Source} */
export function poll(path, every, sample) {
  let timer = 0, round = 0, behind = false;
  async function ask() {
    const mine = ++round, old = Date.now() - heardAt.peek(); // the answer to an earlier request may arrive later
    clearTimeout(timer);
    if (document.hidden || access.peek()) return;
    behind ||= old > maxGap;
    try {
      const before = behind && (await call('GET', '/v1/moments')).items;
      const came = old < every / 2 ? snapshot.peek() : await call('GET', path);
      if (mine === round)
        recordContact(() => {
          if (before) addMoments(before);
          snapshot.value = came;
          behind = false;
        });
    } catch (/** @type {any} */ e) {
      if (mine === round) recordLoss(e.code ?? 0, e.message);
    }
    if (mine === round) timer = setTimeout(ask, every);
  }
  return { begin: ask, end: () => { round++; clearTimeout(timer); }, refuses: 'refuses', sample: (v, t) => behind ? null : sample(v, t) };
}
