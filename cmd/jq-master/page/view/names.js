// The view of the names of jobs, one row for each.
import { html } from '../html.js';
import { query, call, encode } from '../api.js';
import { count, plural, duration } from '../format.js';
import { table } from '../table.js';
import { runAction, badge, button, empty, place, setQuery, link, pendingText as pending } from '../parts.js';
import { nameLink, queryConstraints, waitingJobs } from './findings.js';

/** @param {any} n @param {string} status */
const countLink = (n, status) => n.states[status] ? html`<a href=${link(['jobs'], { name: n.name, status })}>${count(n.states[status])}</a>` : html`<span class="muted">0</span>`;

/** @param {string} name @param {string} status @param {number} [wide] */
const column = (name, status, wide) => ({ name, num: true, wide, of: (/** @type {any} */ n) => countLink(n, status) });

/** Returns the id of the constraint that pauses a name. @param {string} name */
const pauseId = name => 'paused ' + name;

/** Pauses or resumes a name, by a constraint that holds back its jobs. @param {string} name @param
 * {boolean} on @returns {Promise<any>} */
const setPaused = (name, on) => {
  const path = '/v1/constraints/' + encode(pauseId(name)), set = (/** @type {boolean} */ on) => on
    ? call('PUT', path, { match: { field: '/name', op: 'eq', value: name }, concurrency: 0 }) : call('DELETE', path);
  return runAction(() => set(on), `${name} is ${on ? 'paused' : 'resumed'}.`, () => set(!on));
};

/** @param {any[]} list @param {Set<string>} [held] the ids of constraints that hold back all they match, if names are to be paused */
export const nameTable = (list, held) => table('Names', [
  { name: 'Name', class: 'main', of: n => html`${nameLink(n.name)} <span class="marks">${!n.served && waitingJobs(n) > 0 && badge('no worker', 'severe')} ${held?.has(pauseId(n.name)) && badge('paused', 'warning')}</span>` },
  column('Queued', 'queued'), { name: 'Oldest', num: true, wide: 1, title: 'for how long it has waited', of: n => n.oldest_age ? duration(n.oldest_age) : '–' }, column('Retrying', 'retrying', 1), column('Running', 'running'),
  column('Done', 'done', 2), column('Error', 'error'), column('Cancelled', 'cancelled', 2),
  ...held ? [{ name: 'Do', of: (/** @type {any} */ n) => held.has(pauseId(n.name)) ? button('Resume', () => setPaused(n.name, false)) : button('Pause', () => setPaused(n.name, true), { title: 'Running jobs continue' }) }] : [],
], list, n => n.name);

const maxNames = 1000;

export function namesView() {
  const r = query(`/v1/stats?names=${maxNames}&shared=true`, 4000), part = place.value.query.get('part') ?? '';
  const held = new Set((queryConstraints().data ?? []).filter((/** @type {any} */ c) => c.enabled && c.concurrency === 0).map((/** @type {any} */ c) => c.id));
  const busiest = r.data?.names ?? [], list = busiest.filter((/** @type {any} */ n) => n.name.includes(part));
  return html`<header class="bar"><h1>Names</h1>
    <input type="search" aria-label="Part of a name" placeholder="Part of a name" value=${part} onInput=${(/** @type {any} */ e) => setQuery({ part: e.target.value })} />
    <span class="note" role="status">${r.data && plural(list.length, 'name')}</span></header>
    ${pending(r) ?? (list.length ? nameTable(list.slice(0, 200), held) : empty(part ? 'No name contains this.' : 'There is no job.'))}
    ${list.length > 200 && html`<p class="note">Only the 200 names with the most jobs are shown.</p>`}
    ${busiest.length >= maxNames && html`<p class="note">Only the ${count(maxNames)} names with the most jobs are listed here.</p>`}`;
}
