// The page of jq-master: its views, and the results of its search field.
import { html } from './html.js';
import { call } from './api.js';
import { snapshot } from './live.js';
import { lazyView, link } from './parts.js';
import { start } from './page.js';
import { findingsMark } from './verdict.js';
import { source } from './look.js';
import { overview } from './view/overview.js';

/** Returns the search field's suggestions for a text: the job with this id, and the busiest names
 * that contain it.
 * @param {string} what @returns {Promise<import('./find.js').Hit[]>} */
async function findHits(what) {
  const job = what.length === 36 ? await call('GET', `/v1/jobs/${encodeURIComponent(what)}?bodies=false`).catch(() => null) : null;
  const names = (snapshot.value?.names ?? []).filter((/** @type {any} */ n) => n.name.includes(what)).slice(0, 6);
  return [...job ? [{ name: job.id, kind: job.status, href: link(['job', job.id]) }] : [],
    ...names.map((/** @type {any} */ n) => ({ name: n.name, kind: 'name', href: link(['jobs'], { name: n.name }) }))];
}

/** Shows the job with this id or, if the text is not an id, the jobs whose names contain it. @param
 * {string} what */
function goToMatch(what) {
  if (/^[0-9a-f-]{36}$/i.test(what)) location.hash = link(['job', what]);
  else location.hash = link(['jobs'], { match: `{"field":"/name","op":"glob","value":${JSON.stringify(`*${what.replace(/^\*|\*$/g, '')}*`)}}` });
}

start({
  views: {
    '': { name: 'Overview', draw: overview, nav: true },
    jobs: { name: 'Jobs', draw: lazyView(() => import('./view/jobs.js').then(m => m.jobsView)), nav: true },
    names: { name: 'Names', draw: lazyView(() => import('./view/names.js').then(m => m.namesView)), nav: true },
    workers: { name: 'Workers', draw: lazyView(() => import('./view/workers.js').then(m => m.workersView)), nav: true },
    constraints: { name: 'Constraints', draw: lazyView(() => import('./view/constraints.js').then(m => m.constraintsView)), nav: true },
    schedules: { name: 'Schedules', draw: lazyView(() => import('./view/schedules.js').then(m => m.schedules)), nav: true },
    job: { name: 'Job', draw: lazyView(() => import('./view/job.js').then(m => m.jobView)) },
  },
  above: { job: 'jobs' },
  scopes: 'admin',
  find: { label: 'Find a job by its id, or a name', fits: findHits, go: goToMatch },
  help: html`Rates and times cover the last few seconds; plots show the last five minutes. <code>GET /openapi.yaml</code> describes all requests of this page.`,
  mark: findingsMark, source,
});
