// Is all well? What is wrong, and what one may do about it.
import { html } from './html.js';
import { noun } from './api.js';
import { away } from './live.js';
import { count } from './format.js';
import { badge, verdict } from './parts.js';

/** @typedef {{severity: 'severe'|'warning'|'info', what: any, advice: any, act?: any}} Finding act: the button that does something about it */

/** How many there are of each severity. @param {Finding[]} all @returns {{severe?: number, warning?: number}} */
const counts = all => Object.fromEntries(['severe', 'warning'].map(s => [s, all.filter(f => f.severity === s).length]));

/** What stands beside the name of the overview. @param {Finding[]} all */
export function mark(all) {
  const { severe = 0, warning = 0 } = counts(all), bad = away.value ? 0 : severe + warning;
  return bad > 0 && badge(count(bad), severe ? 'severe' : 'warning');
}

/** @param {Finding[]} all */
export const findingList = all => all.length > 0 && html`<ul class="findings">${all.map((f, i) => html`<li key=${i} class=${f.severity}>
  ${badge(f.severity === 'info' ? 'note' : f.severity, f.severity)}<div><p>${f.what}</p><p class="note">${f.advice}</p></div>${f.act}</li>`)}</ul>`;

/** How all is, in a word, and what is wrong. @param {Finding[]} all @param {any} note */
export function found(all, note) {
  const [word, kind] = away.value ? [`Not known: the ${noun} is away`, 'severe'] : verdict(counts(all));
  return html`<div class="verdict"><h1 class=${kind}>${word}</h1><p class="note">${note}</p></div>
    ${findingList(all)}`;
}
