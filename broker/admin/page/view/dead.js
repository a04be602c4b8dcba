// Failed jobs that are kept.
import { html, signal } from '../html.js';
import { asked, call, segment, text } from '../api.js';
import { grown } from '../live.js';
import { bytes, count, members, plural, pretty, time } from '../format.js';
import { table } from '../table.js';
import { act, ask, bulk, button, empty, Listing, place, refine, to, waiting } from '../parts.js';
import { shown } from './body.js';

const listing = new Listing();

/** @param {any} r */
const again = r => { listing.again(); return r; };

/** The letter itself, since several may have one id. @param {any} d @param {string} [what] */
const path = (d, what = '') => `/v1/dead/${segment(d.type)}/${segment(d.id)}${what}?no=${d.no}`;

/** @param {any} d */
const retry = d => act(() => call('POST', path(d, '/retry')), `${d.id} was retried.`).then(again);

/** @param {any} d */
function discard(d) {
  ask({
    title: `Discard ${d.id}?`, danger: true, button: 'Discard it', body: html`<p>Its body is gone then. This cannot be undone.</p>`,
    go: () => act(() => call('DELETE', path(d)), `${d.id} is discarded.`).then(again),
  });
}

/** @param {any} d */
async function look(d) {
  const body = signal('');
  ask({
    title: d.id, body: () => html`<p>${d.reason}</p><p class="note">failed ${time(grown(d, d.failed_seconds_ago))} ago, handed out ${plural(d.attempts, 'time')}, priority ${count(d.priority)}</p>
      ${body.value ? shown(body.value, 'Body') : html`<p class="note">Asking…</p>`}`,
  });
  try {
    const m = members(await text('GET', path(d)));
    body.value = m.body ? pretty(m.body) : '(too long to be shown)';
  } catch (e) {
    body.value = /** @type {Error} */ (e).message;
  }
}

/** A filter in words. @param {Record<string, any>} f */
function said(f) {
  const of = [f.reason && `“${f.reason}” in their reason`, f.id && `“${f.id}” in their id`].filter(Boolean);
  return of.length ? `Those that have ${of.join(' and ')}.` : 'All of this type.';
}

/** @param {string} type @param {Record<string, any>} filter */
export const retryAll = (type, filter) => bulk({
  path: `/v1/dead/${segment(type)}/retry`, filter, verb: 'Retry', one: 'dead letter', type, after: again,
  body: html`<p>${said(filter)} They are submitted again, as new jobs.</p>`,
  done: r => `${plural(r.done, 'dead letter')} retried, ${count(r.after)} left${r.refused ? `, ${count(r.refused)} refused: ${r.reason}` : ''}.`,
});

/** @param {string} type @param {Record<string, any>} filter */
const discardAll = (type, filter) => bulk({
  path: `/v1/dead/${segment(type)}/discard`, filter, verb: 'Discard', one: 'dead letter', type, danger: true, after: again,
  body: html`<p>${said(filter)} Their bodies are gone then; this cannot be undone.</p>`,
  done: r => `${plural(r.done, 'dead letter')} discarded, ${count(r.after)} left.`,
});

/** @type {import('../table.js').Column[]} */
const columns = [
  { name: 'Job', class: 'main', of: d => html`<button type="button" class="link id" onClick=${() => look(d)}>${d.id}</button>` },
  { name: 'Reason', class: 'reason', of: d => d.reason.length > 300 ? d.reason.slice(0, 300) + '…' : d.reason },
  { name: 'Failed', num: true, wide: 1, of: d => html`${time(grown(d, d.failed_seconds_ago))} ago` },
  { name: 'Runs', num: true, wide: 2, of: d => count(d.attempts) },
  { name: 'Size', num: true, wide: 3, of: d => bytes(d.bytes) },
  { name: 'Do', of: d => html`<span class="row">${button('Retry', () => retry(d))} ${button('Discard', () => discard(d), { danger: true })}</span>` },
];

function ofType(/** @type {string} */ type) {
  const reason = place.value.query.get('reason') ?? '', id = place.value.query.get('id') ?? '';
  const filter = Object.fromEntries(Object.entries({ reason, id }).filter(([, v]) => v));
  const s = listing.of(`/v1/dead/${segment(type)}?${new URLSearchParams(filter)}`);
  // The reasons of what has been read, the most frequent first.
  const counts = new Map();
  for (const d of s.items) counts.set(d.reason, (counts.get(d.reason) ?? 0) + 1);
  const reasons = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 5);
  return html`<header class="bar"><h1>Dead letters of <span class="name">${type}</span></h1><a href=${to(['type', type])}>the type</a></header>
    <div class="filters">
      <label>Part of the reason <input value=${reason} onInput=${(/** @type {any} */ e) => refine({ reason: e.target.value })} /></label>
      <label>Part of the id <input value=${id} onInput=${(/** @type {any} */ e) => refine({ id: e.target.value })} /></label>
      ${s.items.length > 0 && html`<div class="actions">${button('Retry all that fit', () => retryAll(type, filter))} ${button('Discard all that fit', () => discardAll(type, filter), { danger: true })}</div>`}
    </div>
    ${!reason && reasons.length > 1 && html`<p class="note reasons">Of the ${count(s.items.length)} that were read: ${reasons.map(([r, n]) => html`<button key=${r} type="button" class="small" onClick=${() => refine({ reason: r.slice(0, 100) })}>${count(n)} × ${r.slice(0, 60)}</button> `)}</p>`}
    ${s.items.length ? table('Dead letters', columns, s.items, d => d.no) : !s.busy && !s.error && empty(reason || id ? 'None fits.' : 'None is kept.')}
    ${listing.foot()}`;
}

export function dead() {
  const type = place.value.path[1];
  if (type !== undefined) return ofType(type);
  const r = asked('/v1/types?sort=dead&limit=100'), some = r.data?.items.filter((/** @type {any} */ t) => t.dead > 0);
  return html`<header class="bar"><h1>Dead letters</h1><span class="note">failed jobs that are kept, to look at and to retry</span></header>
    ${waiting(r) ?? (!some.length ? empty('None is kept.', 'No job has failed for good lately, or --dead-letters is 0.')
      : table('Types with dead letters', [
        { name: 'Type', class: 'main', of: t => html`<a class="name" href=${to(['dead', t.type])}>${t.type}</a>` },
        { name: 'Kept', num: true, of: t => count(t.dead) },
        { name: 'Failed', num: true, title: 'since the start', of: t => count(t.ledger.failed) },
        { name: 'Answered', num: true, wide: 1, of: t => count(t.ledger.answered) },
        { name: 'Do', wide: 1, of: t => html`<span class="row">${button('Retry all', () => retryAll(t.type, {}))} ${button('Discard all', () => discardAll(t.type, {}), { danger: true })}</span>` },
      ], some, t => t.type))}
    ${some?.length > 0 && some.length === r.data.items.length && r.data.next !== undefined && html`<p class="note">The ${count(some.length)} types with most of them are shown.</p>`}`;
}
