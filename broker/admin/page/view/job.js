// This view shows one job: its state, the reason why it waits, and the actions on it.
import { html, signal } from '../html.js';
import { query, call, segment } from '../api.js';
import { bytes, count, dateTime, plural, duration } from '../format.js';
import { table } from '../table.js';
import { runAction, openDialog, button, copyButton, facts, place, link, pendingText } from '../parts.js';
import { rawReader, longText } from '../body.js';
import { failedLinks, stateBadge } from './jobs.js';
import { submitTestJob } from './submit.js';
import { findingList, findingsOf, groupLinks, typeLink } from './findings.js';

const readJob = rawReader('body', 'headers');

/** The job whose body is to be shown even if it is long. */
const wantedBody = signal('');

/** How many bytes a body may have to be shown without a request by the user. */
const maxAtOnce = 16 << 10;

/** @param {any} peer @param {string} query */
const peerLink = (peer, query) => peer && (peer.broker ? `lent to the broker ${peer.broker}` : html`${peer.client ?? 'unnamed'} <span class="muted">${peer.address}</span> <a href=${link(['jobs'], { [query]: peer.number })}>its jobs</a>`);

/** @param {any} peer */
const peerName = peer => peer.broker ? `the broker ${peer.broker}` : peer.address ? html`${peer.client ?? 'unnamed'} <span class="muted">${peer.address}</span>` : `connection ${peer.number}, gone`;

/** What happened to a job, in order: each row says when, what, for how long and where.
 * @type {import('../table.js').Column[]} */
const eventColumns = [
  { name: 'When', num: true, of: x => dateTime(x.when) },
  { name: 'What', class: 'main', of: x => x.what },
  { name: 'For', num: true, of: x => x.ms === undefined ? '' : duration(x.ms / 1000) },
  { name: 'By', wide: 1, of: x => x.by },
  { name: 'Why', class: 'reason', of: x => x.why ?? '' },
];

/** @param {any} j */
function lifeEvents(j) {
  const runs = (j.runs ?? []).map((/** @type {any} */ x) => ({ when: x.started_at, what: `run ${x.n}: ${x.outcome.replace('_', ' ')}`, ms: x.ran_ms, by: html`${peerName(x.worker)}${x.broker_lost ? ', lost' : ''}`, why: x.error }));
  if (!j.ended_at) return runs;
  return [{ when: j.submitted_at, what: 'submitted', by: j.submitter ? peerName(j.submitter) : j.keep_ms ? '' : 'detached' }, ...runs, { when: j.ended_at, what: j.outcome, by: '', why: runs.length ? undefined : j.reason }];
}

/** The view of a job that has ended and is only in the history. @param {any} j */
const endedJobView = j => html`<header class="bar"><h1 class="name id">${j.id}</h1>${stateBadge(j)}${copyButton(j.id, 'Copy id')}</header>
    ${j.reason && html`<p class="holds"><b>${j.outcome}</b>: ${j.reason}</p>`}
    ${facts([['Type', typeLink(j.type)], ['Waited', duration(j.waited_ms / 1000)], ['Ran', j.started_at ? duration(j.ran_ms / 1000) : undefined], ['Handed out', plural(j.attempts, 'time')],
      ['Groups', groupLinks(j.groups)], ['Size', bytes(j.size)], ['Answer', j.outcome === 'answered' ? bytes(j.answer_size) : undefined]])}
    ${failedLinks(j.id)}
    <section><h2>History</h2>${table('History', eventColumns, lifeEvents(j), x => x.what + x.when)}</section>`;

/** @param {any} j */
const jobPath = j => '/v1/jobs/' + segment(j.id);

/** @param {any} j */
function cancelJob(j) {
  const running = j.state === 'running', ended = j.state === 'ended';
  openDialog({
    title: ended ? `Forget the outcome of ${j.id}?` : `Cancel ${j.id}?`, danger: true, button: ended ? 'Forget it' : 'Cancel the job',
    body: html`<p>${ended ? 'Its answer can then no longer be fetched.' : running ? 'It is running: its worker is told that it is no longer wanted, and its submitter that it was cancelled.' : 'Its submitter is told that it was cancelled.'} This cannot be undone.</p>`,
    go: () => runAction(() => call('DELETE', jobPath(j) + (running ? '?running=true' : '')), r => `${j.id}: ${r.state}.`),
  });
}

/** @param {any} j */
function changeJob(j) {
  openDialog({
    title: `Change ${j.id}`, button: 'Change', body: html`<div class="pair">
      <label>Priority <input name="priority" inputmode="numeric" pattern="-?[0-9]+" required defaultValue=${String(j.priority)} /></label>
      <label>Wait from now, s <input name="delay" type="number" min="0" step="any" placeholder="as it is" /></label></div>
      <label>Groups, one a line <textarea name="groups" rows="3">${j.groups.join('\n')}</textarea></label>`,
    go: form => {
      const lines = String(form.get('groups')).replaceAll('\r\n', '\n'), delay = form.get('delay');
      // The priority is sent as it was typed: a JavaScript number cannot hold every priority.
      const said = [`"priority":${form.get('priority')}`], was = [`"priority":${j.priority}`];
      if (lines !== j.groups.join('\n')) { // names with spaces or line breaks stay as they are
        said.push(`"groups":${JSON.stringify(lines.split('\n').map(g => g.trim()).filter(Boolean))}`);
        was.push(`"groups":${JSON.stringify(j.groups)}`);
      }
      if (delay) said.push(`"delay_ms":${Math.round(+delay * 1000)}`);
      return runAction(() => call('PATCH', jobPath(j), `{${said}}`), `${j.id} is changed.`,
        delay ? undefined : () => call('PATCH', jobPath(j), `{${was}}`));
    },
  });
}

