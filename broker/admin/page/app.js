// The page: what is drawn around the views, and which view it is.
import { html, render, effect } from './html.js';
import { begin, came, end, enter, again, call, door, enc, segment, status, token } from './api.js';
import { away, heard, live, refusal, second } from './live.js';
import { clock, count, plain, time } from './format.js';
import { anew, ask, badge, dialog, doing, drop, later, notes, place, say, to, wrong } from './parts.js';
import { finder } from './find.js';
import { overview } from './view/overview.js';
import { wrongs } from './view/findings.js';

/** @typedef {{name: string, draw: () => any, nav?: boolean}} View */

/** @type {Record<string, View>} */
const views = {
  '': { name: 'Overview', draw: overview, nav: true },
  types: { name: 'Types', draw: later(() => import('./view/types.js').then(m => m.types)), nav: true },
  workers: { name: 'Workers', draw: later(() => import('./view/workers.js').then(m => m.workers)), nav: true },
  submitters: { name: 'Submitters', draw: later(() => import('./view/workers.js').then(m => m.submitters)), nav: true },
  groups: { name: 'Groups', draw: later(() => import('./view/groups.js').then(m => m.groups)), nav: true },
  dead: { name: 'Dead letters', draw: later(() => import('./view/dead.js').then(m => m.dead)), nav: true },
  type: { name: 'Type', draw: later(() => import('./view/type.js').then(m => m.type)) },
  jobs: { name: 'Jobs', draw: later(() => import('./view/jobs.js').then(m => m.allJobs)), nav: true },
  fleet: { name: 'Fleet', draw: later(() => import('./view/fleet.js').then(m => m.fleet)), nav: true },
  job: { name: 'Job', draw: later(() => import('./view/job.js').then(m => m.job)) },
};

/** The view in the navigation that one is below of. @type {Record<string, string>} */
const above = { type: 'types', job: 'jobs' };

const shown = () => views[place.value.path[0]];

/** What one does at the door. */
function doorway() {
  const asking = door.value === 'asking';
  const said = /** @type {Record<string, string>} */ ({
    token: 'This broker wants a token, with the scope watch or admin.',
    wrong: 'The broker does not know this token.',
    scope: 'This token may not look: it has neither the scope watch nor admin.',
    asking: 'Asking. A wrong token is refused slowly…',
  });
  return html`<main class="door"><form onSubmit=${(/** @type {any} */ e) => {
    e.preventDefault();
    const given = e.target.elements.token.value.trim();
    if (!/^[\x20-\x7e]*$/.test(given)) { // no header has it
      door.value = 'wrong';
      return;
    }
    token.value = given;
    enter();
  }}>
    <h1>Gloom</h1>
    <p role="status">${said[door.value]}</p>
    <label>Token <input name="token" type="password" autocomplete="off" required autofocus readonly=${asking} /></label>
    <p><button class="first" disabled=${asking}>Go in</button></p>
    <p class="note">It is kept in this tab's memory alone, and forgotten with it.</p>
  </form></main>`;
}

function top() {
  const { severe, warning } = wrongs(), bad = away.value ? 0 : severe + warning;
  return html`<header class="top">
    <a class="logo" href="#/"><svg viewBox="0 0 16 16" aria-hidden="true"><rect width="16" height="16" rx="3.5" /><path d="M3 5h10M3 8h7M3 11h4" /></svg>Gloom</a>
    <nav aria-label="Views"><ul>${tabs().map(([path, v]) => html`<li key=${path}>
      <a href=${to([path])} aria-current=${shown() === v || above[place.value.path[0]] === path ? 'page' : undefined}>${v.name}</a>
      ${path === '' && bad > 0 && badge(count(bad), severe ? 'severe' : 'warning')}</li>`)}
      ${(status.value?.links ?? []).map((/** @type {any} */ l) => html`<li key=${l.url}><a href=${l.url} rel="noreferrer">${l.name} ↗</a></li>`)}</ul></nav>
    ${finder('Find a job or a type', fits, find)}
    <button type="button" class="small" aria-label="Help" aria-keyshortcuts="?" onClick=${help}>?</button>
  </header>`;
}

/** Some types and jobs that have this in their names. Jobs are looked through, of many the first million: for no less than three letters.
 * @param {string} what @returns {Promise<import('./find.js').Hit[]>} */
async function fits(what) {
  const [types, jobs] = await Promise.all([call('GET', `/v1/types?filter=${enc(what)}&limit=6`), what.length < 3 ? { items: [] } : call('GET', `/v1/jobs?id=${enc(what)}&limit=6`)]);
  return [...types.items.map((/** @type {any} */ t) => ({ name: t.type, kind: 'type', href: to(['type', t.type]) })),
    ...jobs.items.map((/** @type {any} */ j) => ({ name: j.id, kind: j.state, href: to(['job', j.id]) }))];
}

