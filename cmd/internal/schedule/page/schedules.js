// Schedules: when their jobs are due, and what happened at the last due times.
import { html } from './html.js';
import { query, call, encode, requestText } from './api.js';
import { elements, members, dateTime, parse, indent } from './format.js';
import { table } from './table.js';
import { longText } from './body.js';
import { runAction, openDialog, badge, button, empty, facts, Listing, place, link, pendingText } from './parts.js';

const keys = ['cron', 'zone', 'job', 'catch_up', 'window_ms', 'overlap', 'paused', 'until', 'note'];

/** A schedule with its members as they were written. @param {string} s */
const readSchedule = s => ({ ...parse(s), raw: members(s) });

/** @param {any} s */
const scheduleBadges = s => html`<span class="marks">${s.paused && badge('paused', 'warning')}${s.queued_at && badge('one is waiting', 'info')}</span>`;

/** Returns the view of a daemon's schedules. list: the path of the list in /v1; path: returns the path of a schedule in /v1; route:
 * returns the parts of a schedule's address in the page; named: returns the schedule that such parts name; what: describes its job;
 * made: shows a job that it has made; scope: the scope that changes need; how: says how to add a schedule.
 * @param {{list: string, path: (s: any) => string, route: (s: any) => string[], named: (route: string[]) => any, what: (s: any) => any, made: (id: string, s: any) => any, scope: string, how: any}} of */
export function schedulesOf({ list, path, route, named, what, made, scope, how }) {
  const listing = new Listing(async (where, next) => {
    const m = members(await requestText('GET', `${where}?limit=100${next ? '&cursor=' + encode(next) : ''}`)), next_ = parse(m.cursor ?? 'null');
    return { items: elements(m.items).map(readSchedule), next: next_ ?? undefined };
  });
  const again = (/** @type {any} */ r) => { listing.again(); return r; };
  const read = async (/** @type {string} */ method, /** @type {string} */ where) => readSchedule(await requestText(method, where));

  /** Puts a schedule. The fields are JSON texts, by their names. @param {any} s @param {Record<string, string>} fields */
  const put = (s, fields) => call('PUT', path(s), `{${keys.filter(k => fields[k] && fields[k] !== 'null' && fields[k] !== '""').map(k => `"${k}":${fields[k]}`)}}`);

  /** @param {any} s @param {boolean} on */
  function pause(s, on) {
    const set = async (/** @type {boolean} */ paused) => put(s, { ...members(await requestText('GET', path(s))), paused: String(paused) });
    runAction(() => set(on), `${s.name} ${on ? 'is paused' : 'is resumed'}.`, () => set(!on).then(again)).then(again);
  }

  /** @param {any} s */
  function remove(s) {
    let was = s.raw; // the list may be out of date
    openDialog({
      title: `Delete ${s.name}?`, danger: true, button: 'Delete it', body: html`<p>It makes no more jobs. The jobs that it has made are kept.</p>`,
      go: () => runAction(async () => {
        was = members(await requestText('GET', path(s)));
        await call('DELETE', path(s), '');
      }, `${s.name} is deleted.`, () => put(s, was).then(again)).then(again),
    });
  }

  /** The actions on a schedule. A schedule from a file has none: it can only be changed in the file. @param {any} s */
  const buttons = s => s.from_file ? html`<span class="muted">from the file</span>`
    : html`<span class="row">${button(s.paused ? 'Resume' : 'Pause', () => pause(s, !s.paused), { scope })} ${button('Delete', () => remove(s), { scope, danger: true })}</span>`;

  /** @param {any} s @param {any} x */
  const came = (s, x) => !x ? '–' : x.job_id ? html`${dateTime(x.made_at)} ${made(x.job_id, s)}` : html`${dateTime(x.due_at)} ${badge('skipped', 'warning')} ${x.why ?? ''}`;

  /** @type {import('./table.js').Column[]} */
  const columns = [
    { name: 'Schedule', class: 'main', of: s => html`<a class="name" href=${link(['schedules', ...route(s)])}>${route(s).join(' ')}</a> ${scheduleBadges(s)}` },
    { name: 'When', of: s => html`<code>${s.cron}</code> ${s.zone}` },
    { name: 'Job', wide: 1, of: what },
    { name: 'Next', num: true, of: s => s.next[0] && !s.paused ? dateTime(s.next[0]) : '–' },
    { name: 'Last', wide: 2, of: s => came(s, s.last[0]) },
    { name: 'Do', wide: 1, of: buttons },
  ];

  function one(/** @type {any} */ id) {
    const r = query(path(id), 2000, read), s = r.data && { ...id, ...r.data };
    return html`<header class="bar"><h1 class="name">${route(id).join(' ')}</h1>${s && scheduleBadges(s)}<a href=${link(['schedules'])}>all schedules</a>${s && html`<div class="actions">${buttons(s)}</div>`}</header>
      ${!s ? pendingText(r) : html`${facts([['When', html`<code>${s.cron}</code> ${s.zone}`], ['Job', what(s)], ['Missed due times', { none: 'make no job', one: 'make one job', all: 'make a job each' }[/** @type {string} */ (s.catch_up)]],
          ['While the previous job has not ended', { allow: 'another is made', skip: 'none is made', queue: 'one is waiting' }[/** @type {string} */ (s.overlap)]], ['Until', s.until && dateTime(s.until)], ['Note', s.note]])}
        <section><h2>Due next</h2>${s.next.length && !s.paused ? html`<ul>${s.next.map((/** @type {string} */ t) => html`<li key=${t}>${dateTime(t)}</li>`)}</ul>` : html`<p class="note">Never${s.paused ? ' while it is paused' : ''}.</p>`}</section>
        <section><h2>Last</h2>${s.last.length ? html`<ul>${s.last.map((/** @type {any} */ x) => html`<li key=${x.due_at}>${came(s, x)}</li>`)}</ul>` : html`<p class="note">It has not been due yet.</p>`}</section>
        <section><h2>The job that it makes</h2>${longText(indent(s.raw.job), 'Job')}</section>`}`;
  }

  return () => {
    const id = place.value.path.length > 1 ? named(place.value.path.slice(1)) : null;
    if (id) return one(id);
    const s = listing.of(list);
    return html`<header class="bar"><h1>Schedules</h1><span class="note">jobs that are made at due times; ${how} adds one</span></header>
      ${s.items.length ? table('Schedules', columns, s.items, x => route(x).join('/')) : !s.busy && !s.error && empty('There is no schedule.')}
      ${listing.foot()}`;
  };
}
