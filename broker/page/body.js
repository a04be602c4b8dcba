// Reads and shows JSON values exactly as they were written.
import { html } from './html.js';
import { text } from './api.js';
import { count, elements, members, parse, pretty } from './format.js';
import { copy } from './parts.js';

/** Returns a function that reads an object. The members in raw are formatted but not parsed: numbers in them stay as written.
 * @param {...string} raw their names @returns {(method: string, path: string) => Promise<any>} */
export const reading = (...raw) => async (method, path) =>
  Object.fromEntries(Object.entries(members(await text(method, path))).map(([k, v]) => [k, raw.includes(k) ? pretty(v) : parse(v)]));

/** Returns a function that reads a list of objects. The property raw of each has its members as written.
 * @param {string} key where the list is @returns {(method: string, path: string) => Promise<any[]>} */
export const rows = key => async (method, path) =>
  elements(members(await text(method, path))[key]).map(s => ({ ...parse(s), raw: members(s) }));

/** Shows a text of any length: a long one is cut on the screen, but copied as a whole.
 * @param {string} of @param {string} name */
export function shown(of, name) {
  const maxShown = 200_000;
  return html`<div class="withcopy"><pre tabindex="0" role="region" aria-label=${name}>${of.length > maxShown ? of.slice(0, maxShown) + '\n…' : of}</pre>
    <p class="note">${copy(of)} ${of.length > maxShown ? `The first ${count(maxShown)} of ${count(of.length)} characters; copying copies all of them.` : ''}</p></div>`;
}
