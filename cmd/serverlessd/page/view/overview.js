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
  if (!v) return html`<h1>Overview</h1><div class="empty loading" role="status"><p>Asking the daemon…</p></div>`;
  const l = v.ledger ?? {}, lost = v.ledger && l.failed + l.abandoned, jobs = (/** @type {string} */ state, /** @type {any} */ text) => html`<a href=${link(['jobs'], { state })}>${text}</a>`;
  return html`${findingsHeading(`${v.ledger ? `${count(l.waiting)} waiting, ${count(l.running)} running` : 'the jobs in the stores are not known'}; ${plural(v.journal.jobs, 'job')} in the journal`, words)}
    <dl class="now">
      <div><dt>Waiting</dt><dd>${count(l.waiting)}</dd><dd class="note">${l.waiting ? `oldest ${duration(l.oldest_ms / 1000)}` : 'nothing is waiting'}${l.deferred ? html`, ${jobs('deferred', `${count(l.deferred)} deferred`)}` : ''}</dd></div>
      <div><dt>Running</dt><dd>${count(l.running)}</dd><dd class="note">${v.handing_out ? `${plural(v.batches, 'batch', 'batches')} here` : 'stopped here'}</dd></div>
      <div><dt>In</dt><dd>${rate(current('in'))}<small> /s</small></dd><dd class="note">${count(v.added)} since the start, here</dd></div>
      <div><dt>Out</dt><dd>${rate(current('out'))}<small> /s</small></dd><dd class="note">${count(l.ok)} OK, ever</dd></div>
      <div class=${lost ? 'bad' : ''}><dt>Failed</dt><dd>${count(lost)}</dd><dd class="note">${lost ? html`${jobs('failed', `${count(l.failed)} failed`)}${l.abandoned ? html`, ${jobs('abandoned', `${count(l.abandoned)} abandoned`)}` : ''}` : v.ledger && 'none, ever'}</dd></div>
    </dl>
    ${v.counted_ms > 5000 && html`<p class="note">Jobs were counted ${duration(Math.round(v.counted_ms / 1000))} ago: counting takes at most a hundredth of the time.</p>`}
    ${below()}`;
}
