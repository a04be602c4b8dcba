// The view of clients and their types, with one row for each type.
import { html } from '../html.js';
import { query, encode } from '../api.js';
import { count, plural, duration } from '../format.js';
import { table } from '../table.js';
import { badge, empty, place, setQuery, link, pendingText as pending } from '../parts.js';
import { handlerLink, splitJobtype, typeLink } from '../names.js';

/** Reports whether a row stands for all types that have neither jobs nor a handler. @param {any} t
 * */
const remainder = t => splitJobtype(t.type)[1] === '*';

/** @param {string} name @param {string} state @param {number} [wide] @returns {import('../table.js').Column} */
const column = (name, state, wide) => ({
  name, num: true, wide, of: t => t[state] && remainder(t) ? count(t[state]) : t[state] ? html`<a href=${link(['jobs'], { of: t.type, state })}>${count(t[state])}</a>` : html`<span class="muted">0</span>`,
});

/** @param {any[]} list */
export const typeTable = list => table('Types', [
  { name: 'Type', class: 'main', of: t => remainder(t) ? html`<span class="name">${t.type}</span>` : typeLink(t.type) },
  { name: 'Handler', of: t => remainder(t) ? html`<span class="muted">forgotten types</span>` : handlerLink(t.type, t.lang === '' ? 'not known yet' : t.lang ?? (t.waiting ? badge('none', 'severe') : 'none')) },
  column('Waiting', 'waiting'), { name: 'Oldest', num: true, wide: 1, of: t => t.oldest_ms ? duration(t.oldest_ms / 1000) : '–' }, column('Deferred', 'deferred', 2), column('Running', 'running', 1),
  column('OK', 'ok', 2), column('Failed', 'failed'), column('Abandoned', 'abandoned', 2), column('Expired', 'expired', 3),
], list, t => t.type);

const maxTypes = 200;

export function typesView() {
  const part = place.value.query.get('part') ?? '', r = query(`/v1/stats?types=${maxTypes}&part=${encode(part)}`, 4000), list = r.data?.types ?? [];
  const clients = [...new Set(list.map((/** @type {any} */ t) => splitJobtype(t.type)[0]))];
  return html`<header class="bar"><h1>Clients and types</h1>
    <input type="search" aria-label="Part of a client-type" placeholder="Part of a client-type" value=${part} onInput=${(/** @type {any} */ e) => setQuery({ part: e.target.value })} />
    <span class="note" role="status">${r.data && `${plural(r.data.all_types, 'type')}${r.data.all_types > maxTypes ? '' : ` of ${plural(clients.length, 'client')}`}`}</span></header>
    ${clients.length > 1 && html`<div class="tabs" role="group" aria-label="Clients">${clients.slice(0, 12).map(c => html`<button key=${c} type="button" aria-pressed=${String(part === c + '-')}
      onClick=${() => setQuery({ part: c + '-' })}><span class="name">${c}</span></button>`)}</div>`}
    ${pending(r) ?? (list.length ? typeTable(list) : empty(part ? 'No type has this in its name.' : 'There is no job and no handler.'))}
    ${r.data?.all_types > maxTypes && html`<p class="note">These are the ${maxTypes} types that need attention most, or have the most jobs.</p>`}`;
}
