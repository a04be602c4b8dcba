// The view of jobs, page by page, and the actions on many of them.
import { html, signal } from '../html.js';
import { call, encode, mayUse } from '../api.js';
import { secondsSince, snapshot, everySecond } from '../live.js';
import { count, dateTime, plural, duration } from '../format.js';
import { Selection, table } from '../table.js';
import { runAction, openDialog, button, forEachRow, empty, Listing, place, setQuery, link } from '../parts.js';
import { hasEnded, jobLink, clientFilter, splitJobtype, stateBadge, states, isWaiting } from '../names.js';

/** The list. The list of jobs. Its path lists the jobs of all clients, with the names of the
 * clients, or those of one client. */
const listing = new Listing(async (path, next) => {
  const r = await call('GET', path + (next ? '&after=' + next : '')), client = path.startsWith('/jobs?') ? '' : decodeURIComponent(path.split('/')[1]);
  return { items: r.jobs.map((/** @type {any} */ j) => client ? { ...j, client } : clientFilter(j)), next: r.after ?? undefined };
}, '× 50,000 jobs');

/** Describes the outcome of the last run in a line: the end of its standard error and its data, or
 * its code if both are empty. @param {any} l */
const resultText = l => !l ? '' : [l.stderr.trim().split('\n').pop(), l.data.trim()].filter(Boolean).join(': ') || l.code;

/** @type {import('../table.js').Column[]} */
const columns = [
  { name: 'Job', class: 'main', of: j => jobLink(j.id, j.client) },
  { name: 'Type', class: 'main', of: j => html`<a class="name" href=${link(['jobs'], { ...Object.fromEntries(place.value.query), of: `${j.client}-${j.type}` })}>${j.client}-${j.type}</a><div class="note narrow reason">${resultText(j.last).slice(0, 100)}</div>` },
  { name: 'State', of: stateBadge },
  { name: 'Age', num: true, wide: 1, of: j => duration(secondsSince(j.create_dt)) },
  { name: 'Due', num: true, wide: 3, of: j => isWaiting(j.state) ? dateTime(j.dt) : '' },
  { name: 'Runs', num: true, wide: 2, of: j => count(j.tries) },
  { name: 'Last', wide: 2, of: j => j.last ? html`${j.last.code}${j.last.exitcode && j.last.exitcode !== 500 ? ` ${j.last.exitcode}` : ''}` : j.code ?? '' },
  { name: 'What it said', wide: 1, class: 'reason', of: j => resultText(j.last).slice(0, 200) },
];

const jobPath = (/** @type {any} */ j, /** @type {string} */ what) => `/${j.client}/job/${what}/${j.id}`;

export const retry = (/** @type {any} */ j) => call('POST', jobPath(j, 'retry'), '');
export const hasten = (/** @type {any} */ j) => call('POST', jobPath(j, 'run'), '');
export const cancel = (/** @type {any} */ j) => call('DELETE', jobPath(j, 'get'), '');

/** @param {any} r */
const reload = r => { listing.again(); return r; };

const selection = new Selection(j => j.id, j => j.id);

/** Asks the user, and then acts on the chosen jobs one by one. @param {any[]} picked @param {string}
 * verb @param {(j: any) => Promise<any>} what @param {string} done @param {string} says */
const actOnEach = (picked, verb, what, done, says) => openDialog({
  title: `${verb} ${plural(picked.length, 'job')}?`, danger: what === cancel, button: `${verb} ${plural(picked.length, 'job')}`, body: html`<p>${says}</p>`,
  go: () => runAction(() => forEachRow(picked, what), n => `${plural(n, 'job')} ${done}.`).then(r => { selection.set(picked, false); reload(r); }),
});

/** Asks the user, and then retries all jobs in a state: those of all clients, of one client, or of one type. It
 * retries no more jobs than it has counted, because retried jobs may fail again. @param {string} jobtype
 * @param {string} state */
async function retryAll(jobtype, state) {
  const [client, type] = splitJobtype(jobtype), at = client && `/${encode(client)}`, going = signal('');
  const n = await runAction(async () => {
    const c = (await call('GET', at + '/state')).types;
    return Object.keys(c).filter(t => !type || t === type).reduce((sum, t) => sum + c[t][state], 0);
  }, '');
  if (n === undefined) return;
  openDialog({
    title: `Retry ${plural(n, `${state} job`)}${jobtype && ` of ${jobtype}`}?`, button: 'Retry them',
    body: () => html`<p>They begin again, with no tries used. Jobs that have been forgotten are counted, but cannot be retried.</p>${going.value && html`<p class="note" role="status">${going.value}</p>`}`,
    go: () => runAction(async () => {
      for (let sum = 0; ;) {
        const r = await call('POST', `${at}/retry?state=${state}${type ? '&type=' + encode(type) : ''}&limit=${Math.max(1, Math.min(1000, n - sum))}`, '');
        sum += r.affected;
        if (!r.more || sum >= n) return { sum };
        going.value = `${count(sum)} of ${count(n)}`;
      }
    }, r => `${plural(r.sum, 'job')} retried.`).then(reload),
  });
}

export function jobsView() {
  const q = place.value.query, jobtype = q.get('of') ?? '', st = q.get('state') ?? '', [client, type] = splitJobtype(jobtype), n = snapshot.value?.ledger;
  everySecond.value;
  const s = listing.of(`${client ? `/${encode(client)}` : ''}/jobs?limit=50&last=true${st && '&state=' + encode(st)}${type && '&type=' + encode(type)}`), picked = selection.of(s.items);
  const old = picked.filter(j => hasEnded(j.state)), young = picked.filter(j => isWaiting(j.state)), later = young.filter(j => j.state === 'deferred');
  return html`<header class="bar"><h1>Jobs</h1></header>
    <div>
      <div class="filters"><div class="tabs" role="group" aria-label="State">${['', ...Object.keys(states)].map(v => html`<button key=${v} type="button" aria-pressed=${String(st === v)}
          onClick=${() => setQuery({ state: v })}>${v || 'all'}${v && n && !jobtype ? html` <span class="num">${count(n[v])}</span>` : ''}</button>`)}</div>
        <label>Client, or client-type <input name="of" value=${jobtype} spellcheck="false" autocomplete="off" placeholder="acme-greet" onInput=${(/** @type {any} */ e) => setQuery({ of: e.target.value.trim() })} /></label></div>
      ${s.items.length > 0 && html`<div class="actions">
        ${old.length > 0 && button(`Retry ${count(old.length)} selected`, () => actOnEach(old, 'Retry', retry, 'retried', 'They begin again, with no tries used.'), { scope: 'submit' })}
        ${later.length > 0 && button(`Run ${count(later.length)} selected now`, () => runAction(() => forEachRow(later, hasten), n => `${plural(n, 'job')} ${n === 1 ? 'is' : 'are'} due now.`).then(reload), { scope: 'submit' })}
        ${young.length > 0 && button(`Cancel ${count(young.length)} selected`, () => actOnEach(young, 'Cancel', cancel, 'cancelled', 'They are deleted: they cannot be brought back.'), { scope: 'submit', danger: true })}
        ${!picked.length && st && hasEnded(st) && button(`Retry all ${st}`, () => retryAll(jobtype, st), { scope: 'submit' })}</div>`}
    </div>
    ${s.items.length ? table('Jobs', mayUse('submit') ? [selection.column(s.items), ...columns] : columns, s.items, j => j.id) : !s.busy && !s.error && empty(jobtype || st ? 'No job matches.' : 'There is no job.')}
    ${listing.foot()}`;
}
