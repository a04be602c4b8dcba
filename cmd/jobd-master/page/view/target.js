// One target: its slots and workers, and its rows, page by page.
import { html } from '../html.js';
import { asked, may } from '../api.js';
import { lasted, second } from '../live.js';
import { count, moment, time } from '../format.js';
import { Chosen, table } from '../table.js';
import { badge, button, empty, facts, Listing, place, refine, to, waiting } from '../parts.js';
import { findingList } from '../verdict.js';
import { atLeast, buttons, byHand, path, words } from './findings.js';
import { workerTable } from './workers.js';
import { marks } from './targets.js';

const kinds = /** @type {Record<string, string>} */ ({ running: 'info', manual: 'warning', ignored: 'warning', ok: 'ok', fail: 'severe' });

/** The status of a row. @param {any} r */
export const state = r => badge(r.result === 'fail' ? 'failed' : r.status, kinds[r.result ?? r.status] ?? '');

/** How long it ran, or has run so far. @param {any} r */
export const ran = r => !r.started_at ? '' : r.finished_at ? time((Date.parse(r.finished_at) - Date.parse(r.started_at)) / 1000) : r.status === 'running' ? time(Math.floor(lasted(r.started_at))) : '';

const when = (/** @type {string | null} */ t) => t ? moment(t).replace(/\.\d+$/, '') : ''; // times of rows are whole seconds

/** @type {import('../table.js').Column[]} */
const columns = [
  { name: 'Row', class: 'main', of: r => html`<a class="id" href=${to(['row', r.target, r.id])}>${r.id}</a>` },
  { name: 'Status', of: state },
  { name: 'Created', num: true, wide: 2, of: r => when(r.created_at) },
  { name: 'Started', num: true, wide: 1, of: r => when(r.started_at) },
  { name: 'Ran', num: true, of: ran },
  { name: 'Code', num: true, title: 'exit code, or the signal that ended it', of: r => r.signal ?? r.code ?? '' },
  { name: 'Priority', num: true, wide: 3, of: r => r.priority ?? '' },
];

/** The tabs, by status; failed rows are requested by their result, too. */
const tabs = /** @type {[string, string, string][]} */ ([['waiting', 'waiting', 'waiting'], ['manual', 'by hand', 'manual'], ['accepted', 'accepted', 'queued'], ['running', 'running', 'running'],
  ['done', 'done', ''], ['fail', 'failed', ''], ['ignored', 'ignored', '']]);

const listing = new Listing(undefined, '× 2,000 rows'), chosen = new Chosen(r => r.id, r => String(r.id));

/** @param {string} target @param {any} t what is known about the target */
function rows(target, t) {
  const status = place.value.query.get('status') || 'waiting', manual = status === 'manual';
  const s = listing.of(`${path(target)}/rows?` + (status === 'fail' ? 'status=done&result=fail' : 'status=' + status)), picked = manual ? chosen.of(s.items) : [];
  return html`<section><h2>Rows</h2>
    <div class="filters"><div class="tabs" role="group" aria-label="Status">${tabs.map(([v, text, n]) => html`<button key=${v} type="button" aria-pressed=${String(status === v)}
        onClick=${() => refine({ status: v })}>${text}${t?.[n] > 0 && html` <span class="num">${atLeast(t[n], n === 'waiting' && t.more)}</span>`}</button>`)}</div>
      ${picked.length > 0 && button(`Run ${count(picked.length)} selected`, () => byHand(target, picked.map(r => r.id), () => { chosen.set(picked, false); listing.again(); }))}</div>
    ${s.items.length ? table('Rows', [...manual && may('admin') ? [chosen.column(s.items)] : [], ...columns.filter(c => c.name !== 'Priority' || s.items[0].priority !== null)], s.items, r => r.id) : !s.busy && !s.error && empty(`No rows of ${target} have this status.`)}
    ${listing.foot()}</section>`;
}

export function target() {
  const name = place.value.path[1] ?? '', r = asked(path(name)), t = r.data;
  second.value;
  return html`<header class="bar"><h1 class="name">${name}</h1>${t && marks(t)}
      ${t && html`<div class="actions">${buttons(t)} ${t.workers > 0 && button('Run by hand', () => byHand(name, undefined, () => listing.again()))}</div>`}</header>
    ${t ? html`${findingList(t.findings, words, true)}
      ${facts([['Waiting', t.known ? atLeast(t.waiting, t.more) : 'not reported by its workers'], ['Oldest waiting', t.oldest && time(Math.floor(lasted(t.oldest)))], ['To be run by hand', t.manual > 0 && count(t.manual)],
        ['Running', `${count(t.running)} of ${count(t.concurrency)}`], ['Accepted, not begun', count(t.queued)], ['Ended well, since its workers started', count(t.ok)], ['Failed', count(t.fail)], ['Its last worker left', t.left_at && moment(t.left_at)]])}
      ${t.at.length > 0 && html`<section><h2>Workers</h2>${workerTable(t.at)}</section>`}`
      : r.code === 404 ? html`<p class="holds">No worker serves this target, and none of its rows wait.</p>` : waiting(r)}
    ${rows(name, t)}`;
}
