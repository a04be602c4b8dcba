// What is wrong, and what one may do about it.
import { html } from '../html.js';
import { asked, status } from '../api.js';
import { look } from '../live.js';
import { count, plural, time } from '../format.js';
import { to } from '../parts.js';
import { rows } from '../body.js';
import { lately, rates } from '../look.js';

/** The jobs of a name that wait. @param {any} n */
export const waiting = n => n.states.queued + n.states.retrying;

export const nameLink = (/** @type {string} */ name) => html`<a class="name" href=${to(['jobs'], { name })}>${name}</a>`;

const readRules = rows('constraints');

/** The constraints, each with its matcher as it was written. @param {number} [every] */
export const rules = (every = 4000) => asked('/v1/constraints', every, readRules);

export const ruleLink = (/** @type {string} */ id) => html`<a class="name" href=${to(['constraints'], { id })}>${id}</a>`;

/** The jobs that wait and that a constraint is about. @param {any} c */
export const heldJobs = c => to(['jobs'], { status: 'queued', match: c.raw.match });

const few = 5;

/** @returns {import('../verdict.js').Finding[]} */
export function findings() {
  const v = look.value;
  if (!v) return [];
  /** @type {import('../verdict.js').Finding[]} */
  const all = [];
  const add = (/** @type {import('../verdict.js').Finding['severity']} */ severity, /** @type {any} */ what, /** @type {any} */ advice) => all.push({ severity, what, advice });
  const l = v.ledger, limits = status.value?.limits ?? {}, unserved = v.names.filter((/** @type {any} */ n) => !n.served && waiting(n));
  if (v.store_away) add('severe', html`<b>The store is away</b>: ${v.store_away}`, 'Nothing is enqueued or handed out until it is back; reports of workers wait for a while.');
  for (const n of unserved.slice(0, few)) add('severe', html`<b>${nameLink(n.name)}</b>: ${plural(waiting(n), 'job')} ${waiting(n) === 1 ? 'waits' : 'wait'}, and no worker serves the name`, html`Start one that takes it, or look at the names that <a href=${to(['workers'])}>the workers</a> serve.`);
  if (unserved.length > few) add('severe', html`<b>${plural(unserved.length - few, 'more name')}</b> that no worker serves`, html`They are marked in <a href=${to(['names'])}>the names</a>.`);
  const held = (rules().data ?? []).filter((/** @type {any} */ c) => c.enabled && c.blocked > 0).sort((/** @type {any} */ a, /** @type {any} */ b) => b.blocked - a.blocked);
  for (const c of held.slice(0, few)) add('warning', html`<b>${ruleLink(c.id)}</b>: the constraint holds back <a href=${heldJobs(c)}>${plural(c.blocked, 'job')}</a>`, c.concurrency === 0 ? 'It lets none run.' : limit(c));
  if (held.length > few) add('warning', html`<b>${plural(held.length - few, 'more constraint')}</b> that hold jobs back`, html`<a href=${to(['constraints'])}>The constraints</a>`);
  const failing = v.names.filter((/** @type {any} */ n) => n.states.error > 1 && n.states.error >= n.states.done);
  for (const n of failing.slice(0, few)) add('warning', html`<b>${nameLink(n.name)}</b>: <a href=${to(['jobs'], { name: n.name, status: 'error' })}>${plural(n.states.error, 'job')}</a> ended with an error, ${n.states.done ? `${count(n.states.done)} done` : 'none is done'}`, 'Their messages tell why; once that is mended, retry all that fit.');
  if (!failing.length && lately.failed > 1 && lately.failed * 2 > lately.ended) add('warning', html`<b>${count(lately.failed)} of ${plural(lately.ended, 'job')}</b> that ended in the last seconds ended with an error`, html`<a href=${to(['jobs'], { status: 'error' })}>Those with an error</a>`);
  if (v.paused) add('warning', html`<b>${plural(v.paused, 'worker')}</b> of ${count(v.workers)} ${v.paused === 1 ? 'gets' : 'get'} no jobs for now`, html`<a href=${to(['workers'])}>The workers</a> tell why: they are busy, or cannot be reached.`);
  for (const [name, n, most] of /** @type {[string, number, number][]} */ ([['max-jobs', l.waiting + l.running, limits.max_jobs], ['max-bytes', v.bytes, limits.max_bytes]]))
    if (n >= 0.85 * most) add('warning', html`<b>The master is close to --${name}</b>: ${Math.floor(100 * n / most)} %`, 'Beyond it, new jobs are refused.');
  const out = rates().out, most = v.slots && v.busy >= v.slots && l.waiting;
  if (most) add('info', html`<b>All ${plural(v.slots, 'slot')} of the workers are taken</b>, and ${plural(l.waiting, 'job')} ${l.waiting === 1 ? 'waits' : 'wait'}`, out ? `At today's rate they are through in ${time(l.waiting / out)}.` : 'More workers would help.');
  return all;
}

/** What a constraint allows, in words. @param {any} c */
export const limit = c => [c.concurrency !== null && `${count(c.concurrency)} at a time`, c.rate !== null && `${count(c.rate)} a second${c.burst > 1 ? `, ${count(c.burst)} at once` : ''}`].filter(Boolean).join(', ') + (c.per ? ` for each ${c.per}` : '');
