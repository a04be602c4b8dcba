// The part of the overview below the figures: plots and the busiest targets.
import { html } from '../html.js';
import { status } from '../api.js';
import { currentAge, snapshot, series } from '../live.js';
import { count, rate, duration } from '../format.js';
import { Plot } from '../plot.js';
import { empty, facts, link } from '../parts.js';
import { targetTable } from './targets.js';

export function below() {
  const v = snapshot.value, s = status.value, plot = (/** @type {string} */ title, /** @type {any} */ show, /** @type {number} */ least, /** @type {string} */ note, /** @type {any[]} */ lines) =>
    html`<${Plot} title=${title} t=${series.t} of=${series.of} show=${show} least=${least} note=${note} lines=${lines} />`;
  return html`<div class="plots">
      ${plot('Does it keep up?', rate, 5, 'rows per second', [{ name: 'accepted', key: 'in', color: '--blue' }, { name: 'ended', key: 'out', color: '--green', dash: [5, 3] }, { name: 'failed', key: 'failed', color: '--red' }])}
      ${plot('What piles up?', count, 5, 'rows', [{ name: 'waiting', key: 'queued', color: '--amber', fill: true }, { name: 'running', key: 'running', color: '--blue' }])}
      ${plot('How long does it take?', duration, 0.001, 'half and 95 of 100 rows ran for less, over the last 10 s', [{ name: 'oldest waiting', key: 'wait95', color: '--amber' }, { name: 'run p50', key: 'run50', color: '--blue' }, { name: 'p95', key: 'run95', color: '--blue', dash: [4, 3] }])}
    </div>
    <section><h2>Busiest targets <a class="more" href=${link(['targets'])}>all</a></h2>
      ${v.busiest.length ? targetTable(v.busiest.slice(0, 10)) : empty('There is no target.', html`When a jobd whose <code>master_host</code> names this master registers, its <code>[targets]</code> appear here.`)}</section>
    ${s && html`<footer>${facts([['Version', s.version], ['Up for', duration(currentAge(s, s.uptime))]])}</footer>`}`;
}
