// The overview: the findings and the current figures.
import { html, painted } from '../html.js';
import { current, snapshot, everySecond } from '../live.js';
import { count, plural, rate, duration } from '../format.js';
import { lazyView, link } from '../parts.js';
import { findingsHeading } from '../verdict.js';
import { words } from './findings.js';

/** The part that is loaded after the first paint. */
const below = lazyView(() => painted.then(() => import('./below.js')).then(m => m.below), '');

export function overview() {
  const v = snapshot.value;
  everySecond.value;
  if (!v) return html`<h1>Overview</h1><div class="empty loading" role="status"><p>Asking the master…</p></div>`;
  const s = v.states, l = v.ledger, jobs = (/** @type {string} */ status, /** @type {any} */ text) => html`<a href=${link(['jobs'], { status })}>${text}</a>`;
  return html`${findingsHeading(`${count(l.waiting)} waiting, ${count(l.running)} running, ${plural(v.workers, 'worker')}; ${v.durable ? 'jobs are kept in Redis' : 'jobs are in memory only: a restart loses them'}`, words)}
    <dl class="now">
      <div><dt>Waiting</dt><dd>${count(l.waiting)}</dd><dd class="note">${l.waiting ? `oldest ${duration(v.oldest_age)}` : 'nothing is waiting'}${s.retrying ? html`, ${jobs('retrying', `${count(s.retrying)} retrying`)}` : ''}</dd></div>
      <div><dt>Running</dt><dd>${count(l.running)}</dd><dd class="note">${v.slots ? `of ${plural(v.slots, 'slot')}` : 'no worker is registered'}</dd></div>
      <div><dt>In</dt><dd>${rate(current('in'))}<small> /s</small></dd><dd class="note">${count(l.enqueued)} since the start</dd></div>
      <div><dt>Out</dt><dd>${rate(current('out'))}<small> /s</small></dd><dd class="note">${count(l.done)} done</dd></div>
      <div class=${s.error ? 'bad' : ''}><dt>Error</dt><dd>${count(s.error)}</dd><dd class="note">${s.error ? jobs('error', 'kept, to look at and to retry') : 'none is kept'}</dd></div>
    </dl>
    ${below()}`;
}
