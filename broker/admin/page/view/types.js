// All types, one row each.
import { html } from '../html.js';
import { asked, enc } from '../api.js';
import { count, rate, time, plural } from '../format.js';
import { Long } from '../table.js';
import { badge, empty, place, refine, waiting } from '../parts.js';
import { spark } from '../plot.js';
import { typeLink } from './findings.js';

/** How many jobs of each type waited over time, by the type's name, for types that have been visible. @type {Map<string, {at: number, values: number[]}>} */
const trends = new Map();

/** @param {any} t */
function trend(t) {
  const now = Date.now(), x = trends.get(t.type) ?? { at: 0, values: [] };
  if (now - x.at > 1500) {
    x.at = now;
    x.values.push(t.queued);
    if (x.values.length > 60) x.values.shift();
    trends.delete(t.type);
    trends.set(t.type, x);
    if (trends.size > 500) trends.delete(trends.keys().next().value ?? '');
  }
  return spark(x.values);
}

/** Whether jobs of a type wait and no worker, not even one of another broker, runs any. @param {any} t */
export const unserved = t => t.queued > 0 && !t.workers && !t.running;

/** The badges of a type: what is unusual about it. @param {any} t */
export function marks(t) {
  const l = t.limits;
  return [
    t.paused && badge('paused', 'warning'),
    unserved(t) && badge('no worker', 'severe'),
    l.concurrency > 0 && badge(`≤ ${l.concurrency} at a time`),
    l.rate > 0 && badge(`≤ ${l.rate}/s`),
    t.fair && badge('fair'),
    t.dead > 0 && badge(`${count(t.dead)} dead`, 'warning'),
  ];
}

/** A figure in a table; a zero is muted. @param {string} s */
const figure = s => s === '0' ? html`<span class="muted">0</span>` : s;

/** @type {import('../table.js').Column[]} */
export const columns = [
  { name: 'Type', sort: 'type', class: 'main', of: t => html`<span class="entry">${typeLink(t.type)} <span class="marks">${marks(t)}</span></span>` },
  { name: 'Waiting', sort: 'queued', num: true, of: t => figure(count(t.queued)) },
  { name: 'Oldest', sort: 'oldest', num: true, wide: 1, class: 'time', of: t => t.queued ? time(t.oldest_seconds) : '' },
  { name: 'Trend', wide: 3, title: 'waiting jobs over the last minutes', of: trend },
  { name: 'Running', sort: 'running', num: true, wide: 1, of: t => figure(count(t.running)) },
  { name: 'Busy', sort: 'workers', num: true, wide: 1, title: 'busy workers, of all that serve the type', of: t => html`${figure(count(t.workers - t.idle))}<span class="muted"> of ${count(t.workers)}</span>` },
  { name: 'In /s', sort: 'in', num: true, wide: 2, of: t => figure(rate(t.rates?.in)) },
  { name: 'Out /s', sort: 'out', num: true, wide: 2, of: t => figure(rate(t.rates?.out)) },
  { name: 'Failed', sort: 'failed', num: true, wide: 2, title: 'since the start', of: t => t.ledger.failed ? count(t.ledger.failed) : '' },
];

/** The latest known number of types, for the time until a new query is answered. @type {number | undefined} */
let before;

export function types() {
  const q = place.value.query, sort = q.get('sort') ?? 'queued', filter = q.get('filter') ?? '';
  const path = (/** @type {number} */ from) => `/v1/types?sort=${enc(sort)}&filter=${enc(filter)}&limit=100` + (from ? `&cursor=${from}` : '');
  const first = asked(path(0));
  if (first.data) before = first.data.count;
  const n = first.data?.count ?? (first.error ? undefined : before); // until the answer arrives, the rows are empty
  return html`<header class="bar"><h1>Types</h1>
    <input type="search" aria-label="Part of a name" placeholder="Part of a name" value=${filter} onInput=${(/** @type {any} */ e) => refine({ filter: e.target.value })} />
    <span class="note" role="status">${n !== undefined && plural(n, 'type')}</span></header>
    ${(n === undefined && waiting(first)) || (n === 0 ? empty(filter ? 'No type has this in its name.' : 'There is no type yet.', filter ? '' : 'A type appears with its first job or worker.')
      : html`<${Long} key=${sort + filter} name="Types" columns=${columns} sort=${sort} by=${(/** @type {string} */ s) => refine({ sort: s })}
        count=${n} of=${(/** @type {any} */ t) => t.type} ask=${(/** @type {number} */ from) => asked(path(from)).data?.items} />`)}`;
}
