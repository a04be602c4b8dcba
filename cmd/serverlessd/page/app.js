// The page of serverlessd: its views, and the results of its search field.
import { html } from './html.js';
import { call, enc, may } from './api.js';
import { later, to } from './parts.js';
import { start } from './page.js';
import { mark } from './verdict.js';
import { source } from './look.js';
import { jobTo, ofClient } from './names.js';
import { overview } from './view/overview.js';

/** Returns the job with this id, of any client. @param {string} id */
const job = async id => (await call('GET', '/jobs?id=' + enc(id)).catch(() => null))?.jobs.map(ofClient)[0];

const isId = (/** @type {string} */ s) => /^[0-9a-z]{9}-[0-9a-z]{6}-[0-9a-z]{5}$/.test(s);

/** Returns the search field's suggestions for a text: the job with this id, and the types whose
 * names contain it.
 * @param {string} what @returns {Promise<import('./find.js').Hit[]>} */
async function fits(what) {
  const j = isId(what) && await job(what), types = (await call('GET', `/v1/stats?types=6&part=${enc(what)}`)).types;
  return [...j ? [{ name: j.id, kind: j.state, href: jobTo(j) }] : [],
    ...types.map((/** @type {any} */ t) => ({ name: t.type, kind: 'type', href: to(['jobs'], { of: t.type }) }))];
}

/** Shows the job with this id or, if the text is no id, the types whose names contain it. @param
 * {string} what */
async function find(what) {
  const j = isId(what) && await job(what);
  location.hash = j ? jobTo(j) : isId(what) ? to(['job', '', what]) : to(['types'], { part: what });
}

start({
  views: {
    '': { name: 'Overview', draw: overview, nav: true },
    jobs: { name: 'Jobs', draw: later(() => import('./view/jobs.js').then(m => m.jobs)), nav: true },
    types: { name: 'Types', draw: later(() => import('./view/types.js').then(m => m.types)), nav: true },
    handlers: { name: 'Handlers', draw: later(() => import('./view/handlers.js').then(m => m.handlers)), nav: true },
    journal: { name: 'Journal', draw: later(() => import('./view/journal.js').then(m => m.journal)), nav: true },
    schedules: { name: 'Schedules', draw: later(() => import('./view/schedules.js').then(m => m.schedules)), nav: () => may('read') },
    job: { name: 'Job', draw: later(() => import('./view/job.js').then(m => m.job)) },
  },
  above: { job: 'jobs' },
  scopes: 'admin',
  find: { label: 'Find a job by its id, or a type', fits, go: find },
  help: html`Rates and times are those of this daemon in the last few seconds; plots show the last five minutes. Jobs are counted in the stores, for all daemons together.`,
  mark, source,
});
