// The registered workers.
import { html } from '../html.js';
import { query, call } from '../api.js';
import { secondsSince, everySecond } from '../live.js';
import { count, plural, duration } from '../format.js';
import { table } from '../table.js';
import { runAction, openDialog, badge, button, empty, Listing, link, pendingText } from '../parts.js';

/** @param {any} w */
const dismissWorker = w => openDialog({
  title: 'Unregister the worker?', danger: true, button: 'Unregister it',
  body: html`<p><b class="name">${w.name}</b> gets no more jobs; those that it runs may still be answered. It may register again.</p>`,
  go: () => runAction(() => call('DELETE', '/v1/workers/' + w.id), `${w.name} is unregistered.`),
});

/** @type {import('../table.js').Column[]} */
const columns = [
  { name: 'Worker', class: 'main', of: w => html`<span class="name">${w.name}</span> ${w.leaving && badge('leaving')} ${w.silent && badge('silent', 'warning')} ${w.paused_until && badge('paused', 'warning')}${w.paused_until && html`<div class="note">${w.paused_for}</div>`}` },
  { name: 'Names', wide: 1, of: w => html`<span class="name">${w.names.slice(0, 4).join(', ')}</span>${w.names.length > 4 && html` <span class="muted">and ${count(w.names.length - 4)} more</span>`}` },
  { name: 'Jobs', num: true, title: 'that run, of those it may have', of: w => html`${w.running ? html`<a href=${link(['jobs'], { worker: w.id, status: 'running' })}>${count(w.running)}</a>` : '0'}<span class="muted"> of ${count(w.max_jobs)}</span>` },
  { name: 'Gets them', wide: 2, of: w => w.mode === 'pull' ? 'it asks' : html`at <span class="name">${w.url}</span>` },
  { name: 'Last seen', num: true, wide: 1, of: w => html`${duration(Math.floor(secondsSince(w.seen_at)))} ago` },
  { name: 'Heartbeat', wide: 3, of: w => w.heartbeat ? 'yes' : '' },
  { name: 'Since', num: true, wide: 2, of: w => duration(Math.floor(secondsSince(w.registered_at))) },
  { name: 'Do', of: w => !w.leaving && button('Unregister', () => dismissWorker(w), { danger: true }) },
];

const listing = new Listing(async (path, next) => {
  const r = await call('GET', `${path}?limit=200${next ? '&cursor=' + next : ''}`);
  return { items: r.workers, next: r.cursor ?? undefined };
}), maxRows = 100;

export function workersView() {
  const r = query(`/v1/workers?limit=${maxRows}`, 2000), more = listing.path ? listing.rows() : null, list = more?.items.length ? more.items : r.data?.workers ?? [];
  everySecond.value;
  return html`<header class="bar"><h1>Workers</h1><span class="note">${r.data && !r.data.cursor && plural(list.length, 'worker')}</span></header>
    ${pendingText(r) ?? (list.length ? table('Workers', columns, list, w => w.id) : empty('No worker is registered.', html`<code>POST /worker</code> ${' '}<code>{"name": "by hand", "max_jobs": 1}</code>`))}
    ${more?.items.length ? listing.foot() : r.data?.cursor && html`<p class="note"><button type="button" onClick=${() => listing.of('/v1/workers')}>There are more: look through all</button></p>`}`;
}
