// The broker's page: its views, and what the search field finds.
import { html } from './html.js';
import { call, encode, segment, status } from './api.js';
import { awaySince } from './live.js';
import { count } from './format.js';
import { badge, lazyView, link } from './parts.js';
import { start } from './page.js';
import { source } from './look.js';
import { overviewView } from './view/overview.js';
import { severityCounts } from './view/findings.js';

function overviewMark() {
  const { severe, warning } = severityCounts(), bad = awaySince.value ? 0 : severe + warning;
  return bad > 0 && badge(count(bad), severe ? 'severe' : 'warning');
}

/** Some types and jobs whose names contain a text. Jobs are searched only if the text has three letters or more, and only the first million of them.
 * @param {string} what @returns {Promise<import('./find.js').Hit[]>} */
async function findHits(what) {
  const [types, jobs] = await Promise.all([call('GET', `/v1/types?filter=${encode(what)}&limit=6`), what.length < 3 ? { items: [] } : call('GET', `/v1/jobs?id=${encode(what)}&limit=6`)]);
  return [...types.items.map((/** @type {any} */ t) => ({ name: t.type, kind: 'type', href: link(['type', t.type]) })),
    ...jobs.items.map((/** @type {any} */ j) => ({ name: j.id, kind: j.state, href: link(['job', j.id]) }))];
}

/** Goes to the job with this id, or else to the types and jobs whose names contain it.
 * @param {string} what */
async function goToMatch(what) {
  try {
    await call('GET', '/v1/jobs/' + segment(what));
    location.hash = link(['job', what]);
    return;
  } catch { /* no such job */ }
  const found = await call('GET', `/v1/types?filter=${encode(what)}&limit=2`).catch(() => ({ items: [] }));
  if (found.items.length === 1) location.hash = link(['type', found.items[0].type]);
  else if (found.items.length) location.hash = link(['types'], { filter: what });
  else location.hash = link(['jobs'], { id: what });
}

start({
  views: {
    '': { name: 'Overview', draw: overviewView, nav: true },
    types: { name: 'Types', draw: lazyView(() => import('./view/types.js').then(m => m.typesView)), nav: true },
    workers: { name: 'Workers', draw: lazyView(() => import('./view/workers.js').then(m => m.workersView)), nav: true },
    submitters: { name: 'Submitters', draw: lazyView(() => import('./view/workers.js').then(m => m.submittersView)), nav: true },
    groups: { name: 'Groups', draw: lazyView(() => import('./view/groups.js').then(m => m.groupsView)), nav: true },
    dead: { name: 'Dead letters', draw: lazyView(() => import('./view/dead.js').then(m => m.deadView)), nav: true },
    type: { name: 'Type', draw: lazyView(() => import('./view/type.js').then(m => m.typeView)) },
    jobs: { name: 'Jobs', draw: lazyView(() => import('./view/jobs.js').then(m => m.jobsView)), nav: true },
    fleet: { name: 'Fleet', draw: lazyView(() => import('./view/fleet.js').then(m => m.fleetView)), nav: () => !!status.value?.fleet },
    job: { name: 'Job', draw: lazyView(() => import('./view/job.js').then(m => m.jobView)) },
  },
  above: { type: 'types', job: 'jobs' },
  scopes: 'watch or admin',
  find: { label: 'Find a job or a type', fits: findHits, go: goToMatch },
  help: html`Rates and times cover the last few seconds; plots show the last five minutes. <code>gloom top</code>, <code>gloom explain ID</code> and${' '}
    <code>gloom findings</code> show the same on a terminal.`,
  mark: overviewMark, source,
});
