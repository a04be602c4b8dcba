// What others made, as the page uses it.
import { h, render, Component } from './lib/preact.mjs';
import htm from './lib/htm.mjs';

export const html = htm.bind(h);

/** Comes once the first drawing is seen: nothing that it does not need begins before. @type {Promise<void>} */
export const painted = new Promise(go =>
  new PerformanceObserver(seen => { if (seen.getEntriesByName('first-contentful-paint').length) go(); }).observe({ type: 'paint', buffered: true }));

export { render, Component };
export { signal, effect, batch } from './lib/signals-core.mjs';
