// The page of serverlessd: its views, and the results of its search field.
import { html } from './html.js';
import { call, encode, mayUse } from './api.js';
import { lazyView, link } from './parts.js';
import { start } from './page.js';
import { findingsMark } from './verdict.js';
import { source } from './look.js';
import { jobTo, clientFilter } from './names.js';
import { overview } from './view/overview.js';

/** Returns the job with this id, of any client. @param {string} id */
const job = async id => (await call('GET', '/jobs?id=' + encode(id)).catch(() => null))?.jobs.map(clientFilter)[0];

const isId = (/** @type {string} */ s) => /^[0-9a-z]{9}-[0-9a-z]{6}-[0-9a-z]{5}$/.test(s);

/** Returns the search field's suggestions for a text: the job with this id, and the types whose
 * names contain it.
 * @param {string} what @returns {Promise<import('./find.js').Hit[]>} */
async function findHits(what) {
  const j = isId(what) && await job(what), types = (await call('GET', `/v1/stats?types=6&part=${encode(what)}`)).types;
  return [...j ? [{ name: j.id, kind: j.state, href: jobTo(j) }] : [],
    ...types.map((/** @type {any} */ t) => ({ name: t.type, kind: 'type', href: link(['jobs'], { of: t.type }) }))];
}

/** Shows the job with this id or, if the text is not an id, the types whose names contain it. @param
 * {string} what */
async function goToMatch(what) {
  const j = isId(what) && await job(what);
  location.hash = j ? jobTo(j) : isId(what) ? link(['job', '', what]) : link(['types'], { part: what });
}

start({
  views: {
    '': { name: 'Overview', draw: overview, nav: true },
    jobs: { name: 'Jobs', draw: lazyView(() => import('./view/jobs.js').then(m => m.jobsView)), nav: true },
    types: { name: 'Types', draw: lazyView(() => import('./view/types.js').then(m => m.typesView)), nav: true },
    handlers: { name: 'Handlers', draw: lazyView(() => import('./view/handlers.js').then(m => m.handlersView)), nav: true },
    journal: { name: 'Journal', draw: lazyView(() => import('./view/journal.js').then(m => m.journalView)), nav: true },
    schedules: { name: 'Schedules', draw: lazyView(() => import('./view/schedules.js').then(m => m.schedules)), nav: () => mayUse('read') },
    job: { name: 'Job', draw: lazyView(() => import('./view/job.js').then(m => m.jobView)) },
  },
  above: { job: 'jobs' },
  scopes: 'admin',
  find: { label: 'Find a job by its id, or a type', fits: findHits, go: goToMatch },
  help: html`Rates and times are those of this daemon in the last few seconds; plots show the last five minutes. Jobs are counted in the stores, for all daemons together.`,
  mark: findingsMark, source,
});
