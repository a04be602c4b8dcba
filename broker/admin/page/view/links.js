// Links to types and groups.
import { html } from '../html.js';
import { to } from '../parts.js';

export const typeLink = (/** @type {string} */ name) => html`<a class="name" href=${to(['type', name])}>${name}</a>`;
export const groupLink = (/** @type {string} */ name) => html`<a class="name" href=${to(['jobs'], { group: name })}>${name}</a>`;
export const groupLinks = (/** @type {string[]} */ names) => names.length > 0 && names.map((g, i) => html`${i ? ', ' : ''}${groupLink(g)}`);
