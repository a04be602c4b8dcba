// Whether all is well: what the daemon has found wrong, and what can be done about it.
import { html } from './html.js';
import { noun } from './api.js';
import { away, lasted, look } from './live.js';
import { count, time } from './format.js';
import { badge, verdict } from './parts.js';

/** @typedef {{severity: 'severe'|'warning'|'info', kind: string, subject: string, cause: string, finding: string, advice: string, since: string, alike?: number}} Finding as the daemon reports it */
/** @typedef {{link: (f: Finding) => any, help: Record<string, (f: Finding) => any>}} Words link: the subject, as a link; help: the buttons and links that help, by cause */

/** What is shown beside the name of the overview. */
export function mark() {
  const { severe = 0, warning = 0 } = !away.value && look.value?.severities || {};
  return severe + warning > 0 && badge(count(severe + warning), severe ? 'severe' : 'warning');
}

/** @param {Finding[]} all @param {Words} words @param {boolean} [own] on the page of what they are about */
export const findingList = (all, words, own) => all.length > 0 && html`<ul class="findings">${all.map(f => html`<li key=${f.cause + f.subject} class=${f.severity}>
  ${badge(f.severity === 'info' ? 'note' : f.severity, f.severity)}<div><p>${!own && html`<b>${f.kind === f.subject ? `The ${f.kind}` : words.link(f)}</b>: `}${f.finding}</p>
  <p class="note">${f.advice} ${words.help[f.cause]?.(f)}${f.alike > 0 && html`${' '}And ${count(f.alike)} more like it: <code>GET /v1/findings</code>`}</p></div>
  <span class="note" title="for how long">${time(Math.floor(lasted(f.since)))}</span></li>`)}</ul>`;

/** Whether all is well, in a word, and what is wrong. @param {any} note @param {Words} words */
export function found(note, words) {
  const [word, kind] = away.value ? [`Not known: the ${noun} is away`, 'severe'] : verdict(look.value.severities);
  return html`<div class="verdict"><h1 class=${kind}>${word}</h1><p class="note">${note}</p></div>
    ${findingList(look.value.findings, words)}`;
}
