// Findings and actions on targets.
import { html } from '../html.js';
import { call, segment } from '../api.js';
import { count, plural } from '../format.js';
import { runAction, openDialog, button, link } from '../parts.js';

/** @param {string} target */
export const targetPath = target => '/v1/targets/' + segment(target);

/** @param {string} target @param {Record<string, any>} [query] @param {any} [text] */
export const targetLink = (target, query, text) => html`<a class="name" href=${link(['target', target], query)}>${text ?? target}</a>`;

/** A number of rows; more says that it is a lower bound. @param {number} n @param {boolean} more */
export const atLeast = (n, more) => count(n) + (more ? '+' : '');

/** @param {string} target @param {string} verb */
const sendVerb = (target, verb) => call('POST', `${targetPath(target)}/${verb}`);

/** @param {string} target */
const pause = target => runAction(() => sendVerb(target, 'pause'), `${target} is paused: running rows continue.`, () => sendVerb(target, 'resume'));
/** @param {string} target */
const resume = target => runAction(() => sendVerb(target, 'resume'), `${target} is resumed.`, () => sendVerb(target, 'pause'));
/** @param {string} target */
const poke = target => runAction(() => sendVerb(target, 'poke'), r => r.served ? `${target} is poked.` : `No worker serves ${target}: the poke is remembered.`);

/** The buttons for a target. @param {any} t */
export const targetButtons = t => html`${t.paused_by > 0 && button('Resume', () => resume(t.target))} ${t.workers > t.paused_by && button('Pause', () => pause(t.target))}
  ${button('Poke', () => poke(t.target), { title: 'let workers fetch waiting rows' })}`;

/** A sentence about the outcomes of rows that were run by hand. @param {any} r */
function outcomeText(r) {
  const jobs = Object.values(r.jobs), ok = jobs.filter(j => j.result === 'ok').length, errors = Object.entries(r.errors), n = jobs.length - ok, on = r.running.length;
  const refused = errors.length > 0 && `${count(errors.length)} not run: ${errors.slice(0, 3).map(([id, why]) => `${id}, ${why}`).join('; ')}`;
  if (refused && !jobs.length && !on) throw new Error(refused);
  return [ok && `${plural(ok, 'row')} succeeded`, n && `${plural(n, 'row')} failed`, on && `${plural(on, 'row')} ${on === 1 ? 'is' : 'are'} still running`, refused].filter(Boolean).join('; ') + '.';
}

/** Runs rows of a target by hand: those with the given ids, or with ids that the user types.
 * @param {string} target @param {number[]} [ids] @param {() => any} [then] */
export const runByHand = (target, ids, then) => openDialog({
  title: ids ? `Run ${plural(ids.length, 'row')} by hand?` : 'Run rows by hand', button: 'Run',
  body: html`<p>One of the workers of <b class="name">${target}</b> runs ${ids ? html`<span class="id">${ids.slice(0, 20).join(', ')}${ids.length > 20 && ' …'}</span>` : 'them'}.
      Rows whose status is <code>manual</code> are run; one that waits, and rows of other targets, become <code>ignored</code>.</p>
    ${!ids && html`<label>Ids, separated by spaces <input name="ids" required pattern="\\s*\\d{1,15}([\\s,]+\\d{1,15})*[\\s,]*" inputmode="numeric" autocomplete="off" /></label>`}`,
  go: form => runAction(() => call('POST', targetPath(target) + '/run', { ids: ids ?? String(form.get('ids')).match(/\d+/g)?.map(Number) }), outcomeText).then(then),
});

/** @type {import('../verdict.js').Words} */
export const words = {
  link: f => f.kind === 'target' ? targetLink(f.subject) : html`<span class="name">${f.subject}</span>`,
  help: {
    paused: f => button('Resume', () => resume(f.subject)),
    unpoked: f => button('Poke', () => poke(f.subject)),
    failing: f => targetLink(f.subject, { status: 'fail' }, 'those that failed'),
    manual: f => targetLink(f.subject, { status: 'manual' }, 'those rows'),
    no_worker: f => f.kind === 'target' && targetLink(f.subject, {}, 'its rows'),
  },
};
