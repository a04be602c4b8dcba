// One row: its status, its columns, and the end of its output.
import { html } from '../html.js';
import { query } from '../api.js';
import { everySecond } from '../live.js';
import { bytes, dateTime, parse } from '../format.js';
import { button, copyButton, facts, place, pendingText } from '../parts.js';
import { rawReader, longText } from '../body.js';
import { runByHand, targetPath, targetLink } from './findings.js';
import { runTime, stateBadge } from './target.js';

const readRow = rawReader('fields');

/** The last row that was read; a row that has ended is read again only once a minute. */
let lastRow = { path: '', at: 0, row: /** @type {any} */ (null) };

/** @param {string} name @param {string} text the end of the output @param {number} size bytes of the whole output */
const outputText = (name, text, size) => html`<section><h2>${name} <span class="more">${bytes(size)}${size > new TextEncoder().encode(text).length && ', of which this is the end'}</span></h2>
  ${text ? longText(text, name) : html`<p class="note">Nothing.</p>`}</section>`;

/** A time in whole seconds. @param {string | null} t */
const timeText = t => t && dateTime(t).replace(/\.\d+$/, '');

export function rowView() {
  const [, target, id] = place.value.path, at = `${targetPath(target ?? '')}/rows/${id}`, known = lastRow.path === at ? lastRow.row : null;
  const r = known && ['done', 'ignored'].includes(known.status) && Date.now() - lastRow.at < 60_000 ? { data: known } : query(at, 2000, readRow), v = r.data ?? (r.error ? null : known);
  everySecond.value;
  if (r.data && r.data !== known) lastRow = { path: at, at: Date.now(), row: r.data };
  if (!v) return html`<header class="bar"><h1>Row ${id}</h1></header>${r.code === 404 ? html`<div class="empty"><p>There is no such row in the table of ${target}.</p></div>` : pendingText(r)}`;
  const own = Object.entries(parse(v.fields)).length > 1; // besides the id
  return html`<header class="bar"><h1>Row ${v.id}</h1>${stateBadge(v)}${copyButton(String(v.id), 'Copy id')}
      <div class="actions">${v.status === 'manual' && button('Run by hand', () => runByHand(v.target, [v.id], () => { lastRow.at = 0; }))}</div></header>
    ${facts([['Target', targetLink(v.target)], ['Created', timeText(v.created_at)], ['Started', timeText(v.started_at)], ['Ran for', runTime(v)], ['Ended', timeText(v.finished_at)],
      ['Exit code', v.code === null ? '' : String(v.code)], ['Ended by', v.signal], ['Priority, larger first', v.priority === null ? '' : String(v.priority)]])}
    ${v.status === 'done' ? html`${outputText('Standard output', v.stdout, v.stdout_bytes)}${outputText('Standard error', v.stderr, v.stderr_bytes)}`
      : v.status !== 'ignored' && html`<p class="note">Its output is written when it has ended.</p>`}
    ${own && html`<section><h2>Its own columns</h2>${longText(v.fields, 'Columns')}</section>`}`;
}
