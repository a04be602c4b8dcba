// What is wrong, and what can be done about it.
import { html, signal } from '../html.js';
import { asked, call, enc, may, segment } from '../api.js';
import { lasted, look } from '../live.js';
import { count, time } from '../format.js';
import { act, badge, to, waiting } from '../parts.js';
import { groupLink, typeLink } from './links.js';

/** How many things are wrong, by severity. @returns {{severe: number, warning: number}} */
export const wrongs = () => look.value?.findings.counts ?? { severe: 0, warning: 0 };

const words = /** @type {Record<string, string>} */ ({ severe: 'severe', warning: 'warning', info: 'note' });

/** The expanded ones of the findings that stand for others. @type {import('../lib/signals-core.mjs').Signal<Set<string>>} */
const open = signal(new Set());

/** @param {any} f */
function subject(f) {
  if (f.kind === 'type') return typeLink(f.subject);
  if (f.kind === 'group') return groupLink(f.subject);
  if (f.kind === 'client') return html`<a class="name" href=${to(['jobs'], { [f.worker ? 'worker' : 'submitter']: f.number })}>${f.subject}</a>`;
  return html`<span class="name">${f.kind === 'broker' ? 'The broker' : f.subject}</span>`;
}

/** @param {string} name @param {string} text @param {(m: any, type: any) => any} go what the view of types does */
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

/** The advice, with a button or a link for each command that the page offers, too.
 * @param {any} f */
const advice = f => f.advice.split(/(\(gloom [^)]*\)|gloom groups --type)/).map((/** @type {string} */ s, /** @type {number} */ i) =>
  i % 2 && instead[s.replace(/[()]/g, '')]?.(f.subject) || s);

/** @param {any} f @param {boolean} own @returns {any} */
function card(f, own) {
  const key = [f.kind, f.subject, f.number, f.cause, f.limit].join(' '), others = f.alike && [f.severity, f.kind, f.cause, f.limit].join(' ');
  const opened = open.value.has(others);
  return html`<li key=${key} class=${f.severity}>
    ${badge(words[f.severity] ?? f.severity, f.severity)}
    <div><p>${own ? '' : html`<b>${subject(f)}</b>: `}${f.finding}</p><p class="note">${advice(f)}</p>
      ${others && html`<button type="button" class="small" aria-expanded=${String(opened)}
        onClick=${() => { const now = new Set(open.value); if (!now.delete(others)) now.add(others); open.value = now; }}>${count(f.alike)} more like it</button>`}</div>
    <span class="note num">${time(Math.floor(lasted(f.since)))}</span>
    ${opened && rest(f)}</li>`;
}

const some = 200;

/** The findings that a finding stands for. @param {any} f */
function rest(f) {
  const r = asked(`/v1/findings?cause=${enc(f.cause)}&limit=${some}`), items = (r.data?.items ?? []).filter((/** @type {any} */ x) =>
    x.subject !== f.subject && x.severity === f.severity && x.kind === f.kind && x.limit === f.limit);
  const left = f.alike - items.length;
  return html`<div class="alike">${waiting(r) ?? findingList(items)}${r.data && left > 0 && html`<p class="note">and ${count(left)} more: <code>gloom findings</code></p>`}</div>`;
}

/** @param {any[]} list @param {boolean} [own] on the page of their subject */
export const findingList = (list, own = false) => list.length > 0 && html`<ul class="findings">${list.map(f => card(f, own))}</ul>`;

/** The findings about a type or a group. Usually each snapshot has all findings.
 * @param {string} kind @param {string} name @returns {any[]} */
export function found(kind, name) {
  const latest = look.value?.findings, all = latest && !latest.more ? latest : asked('/v1/findings?subject=' + enc(name)).data;
  return (all?.items ?? []).filter((/** @type {any} */ f) => f.kind === kind && f.subject === name);
}
