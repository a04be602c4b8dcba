// The view of one job: its status, what it waits for, its runs, its argument and its result.
import { html, signal } from '../html.js';
import { asked, call, segment, text } from '../api.js';
import { lasted, second } from '../live.js';
import { bytes, count, members, moment, plural, time } from '../format.js';
import { table } from '../table.js';
import { button, copy, duplicate, facts, place, to, waiting } from '../parts.js';
import { reading, shown } from '../body.js';
import { nameLink, ruleLink } from './findings.js';
import { one, state } from './jobs.js';

const read = reading('argument', 'result', 'error');

/** The id of the job whose long argument the user wants to see, and the size up to which arguments
 * are always shown. */
const wanted = signal(''), few = 16 << 10;

const workerLink = (/** @type {string} */ id) => html`<a class="id" href=${to(['jobs'], { worker: id })} title=${id}>${id.slice(-12)}</a>`;

/** Returns the events in a job's life, in order. @param {any} j */
const life = j => [
  { when: j.enqueued_at, what: 'enqueued' },
  ...j.runs.map((/** @type {any} */ x) => ({ when: x.started_at, what: `run ${x.n}: ${x.outcome.replace('_', ' ')}`, ms: x.ran_ms, by: x.worker && workerLink(x.worker.id), why: x.error })),
  j.status === 'running' && { when: j.started_at, what: `run ${j.attempt}: running`, ms: 1000 * lasted(j.started_at), by: j.worker_id && workerLink(j.worker_id) },
  j.finished_at && { when: j.finished_at, what: j.status, why: j.runs.length ? undefined : j.message },
].filter(Boolean);

/** @type {import('../table.js').Column[]} */
const events = [
  { name: 'When', num: true, of: x => moment(x.when) },
  { name: 'What', class: 'main', of: x => x.what },
  { name: 'For', num: true, of: x => x.ms === undefined ? '' : time(x.ms / 1000) },
  { name: 'By', wide: 1, of: x => x.by ?? '' },
  { name: 'Why', class: 'reason', of: x => x.why ?? '' },
];

/** @param {any} j */
function why(j) {
  const by = j.blocked_by.length > 0 && html`the constraint ${j.blocked_by.map((/** @type {string} */ id, /** @type {number} */ i) => html`${i ? ', ' : ''}${ruleLink(id)}`)} holds it back`;
  if (j.status !== 'queued' && j.status !== 'retrying') return null;
  return html`<p class="holds">Why it waits: <b>${by || j.waits || 'other jobs are before it, or all workers are busy'}</b>${j.due_at && lasted(j.due_at) === 0 ? html`, until ${moment(j.due_at)}` : ''}.
    ${j.place !== null && (j.place > 0 || j.place_exact) && ` ${j.place_exact ? '' : 'At least '}${plural(j.place, 'job')} ${j.place === 1 ? 'comes' : 'come'} before it.`}</p>`;
}

/** @param {string} name @param {string | undefined} value @param {any} [none] */
const value = (name, value, none) => value && value !== 'null' ? html`<section><h2>${name}</h2>${shown(value, name)}</section>` : none && html`<section><h2>${name}</h2><p class="note">${none}</p></section>`;

/** Enqueues another job with the same attributes, as the pusher wrote them. @param {string} path */
async function another(path) {
  const m = members(await text('GET', path));
  const r = await call('POST', '/job', `{${['name', 'argument', 'priority', 'max_retry', 'timeout', 'keep_result'].map(k => `"${k}":${m[k]}`)}}`);
  return to(['job', r.job_id]);
}

export function job() {
  const id = place.value.path[1] ?? '', path = '/v1/jobs/' + segment(id), r = asked(path + '?bodies=false', 2000), j = r.data;
  second.value;
  if (!j) {
    return html`<header class="bar"><h1 class="id">${id}</h1></header>
      ${r.code === 404 ? html`<div class="empty"><p>There is no job with this id; it may have been forgotten.</p><p class="note"><a href=${to(['jobs'])}>All jobs</a></p></div>` : waiting(r)}`;
  }
  // The key changes when a run ends, because the result and the error that are shown are then out
  // of date.
  const key = `${path}#${j.status}${j.attempt}`, b = j.argument_bytes <= few || wanted.value === id ? asked(key, 0, (method, p) => read(method, p.split('#')[0])) : null, m = b?.data;
  return html`<header class="bar"><h1 class="id">${j.id}</h1>${state(j)}${copy(j.id, 'Copy id')}
      <div class="actions">
        ${['queued', 'retrying'].includes(j.status) && button('Priority', () => one('priority', j))}
        ${['error', 'cancelled', 'retrying'].includes(j.status) && button(j.status === 'retrying' ? 'Run now' : 'Retry', () => one('retry', j))}
        ${duplicate(() => another(path), 'push')}
        ${['queued', 'retrying', 'running'].includes(j.status) && button('Cancel', () => one('cancel', j), { danger: true })}
      </div></header>
    ${why(j)}
    ${j.message && html`<p class="holds"><b>${j.reason === 'timeout' ? 'Timed out' : j.status === 'error' ? 'Error' : 'The last run failed'}</b>: ${j.message}</p>`}
    ${facts([['Name', nameLink(j.name)], ['Age', time(lasted(j.enqueued_at))], ['Priority, smaller first', html`${j.priority}`], ['Runs', count(j.attempt)], ['Retries', `${count(j.retry_count)} of ${count(j.max_retry)}`],
      ['A run times out after', time(j.timeout)], ['Must be done by', j.deadline && moment(j.deadline)], ['Argument', bytes(j.argument_bytes)],
      ['Result', j.keep_result ? j.has_result ? 'kept until it is fetched' : j.status === 'done' ? 'fetched, or its time was over' : 'will be kept' : 'not kept'], ['Worker', j.worker_id && workerLink(j.worker_id)]])}
    <section><h2>Its life</h2>${table('Its life', events, life(j), x => x.what + x.when)}</section>
    ${!b ? html`<section><h2>Argument</h2><button type="button" onClick=${() => { wanted.value = id; }}>Show all ${bytes(j.argument_bytes)}</button></section>`
      : !m ? html`<p class="note" role="status">${b.error ? b.error.message : 'Asking…'}</p>`
      : html`${value('Argument', m.argument)}${value('Result', m.result)}${value('Error', m.error)}`}`;
}
