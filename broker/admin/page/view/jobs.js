// Jobs, page by page.
import { html } from '../html.js';
import { query, call, encode, mayUse, segment } from '../api.js';
import { currentAge } from '../live.js';
import { count, dateTime, plural, duration } from '../format.js';
import { Selection, table } from '../table.js';
import { runAction, openDialog, badge, bulkAction, button, forEachRow, empty, jobLink, Listing, place, setQuery, link } from '../parts.js';
import { groupLinks, typeLink } from './findings.js';

const listing = new Listing();

const badgeKinds = /** @type {Record<string, string>} */ ({ running: 'info', ended: '', delayed: '', queued: '' });

/** @param {any} j */
export const stateBadge = j => badge(j.unwanted ? 'unwanted' : j.outcome ?? j.state, j.outcome && j.outcome !== 'answered' ? 'warning' : badgeKinds[j.state] ?? '');

/** @type {import('../table.js').Column[]} */
const columns = [
  { name: 'Job', class: 'main', of: j => jobLink(j.id) },
  { name: 'Type', class: 'main', of: j => typeLink(j.type) },
  { name: 'State', of: stateBadge },
  { name: 'Age', num: true, of: j => duration(currentAge(j, j.age_seconds)) },
  { name: 'Priority', num: true, wide: 2, of: j => count(j.priority) },
  { name: 'Runs', num: true, wide: 2, title: 'how often it was handed out', of: j => count(j.attempts) },
  { name: 'Groups', wide: 2, of: j => groupLinks(j.groups) },
  { name: 'Waits for', wide: 1, of: j => j.holds ?? '' },
];

/** @type {import('../table.js').Column[]} */
const endedColumns = [
  columns[0], columns[1], { name: 'Outcome', of: stateBadge },
  { name: 'Ended', num: true, of: j => dateTime(j.ended_at) },
  { name: 'Waited', num: true, wide: 1, of: j => duration(j.waited_ms / 1000) },
  { name: 'Ran', num: true, wide: 1, of: j => j.started_at ? duration(j.ran_ms / 1000) : '' },
  columns[5], columns[6],
  { name: 'Reason', wide: 1, class: 'reason', of: j => j.reason ?? '' },
];
const outcomes = ['', 'answered', 'failed', 'cancelled', 'expired', 'discarded'];

/** The types with kept failed jobs that have this id. @param {string} id */
export function failedLinks(id) {
  const types = [...new Set((query('/v1/dead?id=' + encode(id), 0).data?.items ?? []).map((/** @type {any} */ d) => d.type))];
  return types.length > 0 && html`<p>It failed and is kept: ${types.map((type, i) =>
    html`${i ? ', ' : ''}<a class="name" href=${link(['dead', type], { id })}>${type}</a>`)}</p>`;
}

/** @param {Record<string, any>} query */
const queryText = query => new URLSearchParams(Object.entries(query).filter(([, v]) => v)).toString();

/** @param {string} type @param {Record<string, any>} filter */
const cancelAll = (type, filter) => bulkAction({
  path: `/v1/types/${segment(type)}/jobs/cancel`, filter, verb: 'Cancel', one: 'job', type, danger: true, after: reload,
  body: html`<p>${filterText(filter)} Their submitters are told; this cannot be undone.</p>`,
  done: r => `${plural(r.done, 'job')} of ${type} cancelled; ${count(r.after)} matching remain.`,
});

const selection = new Selection(j => j.id, j => j.id);

/** @param {any[]} some */
const cancelSelected = some => openDialog({
  title: `Cancel ${plural(some.length, 'job')}?`, danger: true, button: `Cancel ${plural(some.length, 'job')}`,
  body: html`<p>The selected ones. Their submitters and workers are told; this cannot be undone.</p>`,
  go: () => runAction(() => forEachRow(some, j => call('DELETE', '/v1/jobs/' + segment(j.id) + (j.state === 'running' ? '?running=true' : ''))), n => `${plural(n, 'job')} cancelled.`).then(reload),
});

