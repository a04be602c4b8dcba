// What is wrong, and what one may do about it.
import { html } from '../html.js';
import { status, text } from '../api.js';
import { look } from '../live.js';
import { bytes, count, plural, time } from '../format.js';
import { act, button, to } from '../parts.js';
import { lately, rates } from '../look.js';
import { handlerLink, typeLink } from '../names.js';

/** Starts or stops the handing out of jobs at this daemon. @param {boolean} on */
export const handOut = on => act(() => text('POST', on ? '/start' : '/stop', ''), on ? 'Jobs are handed out again.' : 'No more jobs are handed out here.', () => handOut(!on));

const few = 5;

/** How many jobs of a type did not succeed, and whether that is most. @param {any} t */
const bad = t => t.failed + t.abandoned;

/** @param {any} t */
const fails = t => bad(t) > 1 && bad(t) >= t.ok;

/** @returns {import('../verdict.js').Finding[]} */
export function findings() {
  const v = look.value;
  if (!v) return [];
  /** @type {import('../verdict.js').Finding[]} */
  const all = [];
  const add = (/** @type {import('../verdict.js').Finding['severity']} */ severity, /** @type {any} */ what, /** @type {any} */ advice, /** @type {any} */ act_) => all.push({ severity, what, advice, act: act_ });
  const l = v.ledger, limits = status.value?.limits ?? {}, j = v.journal;
  for (const s of v.stores)
    if (s.error) add('severe', html`<b>The store <span class="name">${s.name}</span> ${s.away ? 'is away' : 'refuses something'}</b>: ${s.error}`, s.away ? 'Jobs are still accepted: they wait in the journal.' : 'It costs no job: it is tried again.');
  if (v.not_ready && !v.broker_away && !v.stores.some((/** @type {any} */ s) => s.error)) add('severe', html`<b>The daemon is not ready</b>: ${v.not_ready}`, '');
  if (v.broker_away) add('severe', html`<b>The broker is away</b>: ${v.broker_away}`, 'Jobs for Gloom workers wait. All others go on.');
  if (v.imbalance) add('severe', html`<b>The counts are off by ${plural(Math.abs(v.imbalance), 'job')}</b>`, 'This is a bug.');
  for (const t of v.types.filter((/** @type {any} */ t) => !t.lang && t.waiting).slice(0, few))
    add('severe', html`<b>${typeLink(t.type)}</b>: ${plural(t.waiting, 'job')} ${t.waiting === 1 ? 'waits' : 'wait'}, and the type has no handler`, html`${handlerLink(t.type, 'Add one')}: they run at once then.`);
  if (v.unhandled > few) add('severe', html`<b>${plural(v.unhandled - few, 'more type')}</b> without a handler`, html`<a href=${to(['types'])}>The types</a>`);
  if (!v.handing_out) add('warning', html`<b>This daemon hands out no jobs</b>`, 'It was stopped. It still accepts jobs, and other daemons run them.', button('Start', () => handOut(true)));
  if (l?.set_aside) add('warning', html`<b>${plural(l.set_aside, 'job')} set aside</b>, which no store would take`, html`<a href=${to(['journal'])}>The journal</a> has them, and can put them back.`);
  else if (j.aside_files) add('warning', html`<b>${plural(j.aside_files, 'file')}</b> of the journal set aside, for damage`, html`<a href=${to(['journal'])}>The journal</a> tells more.`);
  if (j.age_ms > 60_000) add('warning', html`<b>The journal is behind</b>: ${plural(j.jobs, 'job')} in it, the oldest for ${time(j.age_ms / 1000)}`, 'They run once a store has them.');
  if (j.bytes >= 0.85 * limits.journal_max) add('warning', html`<b>The journal is close to --journal-max</b>: ${bytes(j.bytes)} of ${bytes(limits.journal_max)}`, 'Beyond it, new jobs are refused.');
  const failing = v.types.filter(fails).slice(0, few);
  for (const t of failing) add('warning', html`<b>${typeLink(t.type)}</b>: ${plural(bad(t), 'job')} did not succeed, ${count(t.ok)} did`, html`<a href=${to(['jobs'], { of: t.type })}>The jobs</a> tell why.`);
  if (!failing.length && lately.failed > 1 && lately.failed * 2 > lately.ended) add('warning', html`<b>${count(lately.failed)} of ${plural(lately.ended, 'run')}</b> that ended here in the last seconds did not succeed`, html`<a href=${to(['jobs'])}>The jobs</a> tell why.`);
  const out = rates().out;
  if (limits.concurrency && v.batches >= limits.concurrency && l?.waiting) add('info', html`<b>All ${plural(limits.concurrency, 'slot')} here are taken</b>, and ${plural(l.waiting, 'job')} ${l.waiting === 1 ? 'waits' : 'wait'}`, out ? `At today's rate they are through in ${time(l.waiting / out)}.` : 'A larger --concurrency, or another daemon, would help.');
  return all;
}
