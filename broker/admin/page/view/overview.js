// Is all well? What waits, and where?
import { html } from '../html.js';
import { call, status } from '../api.js';
import { away, grown, lasted, look, series, second } from '../live.js';
import { count, rate, time, bytes, plain, plural } from '../format.js';
import { Plot } from '../plot.js';
import { table } from '../table.js';
import { act, ask, badge, button, empty, facts, share, to, typeLink } from '../parts.js';
import { columns } from './types.js';

/** What is wrong, the worst first. @returns {any[]} */
export const findings = () => look.value?.findings.items ?? [];

const words = /** @type {Record<string, string>} */ ({ severe: 'severe', warning: 'warning', info: 'note' });

/** @param {any} f */
function subject(f) {
  if (f.kind === 'type') return typeLink(f.subject);
  if (f.kind === 'group') return html`<a class="name" href=${to(['jobs'], { group: f.subject })}>${f.subject}</a>`;
  return html`<span class="name">${f.kind === 'broker' ? 'The broker' : f.subject}</span>`;
}

/** Causes of which dead letters tell more. */
const fails = ['failing', 'same_reason'];

/** @param {any[]} list @param {boolean} [own] on the page of what they are about */
export const findingList = (list, own = false) => html`<ul class="findings">${list.map(f => html`<li key=${[f.kind, f.subject, f.number, f.cause, f.limit].join(' ')} class=${f.severity}>
  ${badge(words[f.severity] ?? f.severity, f.severity)}
  <div><p>${own ? '' : html`<b>${subject(f)}</b>: `}${plain(f.finding)}</p>${f.advice && html`<p class="note">${f.advice}${fails.includes(f.cause) && html` · <a href=${to(['dead', f.subject])}>its dead letters</a>`}</p>`}</div>
  <span class="note num">${time(Math.floor(lasted(f.since)))}</span></li>`)}</ul>`;

function verdict() {
  const v = look.value, list = findings();
  const bad = list.filter(f => f.severity !== 'info');
  const severe = bad.filter(f => f.severity === 'severe').length, rest = bad.length - severe;
  let word = 'All is well', kind = 'ok', more = '';
  if (away.value) [word, kind] = ['Not known: the broker is away', 'severe'];
  else if (v.imbalance) [word, kind] = ['The ledger does not add up', 'severe'];
  else if (severe) [word, kind, more] = [severe === 1 ? 'One thing is wrong' : `${severe} things are wrong`, 'severe', rest ? `${rest} more ${rest === 1 ? 'wants' : 'want'} a look; ` : ''];
  else if (rest) [word, kind] = [rest === 1 ? 'One thing wants a look' : `${rest} things want a look`, 'warning'];
  return html`<div class="verdict"><h1 class=${kind}>${word}</h1>
    <p class="note">${more}${count(v.ledger.queued)} waiting, ${count(v.ledger.running)} running, ${plural(v.workers, 'worker')}, ${plural(v.submitters, 'submitter')}</p>
    ${button('Submit a test job', testJob, { scope: 'submit' })}</div>
    ${list.length ? findingList(list) : ''}
    ${v.findings.more > 0 && html`<p class="note">and ${count(v.findings.more)} more: <code>gloom findings</code></p>`}`;
}

const testJob = async () => (await import('./submit.js')).testJob();

const drain = () => ask({
  title: 'Drain the broker?', danger: true, button: 'Drain and stop',
  body: html`<p>It takes no more jobs, waits for those that it has to end, and stops, as on SIGTERM. This cannot be undone.</p>`,
  go: () => act(() => call('POST', '/v1/drain'), 'The broker drains, then it stops.'),
});

