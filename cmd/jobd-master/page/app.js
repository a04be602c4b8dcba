// The page of jobd-master: its views, and what its search field finds.
import { html } from './html.js';
import { call } from './api.js';
import { lazyView, link } from './parts.js';
import { start } from './page.js';
import { findingsMark } from './verdict.js';
import { source } from './look.js';
import { overview } from './view/overview.js';

/** The rows with this id, at most one of each table, and the targets whose names contain a text.
 * @param {string} what @returns {Promise<import('./find.js').Hit[]>} */
async function findHits(what) {
  const rows = /^\d{1,15}$/.test(what) ? (await call('GET', '/v1/rows/' + what)).items : [], { items } = await call('GET', '/v1/targets?limit=6&part=' + encodeURIComponent(what));
  return [...rows.map((/** @type {any} */ r) => ({ name: `${r.id} of ${r.target}`, kind: r.status, href: link(['row', r.target, r.id]) })),
    ...items.map((/** @type {any} */ t) => ({ name: t.target, kind: 'target', href: link(['target', t.target]) }))];
}

/** Goes to the only match, or else to the targets whose names contain the text. @param {string} what */
async function goToMatch(what) {
  const hits = await findHits(what).catch(() => []);
  location.hash = hits.length === 1 ? hits[0].href : link(['targets'], { part: what });
}

start({
  views: {
    '': { name: 'Overview', draw: overview, nav: true },
    targets: { name: 'Targets', draw: lazyView(() => import('./view/targets.js').then(m => m.targetsView)), nav: true },
    workers: { name: 'Workers', draw: lazyView(() => import('./view/workers.js').then(m => m.workersView)), nav: true },
    target: { name: 'Target', draw: lazyView(() => import('./view/target.js').then(m => m.targetView)) },
    row: { name: 'Row', draw: lazyView(() => import('./view/row.js').then(m => m.rowView)) },
  },
  above: { target: 'targets', row: 'targets' },
  scopes: 'admin: the password of the master',
  find: { label: 'Find a row by its id, or a target', fits: findHits, go: goToMatch },
  help: html`Rates and times cover the last few seconds; plots show the last five minutes. <code>jobctl --master</code> does the same on a terminal.`,
  mark: findingsMark, source,
});
