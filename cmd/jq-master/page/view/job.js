// The view of one job: its status, what it waits for, its runs, its argument and its result.
import { html, signal } from '../html.js';
import { query, call, segment, requestText } from '../api.js';
import { secondsSince, everySecond } from '../live.js';
import { bytes, count, members, dateTime, plural, duration } from '../format.js';
import { table } from '../table.js';
import { button, copyButton, duplicateButton, facts, place, link, pendingText } from '../parts.js';
import { rawReader, longText } from '../body.js';
import { nameLink, ruleLink } from './findings.js';
import { actOnJob, isDue, stateBadge } from './jobs.js';

const readJob = rawReader('argument', 'result', 'error');

/** The id of the job whose long argument the user wants to see, and the size up to which arguments
 * are always shown. */
const wantedValue = signal(''), few = 16 << 10;

const workerLink = (/** @type {string} */ id) => html`<a class="id" href=${link(['jobs'], { worker: id })} title=${id}>${id.slice(-12)}</a>`;

/** Returns the events in a job's life, in order. @param {any} j */
const lifeEvents = j => [
  { when: j.enqueued_at, what: 'enqueued' },
  ...j.runs.map((/** @type {any} */ x) => ({ when: x.started_at, what: `run ${x.n}: ${x.outcome.replace('_', ' ')}`, ms: x.ran_ms, by: x.worker && workerLink(x.worker.id), why: x.error })),
  j.status === 'running' && { when: j.started_at, what: `run ${j.attempt}: running`, ms: 1000 * secondsSince(j.started_at), by: j.worker_id && workerLink(j.worker_id) },
  j.finished_at && { when: j.finished_at, what: j.status, why: j.runs.length ? undefined : j.message },
].filter(Boolean);

/** @type {import('../table.js').Column[]} */
const eventColumns = [
  { name: 'When', num: true, of: x => dateTime(x.when) },
  { name: 'What', class: 'main', of: x => x.what },
  { name: 'For', num: true, of: x => x.ms === undefined ? '' : duration(x.ms / 1000) },
  { name: 'By', wide: 1, of: x => x.by ?? '' },
  { name: 'Why', class: 'reason', of: x => x.why ?? '' },
];

/** @param {any} j */
function waitReason(j) {
  const by = j.blocked_by.length > 0 && html`the constraint ${j.blocked_by.map((/** @type {string} */ id, /** @type {number} */ i) => html`${i ? ', ' : ''}${ruleLink(id)}`)} holds it back`;
  if (j.status !== 'queued' && j.status !== 'retrying') return null;
  return html`<p class="holds">Why it waits: <b>${by || j.waits || 'other jobs are before it, or all workers are busy'}</b>${isDue(j) ? '' : html`, until ${dateTime(j.due_at)}`}.
    ${j.place !== null && (j.place > 0 || j.place_exact) && ` ${j.place_exact ? '' : 'At least '}${plural(j.place, 'job')} ${j.place === 1 ? 'comes' : 'come'} before it.`}</p>`;
}

/** @param {string} name @param {string | undefined} value @param {any} [none] */
const valueText = (name, value, none) => value && value !== 'null' ? html`<section><h2>${name}</h2>${longText(value, name)}</section>` : none && html`<section><h2>${name}</h2><p class="note">${none}</p></section>`;

/** Enqueues another job with the same attributes, as the pusher wrote them. @param {string} path */
async function enqueueCopy(path) {
  const m = members(await requestText('GET', path));
  const r = await call('POST', '/job', `{${['name', 'argument', 'priority', 'max_retry', 'timeout', 'keep_result'].map(k => `"${k}":${m[k]}`)}}`);
  return link(['job', r.job_id]);
}

export function jobView() {
  const id = place.value.path[1] ?? '', path = '/v1/jobs/' + segment(id), r = query(path + '?bodies=false', 2000), j = r.data;
  everySecond.value;
  if (!j) {
    return html`<header class="bar"><h1 class="id">${id}</h1></header>
      ${r.code === 404 ? html`<div class="empty"><p>There is no job with this id; it may have been forgotten.</p><p class="note"><a href=${link(['jobs'])}>All jobs</a></p></div>` : pendingText(r)}`;
  }
  // The key changes when a run ends, because the result and the error that are shown are then out
  // of date.
  const key = `${path}#${j.status}${j.attempt}`, b = j.argument_bytes <= few || wantedValue.value === id ? query(key, 0, (method, p) => readJob(method, p.split('#')[0])) : null, m = b?.data;
  return html`<header class="bar"><h1 class="id">${j.id}</h1>${stateBadge(j)}${copyButton(j.id, 'Copy id')}
      <div class="actions">
        ${['queued', 'retrying'].includes(j.status) && button('Priority', () => actOnJob('priority', j))}
        ${['error', 'cancelled', 'retrying'].includes(j.status) && button(j.status === 'retrying' ? 'Run now' : 'Retry', () => actOnJob('retry', j))}
        ${duplicateButton(() => enqueueCopy(path), 'push')}
        ${['queued', 'retrying', 'running'].includes(j.status) && button('Cancel', () => actOnJob('cancel', j), { danger: true })}
      </div></header>
    ${waitReason(j)}
    ${j.message && html`<p class="holds"><b>${j.reason === 'timeout' ? 'Timed out' : j.status === 'error' ? 'Error' : 'The last run failed'}</b>: ${j.message}</p>`}
    ${facts([['Name', nameLink(j.name)], ['Age', duration(secondsSince(j.enqueued_at))], ['Priority, smaller first', html`${j.priority}`], ['Runs', count(j.attempt)], ['Retries', `${count(j.retry_count)} of ${count(j.max_retry)}`],
      ['A run times out after', duration(j.timeout)], ['Must be done by', j.deadline && dateTime(j.deadline)], ['Argument', bytes(j.argument_bytes)],
      ['Result', j.keep_result ? j.has_result ? 'kept until it is fetched' : j.status === 'done' ? 'fetched, or its time was over' : 'will be kept' : 'not kept'], ['Worker', j.worker_id && workerLink(j.worker_id)]])}
    <section><h2>History</h2>${table('History', eventColumns, lifeEvents(j), x => x.what + x.when)}</section>
    ${!b ? html`<section><h2>Argument</h2><button type="button" onClick=${() => { wantedValue.value = id; }}>Show all ${bytes(j.argument_bytes)}</button></section>`
      : !m ? html`<p class="note" role="status">${b.error ? b.error.message : 'Asking…'}</p>`
      : html`${valueText('Argument', m.argument)}${valueText('Result', m.result)}${valueText('Error', m.error)}`}`;
}
