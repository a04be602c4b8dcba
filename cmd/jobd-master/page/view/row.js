// One row: its status, its columns, and the end of its output.
import { html } from '../html.js';
import { asked } from '../api.js';
import { second } from '../live.js';
import { bytes, moment, parse } from '../format.js';
import { button, copy, facts, place, waiting } from '../parts.js';
import { reading, shown } from '../body.js';
import { byHand, path, targetLink } from './findings.js';
import { ran, state } from './target.js';

const read = reading('fields');

/** The last row that was read; a row that has ended is read again only once a minute. */
let last = { path: '', at: 0, row: /** @type {any} */ (null) };

/** @param {string} name @param {string} text the end of the output @param {number} size bytes of the whole output */
const output = (name, text, size) => html`<section><h2>${name} <span class="more">${bytes(size)}${size > new TextEncoder().encode(text).length && ', of which this is the end'}</span></h2>
  ${text ? shown(text, name) : html`<p class="note">Nothing.</p>`}</section>`;

/** A time in whole seconds. @param {string | null} t */
const when = t => t && moment(t).replace(/\.\d+$/, '');

export function row() {
  const [, target, id] = place.value.path, at = `${path(target ?? '')}/rows/${id}`, known = last.path === at ? last.row : null;
  const r = known && ['done', 'ignored'].includes(known.status) && Date.now() - last.at < 60_000 ? { data: known } : asked(at, 2000, read), v = r.data ?? (r.error ? null : known);
  second.value;
  if (r.data && r.data !== known) last = { path: at, at: Date.now(), row: r.data };
  if (!v) return html`<header class="bar"><h1>Row ${id}</h1></header>${r.code === 404 ? html`<div class="empty"><p>There is no such row in the table of ${target}.</p></div>` : waiting(r)}`;
  const own = Object.entries(parse(v.fields)).length > 1; // besides the id
  return html`<header class="bar"><h1>Row ${v.id}</h1>${state(v)}${copy(String(v.id), 'Copy id')}
      <div class="actions">${v.status === 'manual' && button('Run by hand', () => byHand(v.target, [v.id], () => { last.at = 0; }))}</div></header>
    ${facts([['Target', targetLink(v.target)], ['Created', when(v.created_at)], ['Started', when(v.started_at)], ['Ran for', ran(v)], ['Ended', when(v.finished_at)],
      ['Exit code', v.code === null ? '' : String(v.code)], ['Ended by', v.signal], ['Priority, larger first', v.priority === null ? '' : String(v.priority)]])}
    ${v.status === 'done' ? html`${output('Standard output', v.stdout, v.stdout_bytes)}${output('Standard error', v.stderr, v.stderr_bytes)}`
      : v.status !== 'ignored' && html`<p class="note">Its output is written when it has ended.</p>`}
    ${own && html`<section><h2>Its own columns</h2>${shown(v.fields, 'Columns')}</section>`}`;
}