export function overview() {
  const v = look.value, s = status.value;
  second.value;
  if (!v) return html`<div class="empty loading" role="status"><p>Asking the broker…</p></div>`;
  const l = v.ledger, limits = s?.limits ?? {};
  return html`${verdict()}
    <dl class="now">
      <div><dt>Waiting</dt><dd>${count(l.queued)}</dd><dd class="note">${l.queued ? `oldest ${time(v.oldest_seconds)}` : 'nothing waits'}${l.delayed ? `, ${count(l.delayed)} delayed` : ''}</dd></div>
      <div><dt>Running</dt><dd>${count(l.running)}</dd><dd class="note">on ${plural(v.workers, 'worker')}</dd></div>
      <div><dt>In</dt><dd>${rate(v.rates?.in)}<small> /s</small></dd><dd class="note">${count(l.submitted)} since the start</dd></div>
      <div><dt>Out</dt><dd>${rate(v.rates?.out)}<small> /s</small></dd><dd class="note">${count(l.answered)} answered</dd></div>
      <div class=${v.failed_hour ? 'bad' : ''}><dt>Failed</dt><dd>${count(v.failed_hour)}</dd><dd class="note">in the last hour, ${v.dead ? html`<a href=${to(['dead'])}>${count(v.dead)} kept</a>` : 'none kept'}</dd></div>
    </dl>
    <div class="plots">
      <${Plot} title="Does it keep up?" t=${series.t} of=${series.of} show=${rate} least=${5} note="jobs per second"
        lines=${[{ name: 'in', key: 'in', color: '--blue' }, { name: 'out', key: 'out', color: '--green', dash: [5, 3] }, { name: 'failed', key: 'failed', color: '--red' }]} />
      <${Plot} title="What piles up?" t=${series.t} of=${series.of} show=${count} least=${5} note="jobs"
        lines=${[{ name: 'waiting', key: 'queued', color: '--amber', fill: true }, { name: 'running', key: 'running', color: '--blue' }]} />
      <${Plot} title="How long does it take?" t=${series.t} of=${series.of} show=${time} least=${0.001} note="half and 95 of 100 jobs took less, over the last 10 s"
        lines=${[{ name: 'wait p50', key: 'wait50', color: '--amber' }, { name: 'p95', key: 'wait95', color: '--amber', dash: [4, 3] },
          { name: 'run p50', key: 'run50', color: '--blue' }, { name: 'p95', key: 'run95', color: '--blue', dash: [4, 3] }]} />
    </div>
    <section><h2>Types with most to do ${v.types > v.top.length && html`<a class="more" href=${to(['types'])}>all ${count(v.types)}</a>`}</h2>
      ${v.top.length ? table('Types with most to do', columns.filter(c => c.name !== 'Trend'), v.top, t => t.type)
        : empty('No job has come and no worker has joined.', html`Try ${' '}<code>gloom work echo -- cat</code>${' '} and ${' '}<code>gloom submit echo hello</code>.`)}</section>
    <div class="two">
      <section><h2>Where all jobs are</h2>
        <p class="ledger">${count(l.submitted)} submitted =
          ${[['delayed', l.delayed], ['queued', l.queued], ['running', l.running], ['answered', l.answered], ['failed', l.failed], ['cancelled', l.cancelled], ['expired', l.expired], ['discarded', l.discarded]]
            .map(([k, n], i) => html`${i ? ' + ' : ' '}<span>${count(n)} ${k}</span>`)}</p>
        <p class="note">${v.imbalance ? html`<b class="severe">It is off by ${count(v.imbalance)}: this is a bug.</b>` : 'It adds up: no job is lost.'}</p></section>
      <section><h2>Limits</h2><div class="shares">
        ${share('Memory', v.memory_bytes, limits.max_memory, bytes)}
        ${share('Jobs', v.jobs, limits.max_jobs, count)}
        ${share('Connections', v.connections, limits.max_conns, count)}
        ${share('Unread answers', v.unread_bytes, limits.max_unread, bytes)}</div></section>
    </div>
    ${s && html`<footer>${facts([['Version', s.version], ['Up for', time(grown(s, s.uptime_seconds))], ['Types', count(v.types)], ['Groups', count(v.groups)]])}${!v.draining && button('Drain', drain, { danger: true })}</footer>`}`;
}
