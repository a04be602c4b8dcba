// Is all well? What is wrong, and what one may do about it.
import { html } from './html.js';
import { noun } from './api.js';
import { away } from './live.js';
import { count } from './format.js';
import { badge } from './parts.js';

/** @typedef {{severity: 'severe'|'warning'|'info', what: any, advice: any, act?: any}} Finding act: the button that does something about it */

/** How many there are of a severity. @param {Finding[]} all @param {string} severity */
const some = (all, severity) => all.filter(f => f.severity === severity).length;

/** What stands beside the name of the overview. @param {Finding[]} all */
export function mark(all) {
  const severe = some(all, 'severe'), bad = away.value ? 0 : severe + some(all, 'warning');
  return bad > 0 && badge(count(bad), severe ? 'severe' : 'warning');
}

/** How all is in a word, and what is wrong. @param {Finding[]} all @param {any} note */
export function verdict(all, note) {
  const severe = some(all, 'severe'), warning = some(all, 'warning');
  let word = 'All is well', kind = 'ok';
  if (away.value) [word, kind] = [`Not known: the ${noun} is away`, 'severe'];
  else if (severe) [word, kind] = [severe === 1 ? 'One thing is wrong' : `${count(severe)} things are wrong`, 'severe'];
  else if (warning) [word, kind] = [warning === 1 ? 'One thing wants a look' : `${count(warning)} things want a look`, 'warning'];
  return html`<div class="verdict"><h1 class=${kind}>${word}</h1><p class="note">${note}</p></div>
    ${all.length > 0 && html`<ul class="findings">${all.map((f, i) => html`<li key=${i} class=${f.severity}>
      ${badge(f.severity === 'info' ? 'note' : f.severity, f.severity)}<div><p>${f.what}</p><p class="note">${f.advice}</p></div>${f.act}</li>`)}</ul>`}`;
}
