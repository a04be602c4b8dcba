// The part of the overview that is below the figures: plots, types, the ledger and the limits.
import { html } from '../html.js';
import { status } from '../api.js';
import { currentAge, snapshot, series } from '../live.js';
import { bytes, count, duration } from '../format.js';
import { plots } from '../plot.js';
import { empty, facts, shareBar, link } from '../parts.js';
import { typeTable } from './types.js';

export function below() {
  const v = snapshot.value, l = v.ledger, s = status.value, limits = s?.limits ?? {};
  return html`${plots(series)}
    <section><h2>Types with most jobs <a class="more" href=${link(['types'])}>all ${count(v.all_types)}</a></h2>
      ${v.types.length ? typeTable(v.types.slice(0, 10)) : empty('There is no job and no handler.', html`Add a job: <code>curl --data-binary hello http://${location.host}/acme/job/greet</code>`)}</section>
    <div class="two">
      ${l && html`<section><h2>Where all jobs are</h2>
        <p class="ledger">${count(l.added)} added =
          ${['waiting', 'deferred', 'running', 'ok', 'failed', 'abandoned', 'expired', 'deleted', 'set_aside'].map((k, i) => html`${i ? ' + ' : ' '}<span>${count(l[k] ?? 0)} ${k.replace('_', ' ')}</span>`)}</p>
        <p class="note">${v.imbalance ? html`<b class="severe">It is off by ${count(v.imbalance)}: this is a bug.</b>` : 'Ended jobs that were forgotten are still counted.'} ${count(v.retries)} runs of this daemon were followed by a retry.</p></section>`}
      <section><h2>Limits</h2><div class="shares">
        ${shareBar('Journal', v.journal.bytes, limits.journal_max, bytes)}
        ${shareBar('Running batches', v.batches, limits.concurrency, count)}
        ${shareBar('Contexts', v.contexts, limits.contexts, count)}</div></section>
    </div>
    ${s && html`<footer>${facts([['Version', s.version], ['Up for', duration(currentAge(s, s.uptime))], ['Languages', s.langs?.join(', ')], ['Sysid', v.stores.map((/** @type {any} */ x) => x.sysid).join(', ')]])}</footer>`}`;
}