/** Goes to the job with this id, or else to the types and jobs that have it in their names.
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

const tabs = () => Object.entries(views).filter(([path, v]) => v.nav && (path !== 'fleet' || status.value?.fleet));

const keys = () => [['/', 'find a job or a type'], ['?', 'this help'], [`1 … ${tabs().length}`, 'the views, from left to right'], ['r', 'look again at once'], ['Esc', 'leave a field or a dialog']];

function help() {
  ask({
    title: 'Keys', body: html`<dl class="keys">${keys().map(([k, what]) => html`<div><dt><kbd>${k}</kbd></dt><dd>${what}</dd></div>`)}</dl>
      <p class="note">Rates and times are of the last seconds; plots of the last five minutes. <code>gloom top</code>, <code>gloom explain ID</code> and${' '}
      <code>gloom findings</code> show the same on a terminal.</p>`,
  });
}

addEventListener('keydown', e => {
  const in_ = /** @type {HTMLElement} */ (e.target);
  if (e.key === 'Escape' && in_.matches?.('input')) in_.blur();
  if (e.ctrlKey || e.metaKey || e.altKey || dialog.value || in_.matches?.('input, textarea, select')) return;
  if (e.key === '/') {
    e.preventDefault();
    finding = true;
  } else if (e.key === '?') help();
  else if (e.key === 'r') { anew(); again(); say('Looked again.'); }
  else if (tabs()[+e.key - 1]) location.hash = to([tabs()[+e.key - 1][0]]);
});

let finding = false;

addEventListener('keyup', () => { // so that the key is not typed into the field
  if (finding) document.getElementById('find')?.focus();
  finding = false;
});

/** The one dialog, as it is opened and left. */
function window_() {
  const d = dialog.value;
  if (!d) return null;
  const busy = doing.value === d;
  /** @type {HTMLDialogElement} */
  let box;
  const leave = () => {
    if (dialog.peek() !== d) return; // another one has been opened meanwhile
    box.close(); // so that the focus is where it was
    dialog.value = null;
  };
  return html`<dialog aria-labelledby="asks" ref=${(/** @type {any} */ e) => {
    if (!e) return;
    box = e;
    if (!e.open) e.showModal();
  }} onClose=${leave}>
    <form method="dialog" onSubmit=${async (/** @type {any} */ e) => {
      e.preventDefault();
      if (doing.peek() === d) return; // once is enough, as the button says
      doing.value = d;
      wrong.value = '';
      try {
        if (!d.go || await d.go(new FormData(e.target)) !== false && !wrong.peek()) leave();
      } finally {
        if (doing.peek() === d) doing.value = null;
      }
    }}>
      <h2 id="asks">${d.title}</h2>
      <div class="what">${typeof d.body === 'function' ? d.body() : d.body}</div>
      <p class=${wrong.value ? 'severe' : 'off'} role="status">${wrong.value || busy && 'The broker is asked.'}</p>
      <menu><button type="button" onClick=${leave}>${d.leave ?? (d.go ? 'Leave it' : 'Close')}</button>
        ${d.go && html`<button class=${d.danger ? 'danger first' : 'first'} aria-disabled=${busy}>${d.button ?? 'Do it'}${busy && '…'}</button>`}</menu>
    </form></dialog>`;
}

function said() {
  return html`<div class="notes" role="status" aria-live="polite">${notes.value.map(n => html`<p key=${n.n} class=${n.bad ? 'bad' : ''}>${n.text}
    ${n.undo && html` <button type="button" class="small" onClick=${() => { drop(n.n); n.undo?.(); }}>Undo</button>`}
    <button type="button" class="small" aria-label="Away with it" onClick=${() => drop(n.n)}>×</button></p>`)}</div>`;
}

function absence() {
  if (!away.value) return null;
  second.value;
  return html`<aside class="away" aria-label="The connection"><b role="status">${refusal.value ? `The broker refuses its events: ${refusal.value}` : 'The broker does not answer'}</b>, for ${time((Date.now() - away.value) / 1000)}.
    ${heard.value ? ` What you see is from ${clock(heard.value)}.` : ''} Trying again.</aside>`;
}

function page() {
  if (door.value) return doorway();
  came.value;
  const view = shown();
  let drawn;
  try {
    drawn = view ? view.draw() : html`<h1>There is no such view</h1><div class="empty"><p>Perhaps the address was cut.</p><p><a href="#/">Overview</a></p></div>`;
  } catch (e) {
    console.error(e);
    drawn = html`<div class="empty"><p>This view is broken: ${String(e)}</p></div>`;
  }
  return html`${top()}${absence()}<main class=${away.value ? 'stale' : ''} tabindex="-1">${drawn}</main>${window_()}${said()}`;
}

let left = -1;

/** Has the tabs scrolled, where they are, so that the current one is seen. */
function inSight() {
  /** @type {HTMLElement | null} */
  const tab = document.querySelector('nav [aria-current]');
  if (tab && tab.offsetLeft !== left) tab.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  left = tab?.offsetLeft ?? -1;
}

live();
if (!door.value && !status.value) enter();

const root = document.body.appendChild(document.createElement('div'));
root.id = 'page';
effect(() => {
  begin();
  render(page(), root);
  end();
  inSight();
});
effect(() => { document.title = plain([away.value && 'away', place.value.path[1], shown()?.name, 'Gloom'].filter(Boolean).join(' · ')); });
