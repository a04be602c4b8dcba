// All types, one row each.
import { html } from '../html.js';
import { query, encode } from '../api.js';
import { count, limitRate, rate, duration, plural } from '../format.js';
import { LongTable } from '../table.js';
import { badge, empty, place, setQuery, pendingText } from '../parts.js';
import { sparkline } from '../plot.js';
import { typeLink } from './findings.js';

/** How many jobs of each type waited over time, by the type's name, for types that have been visible. @type {Map<string, {at: number, values: number[]}>} */
const trends = new Map();

/** @param {any} t */
function trendLine(t) {
  const now = Date.now(), x = trends.get(t.type) ?? { at: 0, values: [] };
  if (now - x.at > 1500) {
    x.at = now;
    x.values.push(t.queued);
    if (x.values.length > 60) x.values.shift();
    trends.delete(t.type);
    trends.set(t.type, x);
    if (trends.size > 500) trends.delete(trends.keys().next().value ?? '');
  }
  return sparkline(x.values);
}

/** Whether jobs of a type wait and no worker, not even one of another broker, runs any. @param {any} t */
export const isUnserved = t => t.queued > 0 && !t.workers && !t.running;

/** The badges of a type: what is unusual about it. @param {any} t */
export function typeBadges(t) {
  const l = t.limits;
  return [
    t.paused && badge('paused', 'warning'),
    isUnserved(t) && badge('no worker', 'severe'),
    l.concurrency > 0 && badge(`≤ ${l.concurrency} at a time`),
    l.rate > 0 && badge(`≤ ${limitRate(l.rate)}`),
    t.fair && badge('fair'),
    t.dead > 0 && badge(`${count(t.dead)} dead`, 'warning'),
  ];
}

/** A figure in a table; a zero is muted. @param {string} s */
const mutedZero = s => s === '0' ? html`<span class="muted">0</span>` : s;

/** @type {import('../table.js').Column[]} */
export const columns = [
  { name: 'Type', sort: 'type', class: 'main', of: t => html`<span class="entry">${typeLink(t.type)} <span class="marks">${typeBadges(t)}</span></span>` },
  { name: 'Waiting', sort: 'queued', num: true, of: t => mutedZero(count(t.queued)) },
  { name: 'Oldest', sort: 'oldest', num: true, wide: 1, class: 'time', of: t => t.queued ? duration(t.oldest_seconds) : '' },
  { name: 'Trend', wide: 3, title: 'waiting jobs over the last minutes', of: trendLine },
  { name: 'Running', sort: 'running', num: true, wide: 1, of: t => mutedZero(count(t.running)) },
  { name: 'Busy', sort: 'workers', num: true, wide: 1, title: 'busy workers, of all that serve the type', of: t => html`${mutedZero(count(t.workers - t.idle))}<span class="muted"> of ${count(t.workers)}</span>` },
  { name: 'In /s', sort: 'in', num: true, wide: 2, of: t => mutedZero(rate(t.rates?.in)) },
  { name: 'Out /s', sort: 'out', num: true, wide: 2, of: t => mutedZero(rate(t.rates?.out)) },
  { name: 'Failed', sort: 'failed', num: true, wide: 2, title: 'since the start', of: t => t.ledger.failed ? count(t.ledger.failed) : '' },
];

/** The latest known number of types, for the time until a new query is answered. @type {number | undefined} */
let lastCount;

export function typesView() {
  const q = place.value.query, sort = q.get('sort') ?? 'queued', filter = q.get('filter') ?? '';
  const path = (/** @type {number} */ from) => `/v1/types?sort=${encode(sort)}&filter=${encode(filter)}&limit=100` + (from ? `&cursor=${from}` : '');
  const first = query(path(0));
  if (first.data) lastCount = first.data.count;
  const n = first.data?.count ?? (first.error ? undefined : lastCount); // until the answer arrives, the rows are empty
  return html`<header class="bar"><h1>Types</h1>
    <input type="search" aria-label="Part of a name" placeholder="Part of a name" value=${filter} onInput=${(/** @type {any} */ e) => setQuery({ filter: e.target.value })} />
    <span class="note" role="status">${n !== undefined && plural(n, 'type')}</span></header>
    ${(n === undefined && pendingText(first)) || (n === 0 ? empty(filter ? 'No type has this in its name.' : 'There is no type yet.', filter ? '' : 'A type appears with its first job or worker.')
      : html`<${LongTable} key=${sort + filter} name="Types" columns=${columns} sort=${sort} by=${(/** @type {string} */ s) => setQuery({ sort: s })}
        count=${n} of=${(/** @type {any} */ t) => t.type} ask=${(/** @type {number} */ from) => query(path(from)).data?.items} />`)}`;
}
