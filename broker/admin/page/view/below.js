// The part of the overview below the figures: where jobs come from, and where all jobs are.
import { html } from '../html.js';
import { call, status } from '../api.js';
import { currentAge, snapshot, series } from '../live.js';
import { count, duration, bytes } from '../format.js';
import { plots } from '../plot.js';
import { table } from '../table.js';
import { runAction, openDialog, button, empty, facts, shareBar, link } from '../parts.js';
import { columns } from './types.js';

const drainButton = () => openDialog({
  title: 'Drain the broker?', danger: true, button: 'Drain and stop',
  body: html`<p>It accepts no more jobs, waits for its present jobs to end, and stops, as on SIGTERM. This cannot be undone.</p>`,
  go: () => runAction(() => call('POST', '/v1/drain'), 'The broker is draining and then stops.'),
});

export function below() {
  const v = snapshot.value, l = v.ledger, s = status.value, limits = s?.limits ?? {};
  return html`${plots(series)}
    <section><h2>Types with most to do ${v.types > v.top.length && html`<a class="more" href=${link(['types'])}>all ${count(v.types)}</a>`}</h2>
      ${v.top.length ? table('Types with most to do', columns.filter(c => c.name !== 'Trend'), v.top, t => t.type)
        : empty('No job has come and no worker has joined.', html`Try ${' '}<code>gloom work echo -- cat</code>${' '} and ${' '}<code>gloom submit echo hello</code>.`)}</section>
    <div class="two">
      <section><h2>Where all jobs are</h2>
        <p class="ledger">${count(l.submitted)} submitted =
          ${[['delayed', l.delayed], ['queued', l.queued], ['running', l.running], ['answered', l.answered], ['failed', l.failed], ['cancelled', l.cancelled], ['expired', l.expired], ['discarded', l.discarded]]
            .map(([k, n], i) => html`${i ? ' + ' : ' '}<span>${count(n)} ${k}</span>`)}</p>
        <p class="note">${v.imbalance ? html`<b class="severe">It is off by ${count(v.imbalance)}: this is a bug.</b>` : 'It adds up: no job is lost.'}</p></section>
      <section><h2>Limits</h2><div class="shares">
        ${shareBar('Memory', v.memory_bytes, limits.max_memory, bytes)}
        ${shareBar('Jobs', v.jobs, limits.max_jobs, count)}
        ${shareBar('Connections', v.connections, limits.max_conns, count)}
        ${shareBar('Unread answers', v.unread_bytes, limits.max_unread, bytes)}</div></section>
    </div>
    ${s && html`<footer>${facts([['Version', s.version], ['Up for', duration(currentAge(s, s.uptime_seconds))], ['Types', count(v.types)], ['Groups', count(v.groups)]])}${!v.draining && button('Drain', drainButton, { danger: true })}</footer>`}`;
}
