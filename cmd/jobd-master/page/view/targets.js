// The targets, with their slots, waiting rows and actions.
import { html } from '../html.js';
import { query, encode } from '../api.js';
import { secondsSince, everySecond } from '../live.js';
import { count, plural, duration } from '../format.js';
import { table } from '../table.js';
import { badge, empty, place, setQuery, pendingText } from '../parts.js';
import { atLeast, targetButtons, targetLink } from './findings.js';

/** Marks for what is unusual about a target. @param {any} t */
export const targetBadges = t => html`<span class="marks">${t.workers === 0 && badge('no worker', t.waiting || t.poked ? 'severe' : 'warning')}
  ${t.paused_by > 0 && badge(t.paused ? 'paused' : `paused at ${t.paused_by} of ${t.workers}`, 'warning')}</span>`;

/** @param {any} t @param {number} n @param {string} status @param {any} [text] */
const rowsLink = (t, n, status, text = count(n)) => n ? targetLink(t.target, { status }, text) : html`<span class="muted">${text}</span>`;

/** @param {any[]} list */
export const targetTable = list => table('Targets', [
  { name: 'Target', class: 'main', of: t => html`${targetLink(t.target)} ${targetBadges(t)}` },
  { name: 'Waiting', num: true, of: t => t.known ? rowsLink(t, t.waiting, 'waiting', atLeast(t.waiting, t.more)) : html`<span class="muted" title="its workers do not report it">?</span>` },
  { name: 'Oldest', num: true, wide: 1, of: t => t.oldest ? duration(Math.floor(secondsSince(t.oldest))) : '' },
  { name: 'By hand', num: true, wide: 2, title: 'rows that wait to be run by hand', of: t => rowsLink(t, t.manual, 'manual') },
  { name: 'Accepted', num: true, wide: 2, title: 'that wait for a slot', of: t => rowsLink(t, t.queued, 'accepted') },
  { name: 'Running', num: true, title: 'of how many slots', of: t => rowsLink(t, t.running, 'running', `${count(t.running)} of ${count(t.concurrency)}`) },
  { name: 'Failed', num: true, wide: 1, title: 'since its workers started', of: t => rowsLink(t, t.fail, 'fail') },
  { name: 'Workers', num: true, wide: 3, of: t => count(t.workers) },
  { name: 'Do', wide: 1, of: t => html`<span class="row">${targetButtons(t)}</span>` },
], list, t => t.target);

const maxRows = 100;

export function targetsView() {
  const part = place.value.query.get('part') ?? '', r = query(`/v1/targets?limit=${maxRows}&part=${encode(part)}`), list = r.data?.items ?? [];
  everySecond.value;
  return html`<header class="bar"><h1>Targets</h1>
    <input type="search" aria-label="Part of a name" placeholder="Part of a name" value=${part} onInput=${(/** @type {any} */ e) => setQuery({ part: e.target.value })} />
    <span class="note" role="status">${r.data && (r.data.next ? `the ${maxRows} busiest` : plural(list.length, 'target'))}</span></header>
    ${pendingText(r) ?? (list.length ? targetTable(list) : empty(part ? 'No name of a target contains this.' : 'There is no target.'))}`;
}
