// Is all well? What waits, and where?
import { html, painted, signal } from '../html.js';
import { asked, enc } from '../api.js';
import { away, lasted, look, second } from '../live.js';
import { count, rate, time, plural } from '../format.js';
import { badge, button, later, to, typeLink } from '../parts.js';

/** How much is wrong, by severity. @returns {{severe: number, warning: number}} */
export const wrongs = () => look.value?.findings.counts ?? { severe: 0, warning: 0 };

/** How many findings are shown before somebody wants more, which they do for the visit. */
const few = 8, all = signal(false);

const words = /** @type {Record<string, string>} */ ({ severe: 'severe', warning: 'warning', info: 'note' });

/** @param {any} f */
function subject(f) {
  if (f.kind === 'type') return typeLink(f.subject);
  if (f.kind === 'group') return html`<a class="name" href=${to(['jobs'], { group: f.subject })}>${f.subject}</a>`;
  if (f.kind === 'client') return html`<a class="name" href=${to(['jobs'], { [f.worker ? 'worker' : 'submitter']: f.number })}>${f.subject}</a>`;
  return html`<span class="name">${f.kind === 'broker' ? 'The broker' : f.subject}</span>`;
}

/** @param {any[]} list @param {boolean} [own] on the page of what they are about */
export const findingList = (list, own = false) => list.length > 0 && html`<ul class="findings">${list.map(f => html`<li key=${[f.kind, f.subject, f.number, f.cause, f.limit].join(' ')} class=${f.severity}>
  ${badge(words[f.severity] ?? f.severity, f.severity)}
  <div><p>${own ? '' : html`<b>${subject(f)}</b>: `}${f.finding}</p>${f.advice && html`<p class="note">${f.advice}${f.advice.includes('gloom dead') && html` · <a href=${to(['dead', f.subject])}>its dead letters</a>`}</p>`}</div>
  <span class="note num">${time(Math.floor(lasted(f.since)))}</span></li>`)}</ul>`;

/** What was found of a type or a group: most often all findings there are come with each look.
 * @param {string} kind @param {string} name @returns {any[]} */
export function found(kind, name) {
  const told = look.value?.findings, some = told && !told.more ? told : asked('/v1/findings?subject=' + enc(name)).data;
  return (some?.items ?? []).filter((/** @type {any} */ f) => f.kind === kind && f.subject === name);
}

function verdict() {
  const v = look.value, { severe, warning: rest } = wrongs(), { items, more: untold = 0 } = v.findings;
  const list = all.value ? items : items.slice(0, few), left = items.length + untold - list.length;
  let word = 'All is well', kind = 'ok', more = '';
  if (away.value) [word, kind] = ['Not known: the broker is away', 'severe'];
  else if (v.imbalance) [word, kind] = ['The ledger does not add up', 'severe'];
  else if (severe) [word, kind, more] = [severe === 1 ? 'One thing is wrong' : `${count(severe)} things are wrong`, 'severe', rest ? `${count(rest)} more ${rest === 1 ? 'wants' : 'want'} a look; ` : ''];
  else if (rest) [word, kind] = [rest === 1 ? 'One thing wants a look' : `${count(rest)} things want a look`, 'warning'];
  return html`<div class="verdict"><h1 class=${kind}>${word}</h1>
    <p class="note">${more}${count(v.ledger.queued)} waiting, ${count(v.ledger.running)} running, ${plural(v.workers, 'worker')}, ${plural(v.submitters, 'submitter')}</p>
    ${button('Submit a test job', testJob, { scope: 'submit' })}</div>
    ${findingList(list)}
    ${left > 0 && html`<p class="note">${all.value || items.length <= few ? html`and ${count(left)} more: <code>gloom findings</code>` : html`<button type="button" onClick=${() => { all.value = true; }}>and ${count(left)} more</button>`}</p>`}`;
}

const testJob = async () => (await import('./submit.js')).testJob();

/** What is not needed to see whether all is well. */
const below = later(() => painted.then(() => import('./below.js')).then(m => m.below), '');

export function overview() {
  const v = look.value;
  second.value;
  if (!v) return html`<div class="empty loading" role="status"><p>Asking the broker…</p></div>`;
  const l = v.ledger;
  return html`${verdict()}
    <dl class="now">
      <div><dt>Waiting</dt><dd>${count(l.queued)}</dd><dd class="note">${l.queued ? `oldest ${time(v.oldest_seconds)}` : 'nothing waits'}${l.delayed ? `, ${count(l.delayed)} delayed` : ''}</dd></div>
      <div><dt>Running</dt><dd>${count(l.running)}</dd><dd class="note">on ${plural(v.workers, 'worker')}</dd></div>
      <div><dt>In</dt><dd>${rate(v.rates?.in)}<small> /s</small></dd><dd class="note">${count(l.submitted)} since the start</dd></div>
      <div><dt>Out</dt><dd>${rate(v.rates?.out)}<small> /s</small></dd><dd class="note">${count(l.answered)} answered</dd></div>
      <div class=${v.failed_hour ? 'bad' : ''}><dt>Failed</dt><dd>${count(v.failed_hour)}</dd><dd class="note">in the last hour, ${v.dead ? html`<a href=${to(['dead'])}>${count(v.dead)} kept</a>` : 'none kept'}</dd></div>
    </dl>
    ${below()}`;
}
