// Workers and submitters.
import { html } from '../html.js';
import { query, encode } from '../api.js';
import { currentAge } from '../live.js';
import { bytes, count, duration } from '../format.js';
import { table } from '../table.js';
import { badge, empty, jobLink, Listing, link, pendingText } from '../parts.js';
import { typeLink } from './findings.js';

/** @param {any} p */
const peerName = p => html`<span class="name">${p.client ?? html`<span class="muted">unnamed</span>`}</span> <span class="muted">${p.address}</span>`;

/** @type {import('../table.js').Column[]} */
const workerColumns = [
  { name: 'Worker', class: 'main', of: w => html`${peerName(w)} ${w.overdue > 0 && badge(`${count(w.overdue)} overdue`, 'warning')} ${w.left && badge('leaving')} ${w.silent && badge('silent', 'warning')}` },
  { name: 'Serves', wide: 1, of: w => servedTypes(w.serves, w.types) },
  { name: 'Works on', of: w => w.jobs.length ? html`${jobLink(w.jobs[0])}${w.out > 1 && html` <a href=${link(['jobs'], { worker: w.number })}>and ${count(w.out - 1)} more</a>`}` : html`<span class="muted">idle for ${duration(currentAge(w, w.idle_seconds))}</span>` },
  { name: 'Jobs', num: true, wide: 2, title: 'jobs out on it, of those that it may have', of: w => html`${count(w.out)}<span class="muted"> of ${count(w.prefetch)}</span>` },
  { name: 'Unread', num: true, wide: 3, title: 'bytes that it has not read', of: w => w.unread_bytes ? bytes(w.unread_bytes) : '' },
  { name: 'Since', num: true, wide: 2, of: w => duration(currentAge(w, w.connected_seconds)) },
];

/** @param {string} name a type, or a pattern of them */
const typeOrPattern = name => name.includes('*') ? html`<span class="name">${name}</span>` : typeLink(name);

/** @param {string[]} names @param {number} all */
const servedTypes = (names, all) => html`${names.slice(0, 3).map((n, i) => html`${i ? ', ' : ''}${typeOrPattern(n)}`)}${all > 3 ? html` <span class="muted">and ${count(all - 3)} more</span>` : ''}`;

/** @type {import('../table.js').Column[]} */
const submitterColumns = [
  { name: 'Submitter', class: 'main', of: peerName },
  { name: 'Types', wide: 1, of: s => servedTypes(s.type_names, s.types) },
  { name: 'Jobs', num: true, of: s => s.jobs ? html`<a href=${link(['jobs'], { submitter: s.number })}>${count(s.jobs)}</a>` : '0' },
  { name: 'Their size', num: true, wide: 2, of: s => bytes(s.bytes) },
  { name: 'Unread', num: true, wide: 1, title: 'answers that it has not read', of: s => s.unread_bytes ? bytes(s.unread_bytes) : '' },
  { name: 'Since', num: true, wide: 1, of: s => duration(currentAge(s, s.connected_seconds)) },
];

/** Shows the first page of a listing, which is refreshed. At the press of a button it shows all pages.
 * @param {string} path @param {Listing} more @param {(items: any[]) => any} draw @param {any} none */
function peerList(path, more, draw, none) {
  const first = query(path + (path.includes('?') ? '&' : '?') + 'limit=100'), all = more.path === path ? more.rows() : null;
  if (!first.data) return pendingText(first);
  if (all?.items.length) return html`${draw(all.items)}${more.foot()}`;
  if (!first.data.items.length && first.data.next === undefined) return none;
  return html`${draw(first.data.items)}${first.data.next !== undefined && html`<p class="note"><button type="button" onClick=${() => more.of(path)}>There are more: look through all</button></p>`}`;
}

const moreWorkers = new Listing(), moreSubmitters = new Listing();

/** @param {{type?: string}} of */
export const workerTable = ({ type } = {}) => peerList('/v1/workers' + (type === undefined ? '' : '?type=' + encode(type)), moreWorkers,
  items => table('Workers', type === undefined ? workerColumns : workerColumns.filter(c => c.name !== 'Serves'), items, w => w.number),
  empty(type === undefined ? 'No worker is connected.' : 'No worker has joined this type.', html`On a host with the tool: <code>gloom work ${type ?? 'TYPE'} -- COMMAND</code>`));

export const workersView = () => html`<header class="bar"><h1>Workers</h1></header>${workerTable()}`;

export const submittersView = () => html`<header class="bar"><h1>Submitters</h1></header>
  ${peerList('/v1/submitters', moreSubmitters, items => table('Submitters', submitterColumns, items, s => s.number),
    empty('No submitter is connected.', 'There may still be detached jobs.'))}`;
