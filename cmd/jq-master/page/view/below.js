// The part of the overview that is below the figures: plots, the busiest names, the ledger and the
// limits.
import { html } from '../html.js';
import { status } from '../api.js';
import { currentAge, snapshot, series } from '../live.js';
import { bytes, count, duration } from '../format.js';
import { plots } from '../plot.js';
import { empty, facts, shareBar, link } from '../parts.js';
import { nameTable } from './names.js';

export function below() {
  const v = snapshot.value, l = v.ledger, s = status.value, limits = s?.limits ?? {};
  const off = l.enqueued + l.revived - l.waiting - l.running - l.done - l.error - l.cancelled;
  return html`${plots(series)}
    <section><h2>Names with most jobs <a class="more" href=${link(['names'])}>all</a></h2>
      ${v.names.length ? nameTable(v.names.slice(0, 10)) : empty('There is no job.', html`Enqueue one: <code>POST /job</code> ${' '}<code>{"name": "greet", "argument": {}}</code>`)}</section>
    <div class="two">
      <section><h2>Where all jobs are</h2>
        <p class="ledger">Since the start: ${count(l.enqueued)} enqueued + ${count(l.revived)} retried by hand =
          ${[['waiting', l.waiting], ['running', l.running], ['done', l.done], ['with an error', l.error], ['cancelled', l.cancelled]].map(([k, n], i) => html`${i ? ' + ' : ' '}<span>${count(n)} ${k}</span>`)}</p>
        <p class="note">${off ? html`<b class="severe">It is off by ${count(off)}: this is a bug.</b>` : 'It adds up: no job is lost.'}
          ${' '}${count(l.handed_out)} hand-outs, ${count(l.retries)} retries, ${count(l.timeouts)} timeouts, ${count(l.lost)} with a lost worker, ${count(l.released)} taken back.</p></section>
      <section><h2>Limits</h2><div class="shares">
        ${shareBar('Jobs', l.waiting + l.running, limits.max_jobs, count)}
        ${shareBar('Arguments and results', v.bytes, limits.max_bytes, bytes)}
        ${shareBar('Workers', v.workers, limits.max_workers, count)}
        ${shareBar('Connections', v.connections, limits.max_connections, count)}</div></section>
    </div>
    ${s && html`<footer>${facts([['Version', s.version], ['Namespace', s.namespace], ['Up for', duration(currentAge(s, s.uptime))], ['Results kept', count(v.results)], ['Waiting requests', count(v.waiters)]])}</footer>`}`;
}
