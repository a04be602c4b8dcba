// The registered workers.
import { html } from '../html.js';
import { query, encode } from '../api.js';
import { secondsSince, everySecond } from '../live.js';
import { count, plural, duration } from '../format.js';
import { table } from '../table.js';
import { badge, empty, place, setQuery, pendingText } from '../parts.js';
import { targetLink } from './findings.js';

/** @param {any} w @param {string} what */
const sumOfTargets = (w, what) => w.targets.reduce((/** @type {number} */ n, /** @type {any} */ t) => n + t[what], 0);

const shownTargets = 6; // targets of a worker

/** @param {any[]} list */
export const workerTable = list => table('Workers', [
  { name: 'Worker', class: 'main', of: w => html`<span class="name">${w.name || w.address}</span> <span class="marks">${w.trouble && badge('in trouble', 'severe')}${w.silent && badge('silent', 'warning')}${w.old && badge('other version')}</span>
    ${w.trouble && html`<div class="note reason">${w.trouble.slice(0, 300)}</div>`}` },
  { name: 'Targets', wide: 1, of: w => html`${w.targets.slice(0, shownTargets).map((/** @type {any} */ t, /** @type {number} */ i) => html`${i > 0 && ', '}${targetLink(t.target)}${t.paused && html` ${badge('paused', 'warning')}`}`)}
    ${w.targets.length > shownTargets && html` <span class="muted">and ${count(w.targets.length - shownTargets)} more</span>`}` },
  { name: 'Running', num: true, title: 'of how many slots', of: w => html`${count(sumOfTargets(w, 'running'))}<span class="muted"> of ${count(sumOfTargets(w, 'concurrency'))}</span>` },
  { name: 'Accepted', num: true, wide: 2, title: 'that wait for a slot', of: w => count(sumOfTargets(w, 'queued')) },
  { name: 'Failed', num: true, wide: 1, title: 'since it started', of: w => count(sumOfTargets(w, 'fail')) },
  { name: 'By hand', num: true, wide: 3, title: 'rows whose end a client waits for', of: w => count(w.manual) },
  { name: 'Address', wide: 2, of: w => html`<span class="id">${w.address}</span>` },
  { name: 'Since', num: true, wide: 2, of: w => duration(Math.floor(secondsSince(w.since))) },
], list, w => w.address);

const maxRows = 100;

export function workersView() {
  const part = place.value.query.get('part') ?? '', r = query(`/v1/workers?limit=${maxRows}&part=${encode(part)}`), list = r.data?.items ?? [];
  everySecond.value;
  return html`<header class="bar"><h1>Workers</h1>
    <input type="search" aria-label="Part of a name" placeholder="Part of a name" value=${part} onInput=${(/** @type {any} */ e) => setQuery({ part: e.target.value })} />
    <span class="note" role="status">${r.data && (r.data.next ? `the first ${maxRows}` : plural(list.length, 'worker'))}</span></header>
    ${pendingText(r) ?? (list.length ? workerTable(list) : empty(part ? 'No name of a worker contains this.' : 'No worker is registered.', html`A jobd whose <code>master_host</code> and <code>master_port</code> name this master registers itself.`))}`;
}
