// Jobs, page by page.
import { html } from '../html.js';
import { asked, call, enc, may, segment } from '../api.js';
import { grown } from '../live.js';
import { count, moment, plural, time } from '../format.js';
import { Chosen, table } from '../table.js';
import { act, ask, badge, bulk, button, each, empty, jobLink, Listing, place, refine, to } from '../parts.js';
import { groupLinks, typeLink } from './findings.js';

const listing = new Listing();

const kinds = /** @type {Record<string, string>} */ ({ running: 'info', ended: '', delayed: '', queued: '' });

/** @param {any} j */
export const state = j => badge(j.unwanted ? 'unwanted' : j.outcome ?? j.state, j.outcome && j.outcome !== 'answered' ? 'warning' : kinds[j.state] ?? '');

/** @type {import('../table.js').Column[]} */
const columns = [
  { name: 'Job', class: 'main', of: j => jobLink(j.id) },
  { name: 'Type', class: 'main', of: j => typeLink(j.type) },
  { name: 'State', of: state },
  { name: 'Age', num: true, of: j => time(grown(j, j.age_seconds)) },
  { name: 'Priority', num: true, wide: 2, of: j => count(j.priority) },
  { name: 'Runs', num: true, wide: 2, title: 'how often it was handed out', of: j => count(j.attempts) },
  { name: 'Groups', wide: 2, of: j => groupLinks(j.groups) },
  { name: 'Waits for', wide: 1, of: j => j.holds ?? '' },
];

/** @type {import('../table.js').Column[]} */
const over = [
  columns[0], columns[1], { name: 'Outcome', of: state },
  { name: 'Ended', num: true, of: j => moment(j.ended_at) },
  { name: 'Waited', num: true, wide: 1, of: j => time(j.waited_ms / 1000) },
  { name: 'Ran', num: true, wide: 1, of: j => j.started_at ? time(j.ran_ms / 1000) : '' },
  columns[5], columns[6],
  { name: 'Reason', wide: 1, class: 'reason', of: j => j.reason ?? '' },
];
const outcomes = ['', 'answered', 'failed', 'cancelled', 'expired', 'discarded'];

/** The types with kept failed jobs that have this id. @param {string} id */
export function failed(id) {
  const types = [...new Set((asked('/v1/dead?id=' + enc(id), 0).data?.items ?? []).map((/** @type {any} */ d) => d.type))];
  return types.length > 0 && html`<p>It failed and is kept: ${types.map((type, i) =>
    html`${i ? ', ' : ''}<a class="name" href=${to(['dead', type], { id })}>${type}</a>`)}</p>`;
}

/** @param {Record<string, any>} query */
const query = query => new URLSearchParams(Object.entries(query).filter(([, v]) => v)).toString();

/** @param {string} type @param {Record<string, any>} filter */
const cancelAll = (type, filter) => bulk({
  path: `/v1/types/${segment(type)}/jobs/cancel`, filter, verb: 'Cancel', one: 'job', type, danger: true, after: again,
  body: html`<p>${said(filter)} Their submitters are told; this cannot be undone.</p>`,
  done: r => `${plural(r.done, 'job')} of ${type} cancelled, ${count(r.after)} that match are left.`,
});

const chosen = new Chosen(j => j.id, j => j.id);

/** @param {any[]} some */
const cancelChosen = some => ask({
  title: `Cancel ${plural(some.length, 'job')}?`, danger: true, button: `Cancel ${plural(some.length, 'job')}`,
  body: html`<p>The selected ones. Their submitters and workers are told; this cannot be undone.</p>`,
  go: () => act(() => each(some, j => call('DELETE', '/v1/jobs/' + segment(j.id) + (j.state === 'running' ? '?running=true' : ''))), n => `${plural(n, 'job')} cancelled.`).then(again),
});

/** @param {any} r */
const again = r => { listing.again(); return r; };

/** Describes a filter in words. @param {Record<string, any>} f */
function said(f) {
  const of = [f.state && `are ${f.state}`, f.id && `have “${f.id}” in their id`, f.group && `are in the group “${f.group}”`, f.older && `are older than ${time(f.older / 1000)}`].filter(Boolean);
  return of.length ? `Those that ${of.join(' and ')}.` : 'All that wait.';
}

/** The filters, the rows, and what can be done with all of them.
 * @param {{type?: string, worker?: string, submitter?: string}} fixed */
export function jobs(fixed) {
  const q = place.value.query;
  const ended = q.get('state') === 'ended';
  const f = { state: q.get('state') ?? '', id: (q.get('id') ?? '').trim(), group: q.get('group') ?? '', older: ended ? '' : q.get('older') ?? '', outcome: ended ? q.get('outcome') ?? '' : '' };
  const older = f.older ? Math.round(+f.older * 1000) : '';
  const base = fixed.type !== undefined ? `/v1/types/${segment(fixed.type)}/jobs` : '/v1/jobs';
  const s = listing.of(base + '?' + query({ ...f, older, worker: fixed.worker, submitter: fixed.submitter }));
  const set = (/** @type {string} */ key) => (/** @type {any} */ e) => refine({ [key]: e.target.value });
  const filtered = f.state && !ended || f.id || f.group || f.older || f.outcome;
  const shown = (s.items[0]?.ended_at ? over : columns).filter(c => fixed.type === undefined || c.name !== 'Type');
  const filter = Object.fromEntries(Object.entries({ state: f.state, id: f.id, group: f.group, older }).filter(([, v]) => v));
  const some = ended ? [] : chosen.of(s.items);
  return html`<div class="filters">
      <div class="tabs" role="group" aria-label="State">${['', 'queued', 'delayed', 'running', 'ended'].map(v => html`<button key=${v} type="button" aria-pressed=${String(f.state === v)}
        onClick=${() => refine({ state: v })}>${v || 'all'}</button>`)}</div>
      <label>Part of the id <input value=${q.get('id') ?? ''} onInput=${set('id')} /></label>
      <label>Group <input value=${f.group} onInput=${set('group')} /></label>
      ${ended ? html`<label>Outcome <select value=${f.outcome} onChange=${set('outcome')}>${outcomes.map(v => html`<option key=${v} value=${v}>${v || 'any'}</option>`)}</select></label>`
        : html`<label>Older than, s <input type="number" min="0" step="any" value=${f.older} onInput=${set('older')} /></label>`}
      ${fixed.type !== undefined && f.state !== 'ended' && button(filtered ? 'Cancel all that match' : 'Cancel all that wait', () => cancelAll(fixed.type ?? '', filter), { danger: true })}
      ${some.length > 0 && button(`Cancel ${count(some.length)} selected`, () => cancelChosen(some), { danger: true })}
    </div>
    ${s.items.length ? table('Jobs', ended || !may('admin') ? shown : [chosen.column(s.items), ...shown], s.items, j => ended ? `${j.id} ${j.ended_at}` : j.id) : !s.busy && !s.error && empty(filtered ? 'No job matches.' : ended ? 'No job has ended yet, as far as is remembered.' : 'There are no jobs.',
      f.id && failed(f.id))}
    ${listing.foot()}`;
}

export function allJobs() {
  const q = place.value.query, worker = q.get('worker') ?? undefined, submitter = q.get('submitter') ?? undefined;
  return html`<header class="bar"><h1>Jobs${worker ? ` of worker ${worker}` : submitter ? ` of submitter ${submitter}` : ''}</h1></header>
    ${jobs({ worker, submitter })}`;
}
