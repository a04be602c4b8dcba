// The broker's findings, with links and buttons in the advice.
import { html } from '../html.js';
import { asked, call, enc, may, segment } from '../api.js';
import { look } from '../live.js';
import { act, to } from '../parts.js';
import { findingList as listed } from '../verdict.js';

export const typeLink = (/** @type {string} */ name) => html`<a class="name" href=${to(['type', name])}>${name}</a>`;
export const groupLink = (/** @type {string} */ name) => html`<a class="name" href=${to(['jobs'], { group: name })}>${name}</a>`;
export const groupLinks = (/** @type {string[]} */ names) => names.length > 0 && names.map((g, i) => html`${i ? ', ' : ''}${groupLink(g)}`);

/** The number of findings of each severity. @returns {{severe: number, warning: number}} */
export const wrongs = () => look.value?.findings.counts ?? { severe: 0, warning: 0 };

/** @param {any} f */
function subject(f) {
  if (f.kind === 'type') return typeLink(f.subject);
  if (f.kind === 'group') return groupLink(f.subject);
  if (f.kind === 'client') return html`<a class="name" href=${to(['jobs'], { [f.worker ? 'worker' : 'submitter']: f.number })}>${f.subject}</a>`;
  return html`<span class="name">${f.subject}</span>`;
}

/** @param {string} name @param {string} text @param {(m: any, type: any) => any} go calls the action of the view of types */
const button = (name, text, go) => may('admin') && html`<button type="button" class="small" aria-label=${`${text}: ${name}`}
  onClick=${() => act(async () => go(await import('./type.js'), await call('GET', '/v1/types/' + segment(name))), '')}>${text}</button>`;

/** @param {string} text @param {(string)[]} path @param {any} [query] */
const link = (text, path, query) => html`<a href=${to(path, query)}>${text}</a>`;

/** The page's buttons and links for commands in the advice. @type {Record<string, (name: string) => any>} */
const instead = {
  'gloom resume': name => button(name, 'Resume', (m, t) => m.resume(t)),
  'gloom pause': name => button(name, 'Pause', (m, t) => m.pause(t)),
  'gloom limit': name => button(name, 'Limits', (m, t) => m.limits(t)),
  'gloom limit --group': () => link('Rules', ['groups']),
  'gloom forget --jobs': name => button(name, 'Forget', (m, t) => m.forget(t)),
  'gloom dead': name => link('its dead letters', ['dead', name]),
  'gloom dead retry': name => may('admin') && html`<button type="button" class="small" aria-label=${`Retry all: ${name}`}
    onClick=${async () => (await import('./dead.js')).retryAll(name, {})}>Retry all</button>`,
  'gloom jobs --state running': name => link('its running jobs', ['type', name], { state: 'running' }),
  'gloom groups --type': name => link('its groups', ['groups'], { type: name }),
  'gloom ls workers': () => link('the workers', ['workers']),
};

/** The advice, with a button or a link in place of each command that the page can do as well.
 * @param {any} f */
const advice = f => f.advice.split(/(\(gloom [^)]*\)|gloom groups --type)/).map((/** @type {string} */ s, /** @type {number} */ i) =>
  i % 2 && instead[s.replace(/[()]/g, '')]?.(f.subject) || s);

/** @type {import('../verdict.js').Words} */
const words = { link: subject, advice };

/** @param {any[]} list @param {boolean} [own] on the page of their subject */
export const findingList = (list, own = false) => listed(list, words, own);

/** The findings about a type or a group. They are requested only if the snapshot does not have all findings.
 * @param {string} kind @param {string} name @returns {any[]} */
export function found(kind, name) {
  const latest = look.value?.findings, all = latest && !latest.more ? latest : asked('/v1/findings?subject=' + enc(name)).data;
  return (all?.items ?? []).filter((/** @type {any} */ f) => f.kind === kind && f.subject === name);
}
