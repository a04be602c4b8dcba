// The view of one job: its state, why it waits, its runs, its payload and its result.
import { html, signal } from '../html.js';
import { asked, call, enc, text } from '../api.js';
import { lasted, second } from '../live.js';
import { bytes, count, moment, pretty, time } from '../format.js';
import { table } from '../table.js';
import { act, ask, badge, button, copy, duplicate, facts, place, to, waiting } from '../parts.js';
import { shown } from '../body.js';
import { ended, handlerLink, jobTo, state, typeLink, waits } from '../names.js';
import { cancel, hasten, retry } from './jobs.js';

/** The path of the long value that the user wants to see, and the size up to which values are
 * always shown. */
const wanted = signal(''), few = 64 << 10;

/** Returns the events in a job's life, in order. @param {any} j */
const life = j => [
  { when: j.create_dt, what: 'added' },
  ...j.runs.map((/** @type {any} */ x) => ({ when: x.started_at, what: `run ${x.n}: ${x.outcome.replace('_', ' ')}`, ms: x.ran_ms, by: x.worker?.id, why: x.error?.replaceAll('\n', ' – ') })),
  j.state === 'running' && { what: `run ${j.tries}: running`, by: j.lock },
  j.done_dt && { when: j.done_dt, what: j.state },
  j.state === 'deferred' && { when: j.dt, what: 'due' },
].filter(Boolean);

/** @type {import('../table.js').Column[]} */
const events = [
  { name: 'When', num: true, of: x => x.when ? moment(x.when) : '–' },
  { name: 'What', class: 'main', of: x => x.what },
  { name: 'For', num: true, of: x => x.ms === undefined ? '' : time(x.ms / 1000) },
  { name: 'By', wide: 1, of: x => html`<span class="id">${x.by ?? ''}</span>` },
  { name: 'Why', class: 'reason', of: x => x.why ?? '' },
];

/** @param {string} s */
function laidOut(s) {
  try { return typeof JSON.parse(s) === 'object' ? pretty(s) : s; } catch { return s; }
}

/** @param {string} name @param {string} path @param {number} size @param {any} [note] */
function value(name, path, size, note) {
  const r = size <= few || wanted.value === path ? asked(path, 0, text) : null;
  return html`<section><h2>${name}</h2>${!r ? html`<button type="button" onClick=${() => { wanted.value = path; }}>Show all ${bytes(size)}</button>`
    : r.data === undefined ? html`<p class="note" role="status">${r.error ? r.error.message : 'Asking…'}</p>` : r.data === '' ? html`<p class="note">It is empty.</p>` : shown(laidOut(r.data), name)}${note && html`<p class="note">${note}</p>`}</section>`;
}

/** @param {any} j @param {string} jobtype */
const why = (j, jobtype) => !waits(j.state) ? null : html`<p class="holds">Why it waits: <b>${j.code === 'no_handler' ? 'its type has no handler' : j.state === 'waiting' ? 'others are before it, or all slots are taken'
  : `${j.tries ? 'its last run did not succeed, and it is tried again at' : 'it is not due until'} ${moment(j.dt)}`}</b>${j.code === 'no_handler' && html`; ${handlerLink(jobtype, 'add one')}`}.</p>`;

/** Adds a job with the same payload. @param {any} j @param {string} payload its path */
async function another(j, payload) {
  const line = await text('GET', payload);
  if (!line || /[\r\n]/.test(line)) throw new Error('its argument is not a line');
  const r = await call('POST', `/${enc(j.client)}/job/${enc(j.type)}?wait=store`, line);
  return jobTo({ ...j, id: r.ids[0] });
}

export function job() {
  const [, client, id = ''] = place.value.path, at = (/** @type {string} */ what) => `/${enc(client)}/job/${what}/${enc(id)}`, r = asked(at('get'), 2000), j = r.data && { ...r.data, client }, jobtype = `${client}-${j?.type}`, l = j?.last;
  second.value;
  if (!j) {
    return html`<header class="bar"><h1 class="id">${id}</h1></header>
      ${r.code === 404 || !client ? html`<div class="empty"><p>There is no job with this id, or it has been forgotten.</p><p class="note"><a href=${to(['jobs'])}>All jobs</a></p></div>` : waiting(r)}`;
  }
  return html`<header class="bar"><h1 class="id">${j.id}</h1>${state(j)}${copy(j.id, 'Copy id')}
      <div class="actions">
        ${ended(j.state) && button('Retry', () => act(() => retry(j), 'The job is retried.'), { scope: 'submit' })}
        ${j.state === 'deferred' && button('Run now', () => act(() => hasten(j), 'The job is due now.'), { scope: 'submit' })}
        ${duplicate(() => another(j, at('payload')), 'submit')}
        ${waits(j.state) && button('Cancel', () => ask({ title: 'Cancel the job?', danger: true, button: 'Cancel the job', body: html`<p class="id">${j.id}</p><p>It is deleted: it cannot be brought back.</p>`,
          go: () => act(() => cancel(j), 'The job is cancelled.') }), { scope: 'submit', danger: true })}
      </div></header>
    ${why(j, jobtype)}
    ${facts([['Type', typeLink(jobtype)], ['Handler', handlerLink(jobtype, 'look')], ['Age', time(lasted(j.create_dt))], ['Due', waits(j.state) && moment(j.dt)], ['Runs', count(j.tries)], ['Code', j.code], ['Exit code', j.exitcode],
      ['Locked by', j.state === 'running' && j.lock], ['Argument', bytes(j.payload_bytes)], ['Lines that made no job', j.bad_lines || null], ['Its data', j.truncated && badge('cut', 'warning')]])}
    <section><h2>Its life</h2>${table('Its life', events, life(j), x => x.what + x.when)}</section>
    ${l && html`<section><h2>Last run</h2>${facts([['Try', count(l.try)], ['Ended', moment(l.at)], ['It took', time(l.took_ms / 1000)], ['Code', l.code], ['Exit code', l.exitcode]])}</section>
      ${l.data && !ended(j.state) && html`<section><h2>Its data</h2>${shown(l.data, 'Data of the last run')}</section>`}
      ${l.stderr && html`<section><h2>Its standard error</h2>${shown(l.stderr, 'Standard error')}</section>`}`}
    ${value('Argument', at('payload'), j.payload_bytes)}
    ${ended(j.state) && j.state !== 'expired' && value('Result', `${at('result')}#${j.done_dt}`, j.data_bytes, j.truncated && 'It was longer: only --max-result of it is kept.')}`;
}
