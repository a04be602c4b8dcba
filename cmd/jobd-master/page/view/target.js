// One target: its slots and workers, and its rows, page by page.
import { html } from '../html.js';
import { query, mayUse } from '../api.js';
import { secondsSince, everySecond } from '../live.js';
import { count, dateTime, duration } from '../format.js';
import { Selection, table } from '../table.js';
import { badge, button, empty, facts, Listing, place, setQuery, link, pendingText } from '../parts.js';
import { findingList } from '../verdict.js';
import { atLeast, targetButtons, runByHand, targetPath, words } from './findings.js';
import { workerTable } from './workers.js';
import { targetBadges } from './targets.js';

const badgeKinds = /** @type {Record<string, string>} */ ({ running: 'info', manual: 'warning', ignored: 'warning', ok: 'ok', fail: 'severe' });

/** The status of a row. @param {any} r */
export const stateBadge = r => badge(r.result === 'fail' ? 'failed' : r.status, badgeKinds[r.result ?? r.status] ?? '');

/** How long it ran, or has run so far. @param {any} r */
export const runTime = r => !r.started_at ? '' : r.finished_at ? duration((Date.parse(r.finished_at) - Date.parse(r.started_at)) / 1000) : r.status === 'running' ? duration(Math.floor(secondsSince(r.started_at))) : '';

const when = (/** @type {string | null} */ t) => t ? dateTime(t).replace(/\.\d+$/, '') : ''; // times of rows are whole seconds

/** @type {import('../table.js').Column[]} */
const columns = [
  { name: 'Row', class: 'main', of: r => html`<a class="id" href=${link(['row', r.target, r.id])}>${r.id}</a>` },
  { name: 'Status', of: stateBadge },
  { name: 'Created', num: true, wide: 2, of: r => when(r.created_at) },
  { name: 'Started', num: true, wide: 1, of: r => when(r.started_at) },
  { name: 'Ran', num: true, of: runTime },
  { name: 'Code', num: true, title: 'exit code, or the signal that ended it', of: r => r.signal ?? r.code ?? '' },
  { name: 'Priority', num: true, wide: 3, of: r => r.priority ?? '' },
];

/** The tabs, by status; failed rows are requested by their result, too. */
const tabs = /** @type {[string, string, string][]} */ ([['waiting', 'waiting', 'waiting'], ['manual', 'by hand', 'manual'], ['accepted', 'accepted', 'queued'], ['running', 'running', 'running'],
  ['done', 'done', ''], ['fail', 'failed', ''], ['ignored', 'ignored', '']]);

const listing = new Listing(undefined, '× 2,000 rows'), chosen = new Selection(r => r.id, r => String(r.id));

/** @param {string} target @param {any} t what is known about the target */
function rowList(target, t) {
  const status = place.value.query.get('status') || 'waiting', manual = status === 'manual';
  const s = listing.of(`${targetPath(target)}/rows?` + (status === 'fail' ? 'status=done&result=fail' : 'status=' + status)), picked = manual ? chosen.of(s.items) : [];
  return html`<section><h2>Rows</h2>
    <div class="filters"><div class="tabs" role="group" aria-label="Status">${tabs.map(([v, text, n]) => html`<button key=${v} type="button" aria-pressed=${String(status === v)}
        onClick=${() => setQuery({ status: v })}>${text}${t?.[n] > 0 && html` <span class="num">${atLeast(t[n], n === 'waiting' && t.more)}</span>`}</button>`)}</div>
      ${picked.length > 0 && button(`Run ${count(picked.length)} selected`, () => runByHand(target, picked.map(r => r.id), () => { chosen.set(picked, false); listing.again(); }))}</div>
    ${s.items.length ? table('Rows', [...manual && mayUse('admin') ? [chosen.column(s.items)] : [], ...columns.filter(c => c.name !== 'Priority' || s.items[0].priority !== null)], s.items, r => r.id) : !s.busy && !s.error && empty(`No rows of ${target} have this status.`)}
    ${listing.foot()}</section>`;
}

export function targetView() {
  const name = place.value.path[1] ?? '', r = query(targetPath(name)), t = r.data;
  everySecond.value;
  return html`<header class="bar"><h1 class="name">${name}</h1>${t && targetBadges(t)}
      ${t && html`<div class="actions">${targetButtons(t)} ${t.workers > 0 && button('Run by hand', () => runByHand(name, undefined, () => listing.again()))}</div>`}</header>
    ${t ? html`${findingList(t.findings, words, true)}
      ${facts([['Waiting', t.known ? atLeast(t.waiting, t.more) : 'not reported by its workers'], ['Oldest waiting', t.oldest && duration(Math.floor(secondsSince(t.oldest)))], ['To be run by hand', t.manual > 0 && count(t.manual)],
        ['Running', `${count(t.running)} of ${count(t.concurrency)}`], ['Accepted, not begun', count(t.queued)], ['Ended well, since its workers started', count(t.ok)], ['Failed', count(t.fail)], ['Its last worker left', t.left_at && dateTime(t.left_at)]])}
      ${t.at.length > 0 && html`<section><h2>Workers</h2>${workerTable(t.at)}</section>`}`
      : r.code === 404 ? html`<p class="holds">No worker serves this target, and none of its rows wait.</p>` : pendingText(r)}
    ${rowList(name, t)}`;
}