export function jobView() {
  const id = place.value.path[1] ?? '';
  const r = query('/v1/jobs/' + segment(id), 1000), j = r.data;
  if (!j) {
    return html`<header class="bar"><h1 class="name id">${id}</h1></header>
      ${r.code === 404 ? html`<div class="empty"><p>No job with this id is waiting, running or in the history.</p>
        <p class="note">${r.error?.message} <a href=${link(['jobs'], { id })}>Jobs with this in their id</a>, <a href=${link(['dead'])}>dead letters</a></p>${failedLinks(id)}</div>` : pendingText(r)}`;
  }
  if (j.ended_at && j.keep_ms === undefined) return endedJobView(j);
  const waits = j.state === 'queued' || j.state === 'delayed', over = j.state === 'ended', what = over ? 'answer' : 'body';
  // Once the job has ended, the fragment makes this another query, so that the body is not shown
  // as the answer.
  const key = jobPath(j) + '?body=true' + (over ? '#answer' : ''), b = j.bytes <= maxAtOnce || wantedBody.value === key ? query(key, 0, readJob) : null;
  const m = b?.data && (b.data.state === 'ended') === over ? b.data : null;
  return html`<header class="bar"><h1 class="name id">${j.id}</h1>${stateBadge(j)}${copyButton(j.id, 'Copy id')}
      <div class="actions">
        ${waits && button('Change', () => changeJob(j))}
        ${waits && j.state === 'delayed' && button('Run now', () => runAction(() => call('PATCH', jobPath(j), { delay_ms: 0 }), `${j.id} is ready.`))}
        ${!over && m?.body && button('Duplicate', () => submitTestJob(j.type, m.body, j.priority), { scope: 'submit' })}
        ${button(j.state === 'ended' ? 'Forget' : 'Cancel', () => cancelJob(j), { danger: true })}
      </div></header>
    ${j.holds && html`<p class="holds">Why it waits: <b>${j.holds}</b>${j.held_by && ` (group ${j.held_by.group}, rule ${j.held_by.rule})`}.
      ${j.ahead !== undefined && (j.ahead > 0 || j.ahead_exact) && ` ${j.ahead_exact === false ? 'At least ' : ''}${plural(j.ahead, 'job')} of its type ${j.ahead === 1 ? 'is' : 'are'} before it.`}</p>`}
    ${!over && findingList([...findingsOf('type', j.type), ...j.groups.flatMap((/** @type {string} */ g) => findingsOf('group', g))])}
    ${j.unwanted && html`<p class="holds"><b>Nobody is waiting for it any more</b>; its worker has been told.</p>`}
    ${j.reason && html`<p class="holds"><b>${j.outcome}</b>: ${j.reason}</p>`}
    ${facts([['Type', typeLink(j.type)], ['Age', duration(j.age_seconds)], [`${j.state === 'ended' ? 'Over' : 'In this state'} for`, duration(j.in_state_seconds)],
      [j.state === 'running' ? 'Times out in' : j.state === 'delayed' && !(j.expires_seconds <= j.due_seconds) ? 'Ready in' : j.state === 'ended' ? 'Forgotten in' : 'Expires in', j.due_seconds !== undefined ? duration(j.due_seconds) : undefined],
      ['Priority', count(j.priority)], ['Handed out', `${plural(j.attempts, 'time')}, ${plural(j.retries, 'retry', 'retries')} allowed`], ['Given back', j.releases ? plural(j.releases, 'time') : undefined],
      ['Groups', groupLinks(j.groups)], ['Size', bytes(j.bytes)], ['Detached', j.detached ? 'yes' : undefined], ['Outcome kept for', j.keep_ms ? duration(j.keep_ms / 1000) : undefined],
      ['Worker', peerLink(j.worker, 'worker')], ['Submitter', peerLink(j.submitter, 'submitter')]])}
    ${lifeEvents(j).length > 0 && html`<section><h2>${over ? 'History' : 'Runs so far'}</h2>${table(over ? 'History' : 'Runs so far', eventColumns, lifeEvents(j), x => x.what + x.when)}</section>`}
    <section><h2>${over ? 'Answer' : 'Body'}</h2>
      ${!b ? html`<button type="button" onClick=${() => { wantedBody.value = key; }}>Show the ${what}</button>`
        : m?.body ? longText(m.body, over ? 'Answer' : 'Body')
        : html`<p class="note" role="status">${b.error ? b.error.message : !m ? 'Asking…' : over ? 'The job has no answer.' : 'The job has no body, or one that is too long to be shown.'}</p>`}</section>
    ${m?.headers && m.headers !== '{}' && html`<section><h2>Headers</h2>${longText(m.headers, 'Headers')}</section>`}`;
}
