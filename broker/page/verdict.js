// Shows the daemon's findings, and what can be done about them.
import { html, signal } from './html.js';
import { query, encode, noun } from './api.js';
import { awaySince, secondsSince, snapshot } from './live.js';
import { count, duration } from './format.js';
import { badge, verdict, pendingText } from './parts.js';

/** @typedef {{severity: 'severe'|'warning'|'info', kind: string, subject: string, number?: number, limit?: string, cause: string, finding: string, advice: string, since: string, alike?: number}} Finding as the daemon reports it */
/** @typedef {{link: (f: Finding) => any, help?: Record<string, (f: Finding) => any>, advice?: (f: Finding) => any}} Words link: the subject, as a link;
 * help: the buttons and links that help, by cause; advice: the advice with buttons and links in it, in place of help */

/** What is shown beside the name of the overview. */
export function findingsMark() {
  const { severe = 0, warning = 0 } = !awaySince.value && snapshot.value?.severities || {};
  return severe + warning > 0 && badge(count(severe + warning), severe ? 'severe' : 'warning');
}

/** The findings that stand for several similar ones and are expanded. @type {import('./lib/signals-core.mjs').Signal<Set<string>>} */
const expanded = signal(new Set());

/** @param {Finding} f @param {Words} words @param {boolean} [own] @returns {any} */
function findingCard(f, words, own) {
  const others = [f.severity, f.kind, f.cause, f.limit].join(' '), opened = f.alike > 0 && expanded.value.has(others);
  return html`<li key=${[others, f.subject, f.number].join(' ')} class=${f.severity}>
    ${badge(f.severity === 'info' ? 'note' : f.severity, f.severity)}
    <div><p>${!own && html`<b>${f.kind === f.subject ? `The ${f.kind}` : words.link(f)}</b>: `}${f.finding}</p><p class="note">${words.advice?.(f) ?? html`${f.advice} ${words.help?.[f.cause]?.(f)}`}</p>
      ${f.alike > 0 && html`<button type="button" class="small" aria-expanded=${String(opened)}
        onClick=${() => { const now = new Set(expanded.value); if (!now.delete(others)) now.add(others); expanded.value = now; }}>${count(f.alike)} more like it</button>`}</div>
    <span class="note num" title="for how long">${duration(Math.floor(secondsSince(f.since)))}</span>
    ${opened && similarFindings(f, words)}</li>`;
}

const maxSimilar = 200;

/** The findings for which a finding stands. @param {any} f @param {Words} words */
function similarFindings(f, words) {
  const r = query(`/v1/findings?cause=${encode(f.cause)}&limit=${maxSimilar}`), items = (r.data?.items ?? []).filter((/** @type {Finding} */ x) =>
    x.subject !== f.subject && x.severity === f.severity && x.kind === f.kind && x.limit === f.limit);
  const left = f.alike - items.length;
  return html`<div class="alike">${pendingText(r) ?? findingList(items, words)}${r.data && left > 0 && html`<p class="note">and ${count(left)} more: <code>gloom findings</code></p>`}</div>`;
}

/** @param {Finding[]} all @param {Words} words @param {boolean} [own] on the page of their subject */
export const findingList = (all, words, own) => all.length > 0 && html`<ul class="findings">${all.map(f => findingCard(f, words, own))}</ul>`;

/** The heading that says whether everything is healthy, and the findings. @param {any} note @param {Words} words */
export function findingsHeading(note, words) {
  const [word, kind] = awaySince.value ? [`Not known: the ${noun} is away`, 'severe'] : verdict(snapshot.value.severities);
  return html`<div class="verdict"><h1 class=${kind}>${word}</h1><p class="note">${note}</p></div>
    ${findingList(snapshot.value.findings, words)}`;
}
