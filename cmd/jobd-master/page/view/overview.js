// The overview: findings and current figures.
import { html, painted } from '../html.js';
import { current, secondsSince, snapshot, everySecond } from '../live.js';
import { count, plural, rate, duration } from '../format.js';
import { lazyView } from '../parts.js';
import { findingsHeading } from '../verdict.js';
import { atLeast, words } from './findings.js';

/** The part that is loaded after the first paint. */
const below = lazyView(() => painted.then(() => import('./below.js')).then(m => m.below), '');

export function overview() {
  const v = snapshot.value;
  everySecond.value;
  if (!v) return html`<h1>Overview</h1><div class="empty loading" role="status"><p>Asking the master…</p></div>`;
  return html`${findingsHeading(`${atLeast(v.waiting, v.more)} waiting, ${count(v.running)} running, ${plural(v.workers, 'worker')}, ${plural(v.targets, 'target')}`, words)}
    <dl class="now">
      <div><dt>Waiting</dt><dd>${atLeast(v.waiting, v.more)}</dd><dd class="note">${v.waiting ? v.oldest ? `oldest ${duration(Math.floor(secondsSince(v.oldest)))}` : 'rows of the tables' : 'nothing is waiting'}${v.queued ? `, ${count(v.queued)} accepted` : ''}</dd></div>
      <div><dt>Running</dt><dd>${count(v.running)}</dd><dd class="note">of ${plural(v.slots, 'slot')}</dd></div>
      <div><dt>In</dt><dd>${rate(current('in'))}<small> /s</small></dd><dd class="note">${count(v.accepted)} accepted so far</dd></div>
      <div><dt>Out</dt><dd>${rate(current('out'))}<small> /s</small></dd><dd class="note">${count(v.ok)} succeeded</dd></div>
      <div class=${v.fail ? 'bad' : ''}><dt>Failed</dt><dd>${count(v.fail)}</dd><dd class="note">since their workers started</dd></div>
      ${v.manual > 0 && html`<div><dt>By hand</dt><dd>${count(v.manual)}</dd><dd class="note">waiting to be started</dd></div>`}
    </dl>
    ${below()}`;
}
