// What others made, as the page uses it.
import { h, render, Component } from './lib/preact.mjs';
import htm from './lib/htm.mjs';
import { plain } from './format.js';

/** Text as it is shown. @param {any} c @returns {any} */
const shown = c => typeof c === 'string' ? plain(c) : Array.isArray(c) ? c.map(shown) : c;

/** Elements; all text in them is plain, but where line breaks are seen. */
export const html = htm.bind((/** @type {any} */ type, /** @type {any} */ props, /** @type {any[]} */ ...children) =>
  h(type, props, ...(type === 'pre' || type === 'textarea' ? children : children.map(shown))));

/** Comes once the first drawing is seen: nothing that it does not need begins before. @type {Promise<void>} */
export const painted = new Promise(go =>
  new PerformanceObserver(seen => { if (seen.getEntriesByName('first-contentful-paint').length) go(); }).observe({ type: 'paint', buffered: true }));

export { render, Component };
export { signal, effect, batch } from './lib/signals-core.mjs';
