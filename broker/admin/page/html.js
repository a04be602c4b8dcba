// What others made, as the page uses it.
import { h, render, Component } from './lib/preact.mjs';
import htm from './lib/htm.mjs';

export const html = htm.bind(h);

/** Does what may come later once what is drawn now is seen.
 * @param {(nothing?: any) => void} what */
export const painted = what => { requestAnimationFrame(() => requestAnimationFrame(what)); };

export { render, Component };
export { signal, effect, batch } from './lib/signals-core.mjs';
