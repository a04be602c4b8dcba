// Reads and shows JSON values exactly as they were written.
import { html } from './html.js';
import { requestText } from './api.js';
import { count, elements, members, parse, indent } from './format.js';
import { copyButton } from './parts.js';

/** Returns a function that reads an object. The members in raw are formatted but not parsed: numbers in them stay as written.
 * @param {...string} raw their names @returns {(method: string, path: string) => Promise<any>} */
export const rawReader = (...raw) => async (method, path) =>
  Object.fromEntries(Object.entries(members(await requestText(method, path))).map(([k, v]) => [k, raw.includes(k) ? indent(v) : parse(v)]));

/** Returns a function that reads a list of objects. The property raw of each has its members as written.
 * @param {string} key where the list is @returns {(method: string, path: string) => Promise<any[]>} */
export const rowReader = key => async (method, path) =>
  elements(members(await requestText(method, path))[key]).map(s => ({ ...parse(s), raw: members(s) }));

/** Shows a text of any length: a long one is cut on the screen, but copied as a whole.
 * @param {string} of @param {string} name */
export function longText(of, name) {
  const maxShown = 200_000;
  return html`<div class="withcopy"><pre tabindex="0" role="region" aria-label=${name}>${of.length > maxShown ? of.slice(0, maxShown) + '\n…' : of}</pre>
    <p class="note">${copyButton(of)} ${of.length > maxShown ? `The first ${count(maxShown)} of ${count(of.length)} characters; copying copies all of them.` : ''}</p></div>`;
}