/** @param {any} r */
const reload = r => { listing.again(); return r; };

/** Describes a filter in words. @param {Record<string, any>} f */
function filterText(f) {
  const of = [f.state && `are ${f.state}`, f.id && `have “${f.id}” in their id`, f.group && `are in the group “${f.group}”`, f.older && `are older than ${duration(f.older / 1000)}`].filter(Boolean);
  return of.length ? `Those that ${of.join(' and ')}.` : 'All that wait.';
}

/** The filters, the rows, and what can be done with all of them.
 * @param {{type?: string, worker?: string, submitter?: string}} fixed */
export function jobTable(fixed) {
  const q = place.value.query;
  const ended = q.get('state') === 'ended';
  const f = { state: q.get('state') ?? '', id: (q.get('id') ?? '').trim(), group: q.get('group') ?? '', older: ended ? '' : q.get('older') ?? '', outcome: ended ? q.get('outcome') ?? '' : '' };
  const older = f.older ? Math.round(+f.older * 1000) : '';
  const base = fixed.type !== undefined ? `/v1/types/${segment(fixed.type)}/jobs` : '/v1/jobs';
  const s = listing.of(base + '?' + queryText({ ...f, older, worker: fixed.worker, submitter: fixed.submitter }));
  const set = (/** @type {string} */ key) => (/** @type {any} */ e) => setQuery({ [key]: e.target.value });
  const filtered = f.state && !ended || f.id || f.group || f.older || f.outcome;
  const shown = (s.items[0]?.ended_at ? endedColumns : columns).filter(c => fixed.type === undefined || c.name !== 'Type');
  const filter = Object.fromEntries(Object.entries({ state: f.state, id: f.id, group: f.group, older }).filter(([, v]) => v));
  const some = ended ? [] : selection.of(s.items);
  return html`<div class="filters">
      <div class="tabs" role="group" aria-label="State">${['', 'queued', 'delayed', 'running', 'ended'].map(v => html`<button key=${v} type="button" aria-pressed=${String(f.state === v)}
        onClick=${() => setQuery({ state: v })}>${v || 'all'}</button>`)}</div>
      <label>Part of the id <input value=${q.get('id') ?? ''} onInput=${set('id')} /></label>
      <label>Group <input value=${f.group} onInput=${set('group')} /></label>
      ${ended ? html`<label>Outcome <select value=${f.outcome} onChange=${set('outcome')}>${outcomes.map(v => html`<option key=${v} value=${v}>${v || 'any'}</option>`)}</select></label>`
        : html`<label>Older than, s <input type="number" min="0" step="any" value=${f.older} onInput=${set('older')} /></label>`}
      ${fixed.type !== undefined && f.state !== 'ended' && button(filtered ? 'Cancel all that match' : 'Cancel all that wait', () => cancelAll(fixed.type ?? '', filter), { danger: true })}
      ${some.length > 0 && button(`Cancel ${count(some.length)} selected`, () => cancelSelected(some), { danger: true })}
    </div>
    ${s.items.length ? table('Jobs', ended || !mayUse('admin') ? shown : [selection.column(s.items), ...shown], s.items, j => ended ? `${j.id} ${j.ended_at}` : j.id) : !s.busy && !s.error && empty(filtered ? 'No job matches.' : ended ? 'No job has ended yet, as far as is remembered.' : 'There are no jobs.',
      f.id && failedLinks(f.id))}
    ${listing.foot()}`;
}

export function jobsView() {
  const q = place.value.query, worker = q.get('worker') ?? undefined, submitter = q.get('submitter') ?? undefined;
  return html`<header class="bar"><h1>Jobs${worker ? ` of worker ${worker}` : submitter ? ` of submitter ${submitter}` : ''}</h1></header>
    ${jobTable({ worker, submitter })}`;
}
