// The broker's page: its views, and what the search field finds.
import { html } from './html.js';
import { call, enc, segment, status } from './api.js';
import { away } from './live.js';
import { count } from './format.js';
import { badge, later, to } from './parts.js';
import { start } from './page.js';
import { source } from './look.js';
import { overview } from './view/overview.js';
import { wrongs } from './view/findings.js';

function mark() {
  const { severe, warning } = wrongs(), bad = away.value ? 0 : severe + warning;
  return bad > 0 && badge(count(bad), severe ? 'severe' : 'warning');
}

/** Some types and jobs whose names contain a text. Jobs are searched only if the text has three letters or more, and only the first million of them.
 * @param {string} what @returns {Promise<import('./find.js').Hit[]>} */
async function fits(what) {
  const [types, jobs] = await Promise.all([call('GET', `/v1/types?filter=${enc(what)}&limit=6`), what.length < 3 ? { items: [] } : call('GET', `/v1/jobs?id=${enc(what)}&limit=6`)]);
  return [...types.items.map((/** @type {any} */ t) => ({ name: t.type, kind: 'type', href: to(['type', t.type]) })),
    ...jobs.items.map((/** @type {any} */ j) => ({ name: j.id, kind: j.state, href: to(['job', j.id]) }))];
}

/** Goes to the job with this id, or else to the types and jobs whose names contain it.
 * @param {string} what */
async function find(what) {
  try {
    await call('GET', '/v1/jobs/' + segment(what));
    location.hash = to(['job', what]);
    return;
  } catch { /* no such job */ }
  const found = await call('GET', `/v1/types?filter=${enc(what)}&limit=2`).catch(() => ({ items: [] }));
  if (found.items.length === 1) location.hash = to(['type', found.items[0].type]);
  else if (found.items.length) location.hash = to(['types'], { filter: what });
  else location.hash = to(['jobs'], { id: what });
}

start({
  views: {
    '': { name: 'Overview', draw: overview, nav: true },
    types: { name: 'Types', draw: later(() => import('./view/types.js').then(m => m.types)), nav: true },
    workers: { name: 'Workers', draw: later(() => import('./view/workers.js').then(m => m.workers)), nav: true },
    submitters: { name: 'Submitters', draw: later(() => import('./view/workers.js').then(m => m.submitters)), nav: true },
    groups: { name: 'Groups', draw: later(() => import('./view/groups.js').then(m => m.groups)), nav: true },
    dead: { name: 'Dead letters', draw: later(() => import('./view/dead.js').then(m => m.dead)), nav: true },
    type: { name: 'Type', draw: later(() => import('./view/type.js').then(m => m.type)) },
    jobs: { name: 'Jobs', draw: later(() => import('./view/jobs.js').then(m => m.allJobs)), nav: true },
    fleet: { name: 'Fleet', draw: later(() => import('./view/fleet.js').then(m => m.fleet)), nav: () => !!status.value?.fleet },
    job: { name: 'Job', draw: later(() => import('./view/job.js').then(m => m.job)) },
  },
  above: { type: 'types', job: 'jobs' },
  scopes: 'watch or admin',
  find: { label: 'Find a job or a type', fits, go: find },
  help: html`Rates and times cover the last few seconds; plots show the last five minutes. <code>gloom top</code>, <code>gloom explain ID</code> and${' '}
    <code>gloom findings</code> show the same on a terminal.`,
  mark, source,
});
