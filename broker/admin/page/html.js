// What others made, as the page uses it.
import { h, render, Component } from './lib/preact.mjs';
import htm from './lib/htm.mjs';

export const html = htm.bind(h);
export { render, Component };
export { signal, effect, batch, untracked } from './lib/signals-core.mjs';
