// The view of jobs, page by page, and the actions on one or many of them.
import { html, signal } from '../html.js';
import { call, mayUse, requestText } from '../api.js';
import { secondsSince, snapshot, everySecond } from '../live.js';
import { bytes, count, elements, members, parse, plural, duration } from '../format.js';
import { Selection, table } from '../table.js';
import { runAction, openDialog, badge, button, forEachRow, empty, Listing, place, setQuery, addNote, link } from '../parts.js';
import { searchBox } from './matcher.js';

/** The list of jobs. Its key is the body of the query. */
const listing = new Listing(async (body, next) => {
  const r = members(await requestText('POST', '/v1/jobs/query', withMembers(body, `"limit":50${next ? `,"cursor":"${next}"` : ''}`)));
  return { items: elements(r.jobs).map(j => ({ ...parse(j), argument: members(j).argument })), next: parse(r.cursor) ?? undefined };
}, '× 10,000 jobs');

/** Adds members to a JSON object. @param {string} body @param {string} more */
const withMembers = (body, more) => `{${[body.slice(1, -1), more].filter(Boolean).join(',')}}`;

const badgeKinds = /** @type {Record<string, string>} */ ({ running: 'info', retrying: 'warning', done: 'ok', error: 'severe' });
export const stateBadge = (/** @type {any} */ j) => badge(j.status, badgeKinds[j.status] ?? '');
export const statuses = ['queued', 'running', 'retrying', 'done', 'error', 'cancelled'];

/** Link to a job. It shows the whole id where there is room, otherwise only its end, in which ids
 * differ. @param {string} id */
export const jobLink = id => html`<a class="name id" href=${link(['job', id])} title=${id}><span class="w3">${id.slice(0, -12)}</span>${id.slice(-12)}</a>`;

/** @type {import('../table.js').Column[]} */
const columns = [
  { name: 'Job', class: 'main', of: j => html`<a class="name id" href=${link(['job', j.id])} title=${j.id}>${j.id.slice(-12)}</a>` },
  { name: 'Name', class: 'main', of: j => html`<a class="name" href=${link(['jobs'], { ...Object.fromEntries(place.value.query), name: j.name })}>${j.name}</a>${j.message && html`<div class="note narrow reason">${j.message.slice(0, 100)}</div>`}` },
  { name: 'Status', of: stateBadge },
  { name: 'Age', num: true, wide: 1, of: j => duration(secondsSince(j.enqueued_at)) },
  { name: 'Priority', num: true, wide: 3, title: 'smaller first', of: j => html`${j.priority}` },
  { name: 'Runs', num: true, wide: 2, of: j => `${count(j.attempt)}` },
  { name: 'Worker', wide: 3, of: j => j.worker_id && html`<a class="id" href=${link(['jobs'], { worker: j.worker_id })}>${j.worker_id.slice(-12)}</a>` },
  { name: 'Argument', wide: 2, class: 'reason', of: j => j.argument === 'null' ? j.argument_bytes > 1 && bytes(j.argument_bytes) : html`<code>${j.argument.slice(0, 120)}</code>` },
  { name: 'Message', wide: 1, class: 'reason', of: j => j.message ? j.message.slice(0, 200) : j.status === 'retrying' && j.due_at ? 'waits before it is retried' : '' },
];

/** @param {any} r */
const reload = r => { listing.again(); return r; };

const jobPath = (/** @type {any} */ j, /** @type {string} */ what) => `/v1/jobs/${j.id}/${what}`;

/** The actions on jobs. fits says to which jobs an action applies. @type {Record<string, {verb:
 * string, fits: (j: any) => boolean, done: string, danger?: boolean, says: string}>} */
const actions = {
  retry: { verb: 'Retry', fits: j => ['error', 'cancelled', 'retrying'].includes(j.status), done: 'retried', says: 'Ended jobs start again with all their retries; jobs that wait for a retry run at once.' },
  priority: { verb: 'Change the priority of', fits: j => ['queued', 'retrying'].includes(j.status), done: 'changed', says: 'Smaller comes first. The jobs keep their age; constraints that match by priority use the new one.' },
  cancel: { verb: 'Cancel', fits: j => ['queued', 'retrying'].includes(j.status), done: 'cancelled', danger: true, says: 'Only waiting jobs are cancelled; running jobs continue.' },
};

export const isDue = (/** @type {any} */ j) => !j.due_at || secondsSince(j.due_at) > 0;

const priorityField = (/** @type {any} */ was) => html`<label>Priority, from −2147483648 to 2147483647 <input name="priority" type="number" min="-2147483648" max="2147483647" step="1" required defaultValue=${was} /></label>`;

/** Acts on one job. It asks for a new priority, and asks before it cancels. @param {string} what
 * @param {any} j @param {() => any} [then] */
