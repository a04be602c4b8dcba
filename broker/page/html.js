// Wraps the libraries for rendering and signals.
import { h, render, Component } from './lib/preact.mjs';
import htm from './lib/htm.mjs';
import { visibleName, escapeLine } from './format.js';

/** Applies a function to all text in children. @param {any} c @param {(s: string) => string} as @returns {any} */
const mapText = (c, as) => typeof c === 'string' ? as(c) : Array.isArray(c) ? c.map(x => mapText(x, as)) : c;

/** Creates elements. Invisible characters in their text are escaped, except in pre and textarea. */
export const html = htm.bind((/** @type {any} */ type, /** @type {any} */ props, /** @type {any[]} */ ...children) =>
  h(type, props, ...(type === 'pre' || type === 'textarea' ? children : children.map(c => mapText(c, /^name\b/.test(props?.class) ? visibleName : escapeLine)))));

/** Resolves at the first contentful paint. Work that this paint does not need starts afterwards. @type {Promise<void>} */
export const painted = new Promise(go =>
  new PerformanceObserver(seen => { if (seen.getEntriesByName('first-contentful-paint').length) go(); }).observe({ type: 'paint', buffered: true }));

export { render, Component };
export { signal, effect, batch } from './lib/signals-core.mjs';
