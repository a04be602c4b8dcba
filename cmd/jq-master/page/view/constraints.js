// The view of constraints: which jobs each one matches, and how many it holds back.
import { html } from '../html.js';
import { call, requestText, segment } from '../api.js';
import { count, members } from '../format.js';
import { table } from '../table.js';
import { runAction, openDialog, badge, button, empty, place, link, pendingText } from '../parts.js';
import { heldJobs, limitText, queryConstraints } from './findings.js';
import { isJSON } from './matcher.js';

const keys = ['match', 'rate', 'burst', 'concurrency', 'per', 'enabled'];

const constraintPath = (/** @type {string} */ id) => '/v1/constraints/' + segment(id);

/** Sets a constraint. The values of its members are JSON texts. @param {string} id @param
 * {Record<string, string>} fields */
const putConstraint = (id, fields) => call('PUT', constraintPath(id), `{${keys.filter(k => fields[k] !== undefined).map(k => `"${k}":${fields[k]}`)}}`);

/** Sets a constraint again with some members changed. @param {string} id @param {Record<string,
 * string>} change */
const changeConstraint = async (id, change) => putConstraint(id, { ...members(await requestText('GET', constraintPath(id))), ...change });

/** Adds a constraint or, if c is given, changes its limits and what they apply to. @param {any} [c] */
function editConstraint(c) {
  const { enabled, ...was } = c?.raw ?? {}, n = (/** @type {string} */ k) => c && c[k] !== null ? was[k] : '';
  openDialog({
    title: c ? `Constraint ${c.id}` : 'A constraint', button: 'Set', body: html`
      ${!c && html`<label>Its id <input name="id" required maxlength="200" placeholder="per-user" autocomplete="off" /></label>`}
      <label>Matcher, JSON; {} is every job <textarea name="match" rows="3" spellcheck="false" required>${was.match ?? '{"field": "/name", "op": "eq", "value": "greet"}'}</textarea></label>
      <div class="pair"><label>Jobs at a time <input name="concurrency" type="number" min="0" step="1" defaultValue=${n('concurrency')} /></label>
        <label>Jobs a second <input name="rate" type="number" min="0" step="any" defaultValue=${n('rate')} /></label>
        <label>of them at once <input name="burst" type="number" min="1" step="1" defaultValue=${n('burst')} /></label></div>
      <label>For each value of (a JSON Pointer) <input name="per" placeholder="/argument/user" spellcheck="false" autocomplete="off" defaultValue=${c?.per ?? ''} /></label>
      <p class="note">An empty field sets no limit; 0 at a time holds back all.</p>`,
    go: form => {
      const f = (/** @type {string} */ k) => String(form.get(k) ?? '').trim(), id = c?.id ?? f('id');
      return runAction(() => {
        if (!isJSON(f('match'))) throw new Error('the matcher is not JSON');
        return (c ? changeConstraint : putConstraint)(id, { match: f('match'), concurrency: f('concurrency') || 'null', rate: f('rate') || 'null', burst: f('burst') || 'null', per: f('per') ? JSON.stringify(f('per')) : 'null' });
      }, `The constraint ${id} is set.`, c ? () => changeConstraint(id, was) : undefined);
    },
  });
}

/** @param {any} c */
function removeConstraint(c) {
  let was = c.raw; // the list may be out of date
  runAction(async () => {
    was = members(await requestText('GET', constraintPath(c.id)));
    await call('DELETE', constraintPath(c.id));
  }, `The constraint ${c.id} was removed.`, () => putConstraint(c.id, was));
}

/** @param {any} c @param {boolean} on */
const setEnabled = (c, on) => runAction(() => changeConstraint(c.id, { enabled: String(on) }), `The constraint ${c.id} is ${on ? 'on' : 'off'}.`, () => changeConstraint(c.id, { enabled: String(!on) }));

/** @type {import('../table.js').Column[]} */
const columns = [
  { name: 'Constraint', class: 'main', of: c => html`<span class="name">${c.id}</span> ${!c.enabled && badge('off', 'warning')}<div class="note narrow">${limitText(c)}</div>` },
  { name: 'Allows', wide: 1, of: limitText },
  { name: 'Held back', num: true, of: c => c.blocked ? html`<a href=${heldJobs(c)}>${count(c.blocked)}</a>` : c.blocked ?? '–' },
  { name: 'Running', num: true, wide: 1, of: c => c.running ? html`<a href=${link(['jobs'], { status: 'running', match: c.raw.match })}>${count(c.running)}</a>` : '0' },
  { name: 'Of', num: true, wide: 1, title: 'jobs that it matches', of: c => count(c.matching) },
  { name: 'Matcher', wide: 2, class: 'reason', of: c => html`<code>${c.raw.match.slice(0, 300)}</code>` },
  { name: 'Do', of: c => html`<span class="row">${button('Change', () => editConstraint(c))} ${c.enabled ? button('Turn off', () => setEnabled(c, false)) : button('Turn on', () => setEnabled(c, true))} ${button('Remove', () => removeConstraint(c), { danger: true })}</span>` },
];

export function constraintsView() {
  const r = queryConstraints(), id = place.value.query.get('id'), list = (r.data ?? []).filter((/** @type {any} */ c) => !id || c.id === id);
  return html`<header class="bar"><h1>Constraints</h1><span class="note">which jobs they match, and how many they hold back ${id && html`<a href=${link(['constraints'])}>all of them</a>`}</span>${button('Add a constraint', () => editConstraint())}</header>
    ${pendingText(r) ?? (list.length ? table('Constraints', columns, list, c => c.id) : empty('There is no constraint: jobs are limited by the slots of workers alone.'))}
    ${list[0] && !list[0].persisted && html`<p class="note">They are in memory only: a restart loses them. --redis or --constraints keeps them.</p>`}`;
}