export function actOnJob(what, j, then = () => {}) {
  const d = actions[what];
  if (what === 'priority') {
    const set = (/** @type {number} */ priority) => call('POST', jobPath(j, what), { priority });
    openDialog({ title: 'Change the priority', button: 'Change', body: html`${priorityField(j.priority)}<p class="note">Smaller comes first.</p>`,
      go: form => runAction(() => set(+String(form.get('priority'))), 'The priority is changed.', () => set(j.priority)).then(then) });
  } else if (j.status === 'running') openDialog({ title: 'Cancel the running job?', danger: true, button: 'Cancel the job', body: html`<p class="id">${j.id}</p><p>The worker learns this with its next heartbeat, and its report will be ignored. The job can be retried here.</p>`,
    go: () => runAction(() => call('DELETE', `/job/${j.id}?force=true`), 'The job is cancelled.').then(then) });
  else if (d.danger) openDialog({ title: 'Cancel the job?', danger: true, button: 'Cancel the job', body: html`<p class="id">${j.id}</p><p>Clients that wait for the job are told that there is no such job. It can be retried here.</p>`,
    // A job that is retried does not wait until it is due.
    go: () => runAction(() => call('POST', jobPath(j, what)), 'The job is cancelled.', isDue(j) ? () => call('POST', jobPath(j, 'retry')) : undefined).then(then) });
  else runAction(() => call('POST', jobPath(j, what)), 'The job is retried.').then(then);
}

/** Acts on the chosen jobs, or on all that match a filter. The latter are counted first, and jobs
 * that come later are left out.
 * @param {string} what @param {any[]} picked @param {string} body the filter, if no job is chosen */
async function actOnMatching(what, picked, body) {
  const d = actions[what], filter = body === '{}' ? '{"all":true}' : body, progress = signal('');
  let n = picked.length, start = '';
  /** Sends requests that each act on up to 10,000 jobs, until all jobs have been examined. @param
   * {string} more @param {(n: number) => void} onProgress @param {() => boolean} [goesOn] */
  const sendToAll = async (more, onProgress, goesOn) => {
    for (let cursor = start, sum = 0; goesOn?.() ?? true;) {
      const r = await call('POST', '/v1/jobs/' + what, withMembers(filter, `"limit":10000${more}${cursor ? `,"cursor":"${cursor}"` : ''}`));
      start ||= r.start;
      onProgress(sum += r.affected);
      cursor = r.cursor;
      if (!cursor) return sum;
    }
    return -1;
  };
  if (!n) {
    addNote('Counting…');
    const at = location.hash;
    n = await runAction(() => sendToAll(`,"count":true${what === 'priority' ? ',"priority":0' : ''}`, () => {}, () => at === location.hash), '');
    if (n === undefined || n < 0) return;
    if (!n) return addNote('No job matches.');
  }
  const jobs = `${d.verb} ${plural(n, 'job')}`;
  openDialog({
    title: jobs + '?', danger: d.danger, button: jobs,
    body: () => html`${what === 'priority' && priorityField(0)}<p>${picked.length ? 'The action applies to the selected jobs. ' : ''}${d.says}</p>${progress.value && html`<p class="note" role="status">${progress.value}</p>`}`,
    go: form => runAction(() => {
      const priority = what === 'priority' ? +String(form.get('priority')) : 0;
      if (picked.length) return forEachRow(picked, j => call('POST', jobPath(j, what), what === 'priority' ? { priority } : {}));
      return sendToAll(what === 'priority' ? `,"priority":${priority}` : '', done => { progress.value = `${count(done)} of ${count(n)} ${d.done}`; });
    }, done => `${plural(done, 'job')} ${d.done}.`).then(r => { if (r !== undefined) selection.set(picked, false); reload(r); }),
  });
}

const selection = new Selection(j => j.id, j => j.id);

/** Returns the filters besides the status. @param {URLSearchParams} q */
const filters = q => Object.fromEntries(['name', 'worker', 'match'].map(k => [k, q.get(k) ?? '']));

export function jobsView() {
  const q = place.value.query, status = q.get('status') ?? '', { name, worker, match } = filters(q);
  everySecond.value;
  const body = `{${[status && `"status":"${status}"`, name && `"name":${JSON.stringify(name)}`, worker && `"worker":${JSON.stringify(worker)}`, match && `"match":${match}`].filter(Boolean).join(',')}}`;
  const s = listing.of(body), picked = selection.of(s.items), n = snapshot.value?.states, filtered = body !== '{}';
  const deed = (/** @type {string} */ what) => {
    const d = actions[what], fit = picked.filter(d.fits), word = what === 'priority' ? 'Priority of' : d.verb;
    if (picked.length ? !fit.length : status && !d.fits({ status })) return null;
    return button(picked.length ? `${word} ${count(fit.length)} selected` : `${word} all that match`, () => actOnMatching(what, fit, body), { danger: d.danger });
  };
  return html`<header class="bar"><h1>Jobs</h1>${worker && html`<span class="note">of the worker <span class="id">${worker}</span> <button type="button" class="small" onClick=${() => setQuery({ worker: '' })}>all workers</button></span>`}</header>
    <div>
      <div class="filters"><div class="tabs" role="group" aria-label="Status">${['', ...statuses].map(v => html`<button key=${v} type="button" aria-pressed=${String(status === v)}
          onClick=${() => setQuery({ status: v })}>${v || 'all'}${v && n && !name && !worker && !match ? html` <span class="num">${count(n[v])}</span>` : ''}</button>`)}</div>
        <label>Name <input value=${name} spellcheck="false" onInput=${(/** @type {any} */ e) => setQuery({ name: e.target.value })} /></label></div>
      ${searchBox(match, m => setQuery({ match: m }))}
      ${s.items.length > 0 && html`<div class="actions">${['retry', 'priority', 'cancel'].map(deed)}</div>`}
    </div>
    ${s.items.length ? table('Jobs', mayUse('admin') ? [selection.column(s.items), ...columns] : columns, s.items, j => j.id) : !s.busy && !s.error && empty(filtered ? 'No job matches.' : 'There is no job.')}
    ${listing.foot()}`;
}
