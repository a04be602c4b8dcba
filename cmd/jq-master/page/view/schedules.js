// Schedules: which jobs are due when, and what became of the last ones.
import { html } from '../html.js';
import { asked, call, enc, text } from '../api.js';
import { elements, members, moment, parse, pretty } from '../format.js';
import { table } from '../table.js';
import { shown } from '../body.js';
import { act, ask, badge, button, empty, facts, Listing, place, to, waiting } from '../parts.js';
import { jobLink } from './jobs.js';
import { nameLink } from './findings.js';

const keys = ['cron', 'zone', 'job', 'catch_up', 'window_ms', 'overlap', 'paused', 'until', 'note'];

const path = (/** @type {string} */ name) => '/v1/schedules/' + enc(name);

/** Puts a schedule, whose members are as they are written. @param {string} name @param {Record<string, string>} of */
const put = (name, of) => call('PUT', path(name), `{${keys.filter(k => of[k] && of[k] !== 'null' && of[k] !== '""').map(k => `"${k}":${of[k]}`)}}`);

/** @param {string} method @param {string} where */
const read = async (method, where) => whole(await text(method, where));

/** A schedule with its members as they were written. @param {string} s */
const whole = s => ({ ...parse(s), raw: members(s) });

const listing = new Listing(async (where, next) => {
  const m = members(await text('GET', `${where}?limit=100${next ? '&cursor=' + enc(next) : ''}`)), next_ = parse(m.cursor ?? 'null');
  return { items: elements(m.items).map(whole), next: next_ ?? undefined };
});

/** @param {any} r */
const again = r => { listing.again(); return r; };

/** @param {any} s @param {boolean} on */
function pause(s, on) {
  const set = async (/** @type {boolean} */ paused) => put(s.name, { ...members(await text('GET', path(s.name))), paused: String(paused) });
  act(() => set(on), `${s.name} ${on ? 'is paused' : 'goes on'}.`, () => set(!on).then(again)).then(again);
}

/** @param {any} s */
const remove = s => ask({
  title: `Delete ${s.name}?`, danger: true, button: 'Delete it', body: html`<p>It makes no more jobs. Those that it has made stay.</p>`,
  go: () => act(() => call('DELETE', path(s.name)), `${s.name} is deleted.`, () => put(s.name, s.raw).then(again)).then(again),
});

/** What one may do: what stands in a file is changed there. @param {any} s */
const buttons = s => s.from_file ? html`<span class="muted">from the file</span>`
  : html`<span class="row">${s.paused ? button('Resume', () => pause(s, false)) : button('Pause', () => pause(s, true))} ${button('Delete', () => remove(s), { danger: true })}</span>`;

/** @param {any} x */
const came = x => !x ? '–' : x.job_id ? html`${moment(x.made_at)} ${jobLink(x.job_id)}` : html`${moment(x.due_at)} ${badge('skipped', 'warning')} ${x.why ?? ''}`;

/** @param {any} s */
const marks = s => html`<span class="marks">${s.paused && badge('paused', 'warning')}${s.queued_at && badge('one waits', 'info')}</span>`;

/** @type {import('../table.js').Column[]} */
const columns = [
  { name: 'Schedule', class: 'main', of: s => html`<a class="name" href=${to(['schedules', s.name])}>${s.name}</a> ${marks(s)}` },
  { name: 'When', of: s => html`<code>${s.cron}</code> ${s.zone}` },
  { name: 'Job', wide: 1, of: s => nameLink(s.job.name) },
  { name: 'Next', num: true, of: s => s.next[0] && !s.paused ? moment(s.next[0]) : '–' },
  { name: 'Last', wide: 2, of: s => came(s.last[0]) },
  { name: 'Do', wide: 1, of: buttons },
];

function schedule(/** @type {string} */ name) {
  const r = asked(path(name), 2000, read), s = r.data;
  return html`<header class="bar"><h1 class="name">${name}</h1>${s && marks(s)}<a href=${to(['schedules'])}>all schedules</a>${s && html`<div class="actions">${buttons(s)}</div>`}</header>
    ${!s ? waiting(r) : html`${facts([['When', html`<code>${s.cron}</code> ${s.zone}`], ['Job', nameLink(s.job.name)], ['Missed due times', { none: 'make no job', one: 'make one job', all: 'make a job each' }[/** @type {string} */ (s.catch_up)]],
        ['While the job before goes on', { allow: 'another is made', skip: 'none is made', queue: 'one waits' }[/** @type {string} */ (s.overlap)]], ['Until', s.until && moment(s.until)], ['Note', s.note]])}
      <section><h2>Due next</h2>${s.next.length && !s.paused ? html`<ul>${s.next.map((/** @type {string} */ t) => html`<li key=${t}>${moment(t)}</li>`)}</ul>` : html`<p class="note">Never${s.paused ? ' while it is paused' : ''}.</p>`}</section>
      <section><h2>Last</h2>${s.last.length ? html`<ul>${s.last.map((/** @type {any} */ x) => html`<li key=${x.due_at}>${came(x)}</li>`)}</ul>` : html`<p class="note">It has not been due yet.</p>`}</section>
      <section><h2>The job that it makes</h2>${shown(pretty(s.raw.job), 'Job')}</section>`}`;
}

export function schedules() {
  const name = place.value.path[1];
  if (name !== undefined) return schedule(name);
  const s = listing.of('/v1/schedules');
  return html`<header class="bar"><h1>Schedules</h1><span class="note">jobs that are made at due times; <code>PUT /v1/schedules/NAME</code> adds one</span></header>
    ${s.items.length ? table('Schedules', columns, s.items, x => x.name) : !s.busy && !s.error && empty('There is no schedule.')}
    ${listing.foot()}`;
}
