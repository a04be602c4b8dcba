// The overview: whether everything is healthy, and how many jobs wait and where.
import { html, painted, signal } from '../html.js';
import { awaySince, snapshot, everySecond } from '../live.js';
import { count, rate, duration, plural } from '../format.js';
import { button, lazyView, link } from '../parts.js';
import { findingList, severityCounts } from './findings.js';

/** How many findings are shown until the user asks for more, which holds for the rest of the visit. */
const maxAtFirst = 8, all = signal(false);

function verdictView() {
  const v = snapshot.value, { severe, warning: rest } = severityCounts(), { items, more: untold = 0 } = v.findings;
  const list = /** @type {any[]} */ (all.value ? items : items.slice(0, maxAtFirst)), left = items.length + untold - list.reduce((n, f) => n + 1 + (f.alike ?? 0), 0);
  let word = 'Everything is healthy', kind = 'ok', more = '';
  if (awaySince.value) [word, kind] = ['Not known: the broker is away', 'severe'];
  else if (v.imbalance) [word, kind] = ['The ledger does not add up', 'severe'];
  else if (severe) [word, kind, more] = [severe === 1 ? 'One thing is wrong' : `${count(severe)} things are wrong`, 'severe', rest ? `${count(rest)} more ${rest === 1 ? 'needs' : 'need'} attention; ` : ''];
  else if (rest) [word, kind] = [rest === 1 ? 'One thing needs attention' : `${count(rest)} things need attention`, 'warning'];
  return html`<div class="verdict"><h1 class=${kind}>${word}</h1>
    <p class="note">${more}${count(v.ledger.queued)} waiting, ${count(v.ledger.running)} running, ${plural(v.workers, 'worker')}, ${plural(v.submitters, 'submitter')}</p>
    ${button('Submit a test job', testJob, { scope: 'submit' })}</div>
    ${findingList(list)}
    ${left > 0 && html`<p class="note">${all.value || items.length <= maxAtFirst ? html`and ${count(left)} more: <code>gloom findings</code>` : html`<button type="button" onClick=${() => { all.value = true; }}>and ${count(left)} more</button>`}</p>`}`;
}

const testJob = async () => (await import('./submit.js')).submitTestJob();

/** The part below the figures, which is loaded after the first paint. */
const below = lazyView(() => painted.then(() => import('./below.js')).then(m => m.below), '');

export function overviewView() {
  const v = snapshot.value;
  everySecond.value;
  if (!v) return html`<div class="empty loading" role="status"><p>Asking the broker…</p></div>`;
  const l = v.ledger;
  return html`${verdictView()}
    <dl class="now">
      <div><dt>Waiting</dt><dd>${count(l.queued)}</dd><dd class="note">${l.queued ? `oldest ${duration(v.oldest_seconds)}` : 'nothing is waiting'}${l.delayed ? `, ${count(l.delayed)} delayed` : ''}</dd></div>
      <div><dt>Running</dt><dd>${count(l.running)}</dd><dd class="note">on ${plural(v.workers, 'worker')}</dd></div>
      <div><dt>In</dt><dd>${rate(v.rates?.in)}<small> /s</small></dd><dd class="note">${count(l.submitted)} since the start</dd></div>
      <div><dt>Out</dt><dd>${rate(v.rates?.out)}<small> /s</small></dd><dd class="note">${count(l.answered)} answered</dd></div>
      <div class=${v.failed_hour ? 'bad' : ''}><dt>Failed</dt><dd>${count(v.failed_hour)}</dd><dd class="note">in the last hour, ${v.dead ? html`<a href=${link(['dead'])}>${count(v.dead)} kept</a>` : 'none kept'}</dd></div>
    </dl>
    ${below()}`;
}
