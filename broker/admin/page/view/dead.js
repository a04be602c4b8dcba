// Failed jobs that are kept (dead letters).
import { html } from '../html.js';
import { query, call, encode, mayUse, segment } from '../api.js';
import { currentAge, everySecond } from '../live.js';
import { bytes, count, pattern, plural, duration } from '../format.js';
import { Selection, table } from '../table.js';
import { runAction, openDialog, badge, bulkAction, button, copyButton, forEachRow, empty, facts, Listing, place, setQuery, link, pendingText } from '../parts.js';
import { rawReader, longText } from '../body.js';
import { typeLink } from './findings.js';

const listing = new Listing(), read = rawReader('body');

/** @param {any} r */
const reload = r => { listing.again(); return r; };

/** The path of one letter; several letters may have the same id. @param {any} d @param {string} [what] */
const letterPath = (d, what = '') => `/v1/dead/${segment(d.type)}/${segment(d.id)}${what}?no=${d.no}`;

/** @param {any} d */
const retry = d => runAction(() => call('POST', letterPath(d, '/retry')), `${d.id} was retried.`).then(reload);

/** @param {any} d */
function discard(d) {
  openDialog({
    title: `Discard ${d.id}?`, danger: true, button: 'Discard it', body: html`<p>Its body will be lost. This cannot be undone.</p>`,
    go: () => runAction(() => call('DELETE', letterPath(d)), `${d.id} is discarded.`).then(reload),
  });
}

const selection = new Selection(d => `${d.type} ${d.no}`, d => d.id);

/** @param {any[]} some */
const retrySelected = some => runAction(() => forEachRow(some, d => call('POST', letterPath(d, '/retry'))), n => `${plural(n, 'dead letter')} retried.`).then(reload);

/** @param {any[]} some */
const discardSelected = some => openDialog({
  title: `Discard ${plural(some.length, 'dead letter')}?`, danger: true, button: `Discard ${plural(some.length, 'dead letter')}`,
  body: html`<p>The selected ones. Their bodies will be lost; this cannot be undone.</p>`,
  go: () => runAction(() => forEachRow(some, d => call('DELETE', letterPath(d))), n => `${plural(n, 'dead letter')} discarded.`).then(reload),
});

/** @param {any} d */
const letterButtons = d => html`<span class="row">${button('Retry', () => retry(d))} ${button('Discard', () => discard(d), { danger: true })}</span>`;

/** One letter. @param {string} type @param {string} id */
function letterView(type, id) {
  const no = place.value.query.get('no'), r = query(`/v1/dead/${segment(type)}/${segment(id)}` + (no ? '?no=' + encode(no) : ''), 0, read), d = r.data;
  everySecond.value;
  return html`<header class="bar"><h1 class="name id">${id}</h1>${badge('failed', 'warning')}${copyButton(id, 'Copy id')}${d && html`<div class="actions">${letterButtons(d)}</div>`}</header>
    ${!d ? pendingText(r) : html`<p class="holds"><b>failed</b>: ${d.reason}</p>
    ${facts([['Type', typeLink(type)], ['Failed', `${duration(currentAge(d, d.failed_seconds_ago))} ago`], ['Handed out', plural(d.attempts, 'time')], ['Priority', count(d.priority)], ['Size', bytes(d.bytes)]])}
    <section><h2>Body</h2>${d.body ? longText(d.body, 'Body') : html`<p class="note">It is too long to be shown.</p>`}</section>`}
    <p class="note"><a href=${link(['dead', type])}>All dead letters of this type</a>, <a href=${link(['job', id])}>what is known about the job</a></p>`;
}

/** The reasons of some letters, the most frequent first: reasons that differ only in numbers and ids count as one.
 * @param {any[]} items @returns {[string, number][]} */
function countReasons(items) {
  /** @type {Map<string, number>} */
  const n = new Map();
  for (const d of items) n.set(pattern(d.reason), (n.get(pattern(d.reason)) ?? 0) + 1);
  return [...n].sort((a, b) => b[1] - a[1]);
}

/** The longest piece of a shortened reason without "…". All reasons that are shortened to this one
 * contain that piece. @param {string} of */
const commonPiece = of => of.split('…').reduce((a, b) => b.length > a.length ? b : a).slice(0, 100);

/** Describes a filter in words. @param {Record<string, any>} f */
function filterText(f) {
  const of = [f.reason && `“${f.reason}” in their reason`, f.id && `“${f.id}” in their id`].filter(Boolean);
  return of.length ? `Those that have ${of.join(' and ')}.` : 'All of this type.';
}

/** @param {string} type @param {Record<string, any>} filter */
export const retryAll = (type, filter) => bulkAction({
  path: `/v1/dead/${segment(type)}/retry`, filter, verb: 'Retry', one: 'dead letter', type, after: reload,
  body: html`<p>${filterText(filter)} They are submitted again, as new jobs.</p>`,
  done: r => `${plural(r.done, 'dead letter')} retried, ${count(r.after)} left${r.refused ? `, ${count(r.refused)} refused: ${r.reason}` : ''}.`,
});

