// The view of the journal and the stores: what waits in the journal, and what was set aside and
// why.
import { html } from '../html.js';
import { query, call, encode } from '../api.js';
import { snapshot, everySecond } from '../live.js';
import { bytes, count, dateTime, plural, duration } from '../format.js';
import { table } from '../table.js';
import { runAction, openDialog, badge, button, empty, facts, link } from '../parts.js';
import { setHandOut } from './findings.js';

/** Gives one or all files of jobs to the store. @param {string} query */
const putBack = query => runAction(() => call('POST', '/put-back?' + query, ''), r => `${plural(r.jobs, 'job')} put back.${Object.entries(r.refused).map(([file, why]) => ` ${file} is still refused: ${why}`).join('')}`);

/** @param {any} f */
const putBackButton = f => f.reason === 'refused' ? button('Put back', () => putBack('file=' + encode(f.file))) : html`<span class="muted">cannot be read</span>`;

const reasonTexts = /** @type {Record<string, string>} */ ({ refused: 'No store has accepted these lines, for example because they are larger than the database allows.', damaged: 'These bytes of the journal could not be read.' });

/** @type {import('../table.js').Column[]} */
const fileColumns = [
  { name: 'File', class: 'main', of: f => html`<span class="name id">${f.file}</span><div class="note narrow">${reasonTexts[f.reason]}</div>` },
  { name: 'Why', wide: 1, class: 'reason', of: f => html`${badge(f.reason, 'warning')} ${reasonTexts[f.reason]}` },
  { name: 'Jobs', num: true, of: f => html`<span title=${f.ids?.join(' ')}>${f.reason === 'refused' ? count(f.jobs) : '–'}</span>` },
  { name: 'Size', num: true, wide: 1, of: f => bytes(f.bytes) },
  { name: 'Accepted', num: true, wide: 2, of: f => f.accepted ? dateTime(f.accepted) : '–' },
  { name: 'Do', of: putBackButton },
];

/** @type {import('../table.js').Column[]} */
const storeColumns = [
  { name: 'Store', class: 'main', of: s => html`<span class="name">${s.name}</span>` },
  { name: 'State', of: s => badge(s.away ? 'away' : s.error ? 'refuses' : 'there', s.error ? 'severe' : 'ok') },
  { name: 'What it says', class: 'reason', of: s => s.error ?? '' },
  { name: 'Taken here', num: true, wide: 1, title: 'jobs that this daemon has in hand', of: s => s.in_hand ? html`<a href=${link(['jobs'], { state: 'running' })}>${count(s.in_hand)}</a>` : '0' },
  { name: 'Sysid', wide: 1, of: s => html`<span class="id">${s.sysid || 'none'}</span>` },
];

export function journalView() {
  const v = snapshot.value;
  everySecond.value;
  if (!v) return html`<h1>Journal and stores</h1><div class="empty loading" role="status"><p>Asking the daemon…</p></div>`;
  // For this request the daemon reads files. So the key of the request changes only when jobs are
  // set aside or put back.
  const j = v.journal, r = j.aside_files ? query(`/aside#${j.aside_files}.${v.ledger?.set_aside}`, 0) : { data: { items: [] } }, list = r.data?.items ?? [];
  const stop = () => openDialog({ title: 'Hand out no more jobs here?', danger: true, button: 'Stop', body: html`<p>Jobs that run here continue. New jobs are still accepted, and other daemons run them.</p>`, go: () => setHandOut(false) });
  return html`<header class="bar"><h1>Journal and stores</h1><span class="note">what was accepted, and no store has yet</span><div class="actions">${v.handing_out ? button('Stop', stop, { danger: true }) : button('Start', () => setHandOut(true), { first: true })}</div></header>
    ${facts([['Jobs in the journal', count(j.jobs)], ['Bytes', bytes(j.bytes)], ['The oldest has been waiting for', j.age_ms ? duration(j.age_ms / 1000) : 'none is waiting'], ['Syncs', count(j.syncs)], ['A sync takes', j.syncs ? duration(j.sync_ms / 1000 / j.syncs) : '–'],
      ['Writes and syncs that failed', count(j.failures)], ['Damaged', j.damaged_bytes ? bytes(j.damaged_bytes) : null]])}
    <section><h2>Stores</h2>${table('Stores', storeColumns, v.stores, s => s.name)}</section>
    <section><h2>Set aside</h2>${list.length ? html`<div class="filters">${list.some((/** @type {any} */ f) => f.reason === 'refused') && button('Put all back', () => putBack('all=true'))}</div>${table('Set aside', fileColumns, list, f => f.file)}
        <p class="note">Jobs that are put back keep their ids, and run once, however often they are put back. A file that the store still refuses stays.</p>`
      : r.error ? html`<p class="note" role="status">${r.error.message}</p>` : empty(j.aside_files ? 'Asking…' : 'Nothing was set aside.')}</section>`;
}
