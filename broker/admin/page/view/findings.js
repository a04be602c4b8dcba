// The broker's findings, with links and buttons in the advice.
import { html } from '../html.js';
import { query, call, encode, mayUse, segment } from '../api.js';
import { snapshot } from '../live.js';
import { runAction, link } from '../parts.js';
import { findingList as listed } from '../verdict.js';

export const typeLink = (/** @type {string} */ name) => html`<a class="name" href=${link(['type', name])}>${name}</a>`;
export const groupLink = (/** @type {string} */ name) => html`<a class="name" href=${link(['jobs'], { group: name })}>${name}</a>`;
export const groupLinks = (/** @type {string[]} */ names) => names.length > 0 && names.map((g, i) => html`${i ? ', ' : ''}${groupLink(g)}`);

/** The number of findings of each severity. @returns {{severe: number, warning: number}} */
export const severityCounts = () => snapshot.value?.findings.counts ?? { severe: 0, warning: 0 };

/** @param {any} f */
function subjectLink(f) {
  if (f.kind === 'type') return typeLink(f.subject);
  if (f.kind === 'group') return groupLink(f.subject);
  if (f.kind === 'client') return html`<a class="name" href=${link(['jobs'], { [f.worker ? 'worker' : 'submitter']: f.number })}>${f.subject}</a>`;
  return html`<span class="name">${f.subject}</span>`;
}

/** @param {string} name @param {string} text @param {(m: any, type: any) => any} go calls the action of the view of types */
const typeButton = (name, text, go) => mayUse('admin') && html`<button type="button" class="small" aria-label=${`${text}: ${name}`}
  onClick=${() => runAction(async () => go(await import('./type.js'), await call('GET', '/v1/types/' + segment(name))), '')}>${text}</button>`;

/** @param {string} text @param {(string)[]} path @param {any} [query] */
const linkTo = (text, path, query) => html`<a href=${link(path, query)}>${text}</a>`;

/** A link in brackets, in place of a command in brackets. @param {Parameters<typeof linkTo>} at */
const aside = (...at) => html`(${linkTo(...at)})`;

/** The page's buttons and links for commands in the advice, by how the command begins: the first key that fits.
 * @type {Record<string, (name: string) => any>} */
const replacements = {
  'gloom resume': name => typeButton(name, 'Resume', (m, t) => m.resume(t)),
  'gloom pause': name => typeButton(name, 'Pause', (m, t) => m.pause(t)),
  'gloom limit --group': () => aside('Rules', ['groups']),
  'gloom limit': name => typeButton(name, 'Limits', (m, t) => m.editLimits(t)),
  'gloom forget': name => typeButton(name, 'Forget', (m, t) => m.forgetType(t)),
  'gloom dead ls': name => aside('its dead letters', ['dead', name]),
  'gloom dead retry': name => mayUse('admin') && html`<button type="button" class="small" aria-label=${`Retry all: ${name}`}
    onClick=${async () => (await import('./dead.js')).retryAll(name, {})}>Retry all</button>`,
  'gloom jobs': name => aside('its running jobs', ['type', name], { state: 'running' }),
  'gloom groups --type': name => linkTo('its groups', ['groups'], { type: name }),
  'gloom ls workers': () => aside('the workers', ['workers']),
};

/** Commands in the advice: in brackets, or the one that begins a sentence. Names are quoted for a shell. */
const commands = /(\(gloom (?:'[^']*'|\\.|[^)'\\])*\)|^gloom groups --type (?:'[^']*'|\\.|\S)+)/;

/** The advice, with a button or a link in place of each command that the page can do as well.
 * @param {any} f */
const linkedAdvice = f => f.advice.split(commands).map((/** @type {string} */ s, /** @type {number} */ i) => {
  const begin = i % 2 && Object.keys(replacements).find(words => s.replace('(', '').startsWith(words + ' ') || s === `(${words})`);
  return begin && replacements[begin](f.subject) || s;
});

/** @type {import('../verdict.js').Words} */
const words = { link: subjectLink, advice: linkedAdvice };

/** @param {any[]} list @param {boolean} [own] on the page of their subject */
export const findingList = (list, own = false) => listed(list, words, own);

/** The findings about a type or a group. They are requested only if the snapshot does not have all findings.
 * @param {string} kind @param {string} name @returns {any[]} */
export function findingsOf(kind, name) {
  const latest = snapshot.value?.findings, all = latest && !latest.more ? latest : query('/v1/findings?subject=' + encode(name)).data;
  return (all?.items ?? []).filter((/** @type {any} */ f) => f.kind === kind && f.subject === name);
}