/** @param {string} type @param {Record<string, any>} filter */
const discardAll = (type, filter) => bulkAction({
  path: `/v1/dead/${segment(type)}/discard`, filter, verb: 'Discard', one: 'dead letter', type, danger: true, after: reload,
  body: html`<p>${filterText(filter)} Their bodies will be lost; this cannot be undone.</p>`,
  done: r => `${plural(r.done, 'dead letter')} discarded, ${count(r.after)} left.`,
});

/** @type {import('../table.js').Column[]} */
const columns = [
  { name: 'Job', class: 'main', of: d => html`<a class="name id" href=${link(['dead', d.type, d.id], { no: d.no })}>${d.id}</a>` },
  { name: 'Reason', class: 'reason', of: d => d.reason.length > 300 ? d.reason.slice(0, 300) + '…' : d.reason },
  { name: 'Failed', num: true, wide: 1, of: d => html`${duration(currentAge(d, d.failed_seconds_ago))} ago` },
  { name: 'Runs', num: true, wide: 2, of: d => count(d.attempts) },
  { name: 'Size', num: true, wide: 3, of: d => bytes(d.bytes) },
  { name: 'Do', of: letterButtons },
];

function deadOfType(/** @type {string} */ type) {
  const reason = place.value.query.get('reason') ?? '', id = place.value.query.get('id') ?? '';
  const filter = Object.fromEntries(Object.entries({ reason, id }).filter(([, v]) => v));
  const s = listing.of(`/v1/dead/${segment(type)}?${new URLSearchParams(filter)}`);
  const why = countReasons(s.items).slice(0, 5), some = selection.of(s.items), n = count(some.length);
  return html`<header class="bar"><h1>Dead letters of <span class="name">${type}</span></h1><a href=${link(['type', type])}>the type</a></header>
    <div class="filters">
      <label>Part of the reason <input value=${reason} onInput=${(/** @type {any} */ e) => setQuery({ reason: e.target.value })} /></label>
      <label>Part of the id <input value=${id} onInput=${(/** @type {any} */ e) => setQuery({ id: e.target.value })} /></label>
      ${some.length > 0 ? html`<div class="actions">${button(`Retry ${n} selected`, () => retrySelected(some))} ${button(`Discard ${n} selected`, () => discardSelected(some), { danger: true })}</div>`
        : s.items.length > 0 && html`<div class="actions">${button('Retry all that match', () => retryAll(type, filter))} ${button('Discard all that match', () => discardAll(type, filter), { danger: true })}</div>`}
    </div>
    ${!reason && why.length > 1 && html`<p class="note reasons">Of the ${count(s.items.length)} that were read: ${why.map(([r, n]) => html`<button key=${r} type="button" class="small" onClick=${() => setQuery({ reason: commonPiece(r) })}>${count(n)} × ${r.slice(0, 60)}</button> `)}</p>`}
    ${s.items.length ? table('Dead letters', mayUse('admin') ? [selection.column(s.items), ...columns] : columns, s.items, d => d.no) : !s.busy && !s.error && empty(reason || id ? 'No dead letter matches.' : 'None is kept.')}
    ${listing.foot()}`;
}

/** How many types have their reasons shown, how many of the latest letters of a type are read, and how many reasons of a type are shown. */
const maxTypes = 10, latest = 100, maxReasons = 3;

/** Why the latest letters of a type failed. @param {string} type */
function reasonTable(type) {
  const all = countReasons(query(`/v1/dead/${segment(type)}?limit=${latest}`, 0).data?.items ?? []), n = all.slice(maxReasons).reduce((sum, [, n]) => sum + n, 0);
  return html`<ul class="note">${all.slice(0, maxReasons).map(([r, n]) => html`<li key=${r}>${count(n)} × <a href=${link(['dead', type], { reason: commonPiece(r) })}>${r}</a></li>`)}
    ${n > 0 && html`<li>${count(n)} for other reasons</li>`}</ul>`;
}

export function deadView() {
  const [, type, id] = place.value.path;
  if (type !== undefined) return id === undefined ? deadOfType(type) : letterView(type, id);
  const r = query('/v1/types?sort=dead&limit=100'), some = r.data?.items.filter((/** @type {any} */ t) => t.dead > 0);
  return html`<header class="bar"><h1>Dead letters</h1><span class="note">failed jobs that are kept, to look at and to retry</span></header>
    ${pendingText(r) ?? (!some.length ? empty('None is kept.', 'No job has failed for good lately, or --dead-letters is 0.')
      : table('Types with dead letters', [
        { name: 'Type', class: 'main', of: t => html`<a class="name" href=${link(['dead', t.type])}>${t.type}</a>${some.indexOf(t) < maxTypes && reasonTable(t.type)}` },
        { name: 'Kept', num: true, of: t => count(t.dead) },
        { name: 'Failed', num: true, wide: 1, title: 'since the start', of: t => count(t.ledger.failed) },
        { name: 'Answered', num: true, wide: 1, of: t => count(t.ledger.answered) },
        { name: 'Do', of: t => html`<span class="row">${button('Retry all', () => retryAll(t.type, {}))} ${button('Discard all', () => discardAll(t.type, {}), { danger: true })}</span>` },
      ], some, t => t.type))}
    ${some?.length > 0 && some.length === r.data.items.length && r.data.next !== undefined && html`<p class="note">The ${count(some.length)} types with most of them are shown.</p>`}`;
}
