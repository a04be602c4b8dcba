// One type: whether its jobs progress, which workers serve it, and its jobs.
import { html } from '../html.js';
import { query, call, encode, segment, token } from '../api.js';
import { awaySince, RecentGrowth, Series, everySecond } from '../live.js';
import { count, plural, quantile, rate, duration } from '../format.js';
import { plots } from '../plot.js';
import { runAction, openDialog, button, empty, facts, place, link, pendingText } from '../parts.js';
import { typeGroups } from './groups.js';
import { jobTable } from './jobs.js';
import { workerTable } from './workers.js';
import { typeBadges, isUnserved } from './types.js';
import { findingList, findingsOf } from './findings.js';
import { submitTestJob } from './submit.js';

/** The figures of the shown type that have been collected so far. */
let typeHistory = newHistory('');

/** @param {string} name */
function newHistory(name) {
  const of = { name, at: 0, wait: new RecentGrowth(), run: new RecentGrowth(), series: new Series() };
  if (name) loadHistory(of);
  return of;
}

/** Puts the broker's history of the type before the figures collected here.
 * @param {any} of */
async function loadHistory(of) {
  const h = await call('GET', `/v1/history?type=${encode(of.name)}&since=6m`).catch(() => null);
  if (!h) return; // the broker is older than the page, and has no history
  const s = new Series(), step = h.step_ms / 1000, from = Date.parse(h.from) / 1000, live = of.series;
  const ms = (/** @type {number|null} */ v) => v === null ? null : v / 1000;
  for (let i = 0; i < h.in.length - 1; i++) { // the last step has not ended
    if (h.in[i] !== null) {
      s.push(from + (i + 1) * step, {
        in: h.in[i] / step, out: (h.answered[i] + h.failed[i] + h.other[i]) / step, failed: h.failed[i] / step, queued: h.queued[i], running: h.running[i],
        wait50: ms(h.wait_p50_ms[i]), wait95: ms(h.wait_p95_ms[i]), run50: ms(h.run_p50_ms[i]), run95: ms(h.run_p95_ms[i]),
      }, 2 * step);
    }
  }
  live.t.forEach((/** @type {number} */ t, /** @type {number} */ i) => s.push(t, Object.fromEntries(Object.entries(live.of).map(([k, v]) => [k, v[i]])), 2 * step));
  of.series = s;
}

/** @param {any} t */
function addSample(t) {
  if (typeHistory.name !== t.type) typeHistory = newHistory(t.type);
  const now = Date.now() / 1000;
  if (now - typeHistory.at < 0.5) return;
  if (typeHistory.at && now - typeHistory.at > 3) { // the tab was hidden
    typeHistory.series.gap = Infinity;
    loadHistory(typeHistory);
  }
  typeHistory.at = now;
  const w = typeHistory.wait.add(t.wait_log2_us ?? [], now), r = typeHistory.run.add(t.run_log2_us ?? [], now);
  typeHistory.series.push(now, awaySince.value ? {} : {
    ...t.rates, queued: t.queued, running: t.running,
    wait50: quantile(w, 0.5), wait95: quantile(w, 0.95), run50: quantile(r, 0.5), run95: quantile(r, 0.95),
  });
}

/** @param {any} t */
const typePath = t => '/v1/types/' + segment(t.type);

const setPaused = (/** @type {any} */ t, /** @type {string} */ to) => () => call('POST', `${typePath(t)}/${to}`);

/** @param {any} t */
export const pause = t => runAction(setPaused(t, 'pause'), `${t.type} is paused: running jobs continue, and no more are handed out.`, setPaused(t, 'resume'));

/** @param {any} t */
export const resume = t => runAction(setPaused(t, 'resume'), `${t.type} is resumed.`, setPaused(t, 'pause'));

/** @param {any} t */
export function editLimits(t) {
  const l = t.limits;
  openDialog({
    title: `Limits of ${t.type}`, button: 'Set', body: html`
      <p class="note">0 means no limit. They last until the broker ends, unless its file of limits has them.</p>
      <div class="pair">
        <label>Jobs at a time <input name="concurrency" type="number" min="0" step="1" defaultValue=${l.concurrency} /></label>
        <label>Jobs a second <input name="rate" type="number" min="0" step="any" defaultValue=${l.rate} /></label>
        <label>of them at once <input name="burst" type="number" min="0" step="1" defaultValue=${l.burst} /></label>
      </div>`,
    go: form => runAction(() => call('PUT', typePath(t) + '/limits', Object.fromEntries(['concurrency', 'rate', 'burst'].map(k => [k, +(form.get(k) || 0)]))),
      `The limits of ${t.type} are set.`, () => call('PUT', typePath(t) + '/limits', l)),
  });
}

