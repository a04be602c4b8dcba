// Groups with jobs, and the rules that hold them back.
import { html } from '../html.js';
import { query, call, encode, segment, mayUse } from '../api.js';
import { count, limitRate } from '../format.js';
import { table } from '../table.js';
import { runAction, openDialog, badge, button, empty, place, link, pendingText } from '../parts.js';

/** @param {any[]} rules @param {any} [r] */
function editRule(rules, r) {
  openDialog({
    title: r ? `Rule for ${r.pattern}` : 'A rule for groups', button: 'Set', body: html`
      <label>Groups, by name or pattern <input name="pattern" required readonly=${!!r} placeholder="customer-*" defaultValue=${r?.pattern ?? ''} /></label>
      <p class="note">Each group that matches is limited by this. Empty fields set no limit; 0 at a time stops the group.</p>
      <div class="pair"><label>Jobs at a time <input name="concurrency" type="number" min="0" step="1" defaultValue=${r?.concurrency ?? ''} /></label>
        <label>Jobs a second <input name="rate" type="number" min="0" step="any" defaultValue=${r?.rate ?? ''} /></label>
        <label>of them at once <input name="burst" type="number" min="1" step="1" defaultValue=${r?.burst ?? ''} /></label></div>`,
    go: form => {
      const pattern = String(form.get('pattern')), old = r ?? rules.find(x => x.pattern === pattern);
      const set = Object.fromEntries(['concurrency', 'rate', 'burst'].filter(k => form.get(k) !== '').map(k => [k, +String(form.get(k))]));
      return runAction(() => call('PUT', '/v1/groups/' + segment(pattern), set), `The rule for ${pattern} is set.`, old && !old.persisted ? () => putRule(old) : () => call('DELETE', '/v1/groups/' + segment(pattern)));
    },
  });
}

/** @param {any} r */
const putRule = r => call('PUT', '/v1/groups/' + segment(r.pattern), { concurrency: r.concurrency, rate: r.rate, burst: r.burst });

/** @param {any} r */
const removeRule = r => runAction(() => call('DELETE', '/v1/groups/' + segment(r.pattern)), `The rule for ${r.pattern} was removed.`, () => putRule(r));

/** All viewers that request this path share one snapshot of the broker. @param {number} limit @param {string} [type] @param {number} [every] */
const queryGroups = (limit, type, every) => query(`/v1/groups?lately=true&limit=${limit}` + (type === undefined ? '' : '&type=' + encode(type)), every);

/** @param {any[]} list @param {string} [type] whose jobs are counted */
const groupTable = (list, type) => table('Groups', [
  { name: 'Group', class: 'main', of: g => html`<a class="name" href=${link(type === undefined ? ['jobs'] : ['type', type], { group: g.group })}>${g.group}</a>` },
  { name: 'Waiting', num: true, of: g => count(g.waiting) },
  { name: 'Running', num: true, of: g => count(g.running) },
  { name: 'Held back', num: true, of: g => g.held ? badge(count(g.held), 'warning') : '' },
  { name: 'Rule', wide: 1, title: 'a rule that lets no more of them run now', of: g => html`<span class="name">${g.rule ?? ''}</span>` },
], list, g => g.group);

const maxInType = 5, maxListed = 200;

/** The busiest groups of a type, if it has any. @param {string} type */
export function typeGroups(type) {
  const list = queryGroups(maxInType + 1, type, 4000).data?.groups ?? [];
  return list.length > 0 && html`<section><h2>Groups ${list.length > maxInType && html`<a class="more" href=${link(['groups'], { type })}>more of them</a>`}</h2>${groupTable(list.slice(0, maxInType), type)}</section>`;
}

export function groupsView() {
  const type = place.value.query.get('type') || undefined, r = queryGroups(maxListed, type);
  return html`<header class="bar"><h1>Groups${type !== undefined && html` of <span class="name">${type}</span>`}</h1>
      <span class="note">${type === undefined ? 'the busiest, and the rules for them' : html`the busiest, by their jobs of <a href=${link(['type', type])}>this type</a>; <a href="#/groups">of all types, and rules</a>`}</span>
      ${type === undefined && button('Add a rule', () => editRule(r.data?.rules ?? []))}</header>
    ${pendingText(r) ?? html`
    <section>${!r.data.groups.length ? empty(`No waiting or running job ${type === undefined ? '' : 'of this type '}is in a group.`, html`<code>gloom submit --group NAME …</code> puts one in.`)
      : groupTable(r.data.groups, type)}
      ${r.data.groups.length >= maxListed && html`<p class="note">The ${maxListed} busiest are shown.</p>`}</section>
    ${type === undefined && html`<section><h2>Rules</h2>${!r.data.rules.length ? empty('There is no rule: groups have no limits of their own.')
      : table('Rules', [
        { name: 'Pattern', class: 'main', of: x => html`<span class="name">${x.pattern}</span>` },
        { name: 'At a time', num: true, of: x => count(x.concurrency) },
        { name: 'Rate', num: true, of: x => x.rate ? limitRate(x.rate) : '–' },
        { name: 'At once', num: true, wide: 1, of: x => count(x.burst) },
        { name: 'From', wide: 1, of: x => x.persisted ? 'the file of limits' : 'an operator' },
        ...(mayUse('admin') ? [{ name: 'Do', of: (/** @type {any} */ x) => x.persisted ? '' : html`<span class="row">${button('Change', () => editRule(r.data.rules, x))} ${button('Remove', () => removeRule(x), { danger: true })}</span>` }] : []),
      ], r.data.rules, x => x.pattern)}</section>`}`}`;
}
