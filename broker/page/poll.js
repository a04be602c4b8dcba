// Snapshots that are requested repeatedly, for daemons without a stream of
// events.
import { call, door } from './api.js';
import { gone, look, there } from './live.js';

/** Requests a snapshot from a path every `every` ms while the tab is visible.
 * @param {string} path @param {number} every @param {(look: any, t: number) => Record<string, number|null|undefined>} sample
 * @returns {import('./live.js').Source} */
export function poll(path, every, sample) {
  let timer = 0, round = 0;
  async function ask() {
    const mine = ++round; // the answer to an earlier request may arrive later
    clearTimeout(timer);
    if (document.hidden || door.peek()) return;
    try {
      const came = await call('GET', path);
      if (mine === round) there(() => { look.value = came; });
    } catch (/** @type {any} */ e) {
      if (mine === round) gone(e.code ?? 0, e.message);
    }
    if (mine === round) timer = setTimeout(ask, every);
  }
  return { begin: ask, end: () => { round++; clearTimeout(timer); }, refuses: 'refuses', sample };
}