/** @param {any} t */
export function forgetType(t) {
  const waits = t.queued + t.delayed;
  openDialog({
    title: `Forget ${t.type}?`, danger: true, button: 'Forget it',
    body: html`<p>${waits ? `${plural(waits, 'waiting job')} ${waits === 1 ? 'is' : 'are'} discarded, and the submitters are told. ` : ''}Failed jobs and outcomes that are kept are forgotten. What was counted stays in the totals. This cannot be undone.</p>`,
    go: () => runAction(() => call('DELETE', typePath(t) + '?jobs=true'), r => `${t.type} is forgotten, ${plural(r.discarded, 'job')} discarded.`),
  });
}

/** @param {any} t */
function editFairness(t) {
  const set = (/** @type {boolean} */ v) => call('PUT', typePath(t), { fair: v });
  runAction(() => set(!t.fair), t.fair ? `Groups of ${t.type} no longer take turns.` : `Groups of ${t.type} take turns now.`, () => set(t.fair));
}

/** Whether the token, if any, covers the type; a token may cover only some types. @param {string} name */
const maySubmit = name => !token.value || query('/v1/status?type=' + encode(name), 0).data?.scopes.includes('submit');

export function typeView() {
  const name = place.value.path[1] ?? '';
  const r = query('/v1/types/' + segment(name), 1000), groups = typeGroups(name);
  everySecond.value;
  const t = r.data;
  const test = maySubmit(name) && button('Test job', () => submitTestJob(name), { scope: 'submit' });
  if (!t) {
    return html`<header class="bar"><h1 class="name">${name}</h1>${test}</header>
      ${r.code === 404 ? empty('No job or worker of this type is or was here lately.', html`It may be misspelt. <a href=${link(['types'], { filter: name })}>Types with this in their name</a>`) : pendingText(r)}`;
  }
  addSample(t);
  const l = t.ledger;
  return html`<header class="bar"><h1 class="name">${t.type}</h1><span class="marks">${typeBadges(t)}</span>
      <div class="actions">
        ${t.paused ? button('Resume', () => resume(t), { first: true }) : button('Pause', () => pause(t))}
        ${button('Limits', () => editLimits(t))}
        ${button(t.fair ? 'No turns' : 'Take turns', () => editFairness(t), { title: 'whether the groups of its jobs take turns' })}
        ${test}
        ${!t.workers && !t.running && !t.paused && button('Forget', () => forgetType(t), { danger: true })}
      </div></header>
    ${findingList(findingsOf('type', t.type), true)}
    <dl class="now">
      <div><dt>Waiting</dt><dd>${count(t.queued)}</dd><dd class="note">${t.queued ? `oldest ${duration(t.oldest_seconds)}` : 'nothing is waiting'}${t.delayed ? `, ${count(t.delayed)} delayed` : ''}</dd></div>
      <div><dt>Running</dt><dd>${count(t.running)}</dd><dd class="note">${t.limits.concurrency ? `at most ${count(t.limits.concurrency)}` : 'no limit'}</dd></div>
      <div class=${isUnserved(t) ? 'bad' : ''}><dt>Workers</dt><dd>${count(t.workers)}</dd><dd class="note">${t.workers ? `${count(t.idle)} with room` : 'none has joined'}</dd></div>
      <div><dt>In</dt><dd>${rate(t.rates?.in)}<small> /s</small></dd><dd class="note">${count(l.submitted)} since the start</dd></div>
      <div><dt>Out</dt><dd>${rate(t.rates?.out)}<small> /s</small></dd><dd class="note">${count(l.answered)} answered</dd></div>
      <div class=${t.rates?.failed ? 'bad' : ''}><dt>Failed</dt><dd>${count(l.failed)}</dd><dd class="note">${t.dead ? html`<a href=${link(['dead', t.type])}>${count(t.dead)} kept</a>` : 'none kept'}</dd></div>
    </dl>
    ${plots(typeHistory.series, t.type)}
    <section><h2>Workers</h2>${workerTable({ type: t.type })}</section>
    ${groups}
    <section><h2>Jobs</h2>${jobTable({ type: t.type })}</section>
    <section><h2>Since the start</h2>${facts([['Submitted', count(l.submitted)], ['Handed out', count(t.dispatched)], ['Handed out again', count(t.requeued)],
      ['Overdue runs', count(t.overdue)], ['Answered', count(l.answered)], ['Failed', count(l.failed)], ['Cancelled', count(l.cancelled)], ['Expired', count(l.expired)],
      ['Discarded', count(l.discarded)], ['Submitters with jobs', count(t.submitters)]])}</section>`;
}
