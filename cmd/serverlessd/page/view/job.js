// The view of one job: its state, why it waits, its runs, its payload and its result.
import { html, signal } from '../html.js';
import { query, call, encode, requestText } from '../api.js';
import { secondsSince, everySecond } from '../live.js';
import { bytes, count, dateTime, indent, duration } from '../format.js';
import { table } from '../table.js';
import { runAction, openDialog, badge, button, copyButton, duplicateButton, facts, place, link, pendingText } from '../parts.js';
import { longText } from '../body.js';
import { hasEnded, handlerLink, jobTo, stateBadge, typeLink, isWaiting } from '../names.js';
import { cancel, hasten, retry } from './jobs.js';

/** The path of the long value that the user wants to see, and the size up to which values are
 * always shown. */
const wantedValue = signal(''), few = 64 << 10;

/** Returns the events in a job's life, in order. @param {any} j */
const lifeEvents = j => [
  { when: j.create_dt, what: 'added' },
  ...j.runs.map((/** @type {any} */ x) => ({ when: x.started_at, what: `run ${x.n}: ${x.outcome.replace('_', ' ')}`, ms: x.ran_ms, by: x.worker?.id, why: x.error?.replaceAll('\n', ' – ') })),
  j.state === 'running' && { what: `run ${j.tries}: running`, by: j.lock },
  j.done_dt && { when: j.done_dt, what: j.state },
  j.state === 'deferred' && { when: j.dt, what: 'due' },
].filter(Boolean);

/** @type {import('../table.js').Column[]} */
const eventColumns = [
  { name: 'When', num: true, of: x => x.when ? dateTime(x.when) : '–' },
  { name: 'What', class: 'main', of: x => x.what },
  { name: 'For', num: true, of: x => x.ms === undefined ? '' : duration(x.ms / 1000) },
  { name: 'By', wide: 1, of: x => html`<span class="id">${x.by ?? ''}</span>` },
  { name: 'Why', class: 'reason', of: x => x.why ?? '' },
];

/** @param {string} s */
function indentedText(s) {
  try { return typeof JSON.parse(s) === 'object' ? indent(s) : s; } catch { return s; }
}

/** @param {string} name @param {string} path @param {number} size @param {any} [note] */
function valueText(name, path, size, note) {
  const r = size <= few || wantedValue.value === path ? query(path, 0, requestText) : null;
  return html`<section><h2>${name}</h2>${!r ? html`<button type="button" onClick=${() => { wantedValue.value = path; }}>Show all ${bytes(size)}</button>`
    : r.data === undefined ? html`<p class="note" role="status">${r.error ? r.error.message : 'Asking…'}</p>` : r.data === '' ? html`<p class="note">It is empty.</p>` : longText(indentedText(r.data), name)}${note && html`<p class="note">${note}</p>`}</section>`;
}

/** @param {any} j @param {string} jobtype */
const waitReason = (j, jobtype) => !isWaiting(j.state) ? null : html`<p class="holds">Why it waits: <b>${j.code === 'no_handler' ? 'its type has no handler' : j.state === 'waiting' ? 'others are before it, or all slots are taken'
  : `${j.tries ? 'its last run did not succeed, and it is tried again at' : 'it is not due until'} ${dateTime(j.dt)}`}</b>${j.code === 'no_handler' && html`; ${handlerLink(jobtype, 'add one')}`}.</p>`;

/** Adds a job with the same payload. @param {any} j @param {string} payload its path */
async function addCopy(j, payload) {
  const line = await requestText('GET', payload);
  if (!line || /[\r\n]/.test(line)) throw new Error('its argument is not a line');
  const r = await call('POST', `/${encode(j.client)}/job/${encode(j.type)}?wait=store`, line);
  return jobTo({ ...j, id: r.ids[0] });
}

export function jobView() {
  const [, client, id = ''] = place.value.path, at = (/** @type {string} */ what) => `/${encode(client)}/job/${what}/${encode(id)}`, r = query(at('get'), 2000), j = r.data && { ...r.data, client }, jobtype = `${client}-${j?.type}`, l = j?.last;
  everySecond.value;
  if (!j) {
    return html`<header class="bar"><h1 class="id">${id}</h1></header>
      ${r.code === 404 || !client ? html`<div class="empty"><p>There is no job with this id, or it has been forgotten.</p><p class="note"><a href=${link(['jobs'])}>All jobs</a></p></div>` : pendingText(r)}`;
  }
  return html`<header class="bar"><h1 class="id">${j.id}</h1>${stateBadge(j)}${copyButton(j.id, 'Copy id')}
      <div class="actions">
        ${hasEnded(j.state) && button('Retry', () => runAction(() => retry(j), 'The job is retried.'), { scope: 'submit' })}
        ${j.state === 'deferred' && button('Run now', () => runAction(() => hasten(j), 'The job is due now.'), { scope: 'submit' })}
        ${duplicateButton(() => addCopy(j, at('payload')), 'submit')}
        ${isWaiting(j.state) && button('Cancel', () => openDialog({ title: 'Cancel the job?', danger: true, button: 'Cancel the job', body: html`<p class="id">${j.id}</p><p>It is deleted: it cannot be brought back.</p>`,
          go: () => runAction(() => cancel(j), 'The job is cancelled.') }), { scope: 'submit', danger: true })}
      </div></header>
    ${waitReason(j, jobtype)}
    ${facts([['Type', typeLink(jobtype)], ['Handler', handlerLink(jobtype, 'look')], ['Age', duration(secondsSince(j.create_dt))], ['Due', isWaiting(j.state) && dateTime(j.dt)], ['Runs', count(j.tries)], ['Code', j.code], ['Exit code', j.exitcode],
      ['Locked by', j.state === 'running' && j.lock], ['Argument', bytes(j.payload_bytes)], ['Lines that made no job', j.bad_lines || null], ['Its data', j.truncated && badge('cut', 'warning')]])}
    <section><h2>History</h2>${table('History', eventColumns, lifeEvents(j), x => x.what + x.when)}</section>
    ${l && html`<section><h2>Last run</h2>${facts([['Try', count(l.try)], ['Ended', dateTime(l.at)], ['It took', duration(l.took_ms / 1000)], ['Code', l.code], ['Exit code', l.exitcode]])}</section>
      ${l.data && !hasEnded(j.state) && html`<section><h2>Its data</h2>${longText(l.data, 'Data of the last run')}</section>`}
      ${l.stderr && html`<section><h2>Its standard error</h2>${longText(l.stderr, 'Standard error')}</section>`}`}
    ${valueText('Argument', at('payload'), j.payload_bytes)}
    ${hasEnded(j.state) && j.state !== 'expired' && valueText('Result', `${at('result')}#${j.done_dt}`, j.data_bytes, j.truncated && 'It was longer: only --max-result of it is kept.')}`;
}
