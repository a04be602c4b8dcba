// Draws the frame around the views, and chooses the view.
import { html, render, effect } from './html.js';
import { begin, came, end, enter, again, door, noun, status, token } from './api.js';
import { away, heard, live, refusal, second } from './live.js';
import { clock, plain, time } from './format.js';
import { anew, ask, dialog, doing, drop, notes, place, say, to, wrong } from './parts.js';
import { finder } from './find.js';

/** @typedef {{name: string, draw: () => any, nav?: boolean | (() => boolean)}} View nav: whether it is in the navigation */
/** @typedef {{
 *   views: Record<string, View>,
 *   above?: Record<string, string>,
 *   scopes: string,
 *   find: {label: string, fits: (what: string) => Promise<import('./find.js').Hit[]>, go: (what: string) => any},
 *   help: any,
 *   mark?: () => any,
 *   source: import('./live.js').Source,
 * }} Page views: by the first part of the address; the view of "" is the first; above: for views
 * that are not in the navigation, the view that is marked there in their place; scopes: the scopes,
 * one of which a token needs, in words; help: the text below the keys; mark: shown beside the first
 * view's name */

/** @type {Page} */
let page;

/** The title of the window: only the daemon's name. */
const brand = document.title;

const shown = () => page.views[place.value.path[0]];

/** The texts of the page that asks for a token. */
function doorway() {
  const asking = door.value === 'asking';
  const said = /** @type {Record<string, string>} */ ({
    token: `This ${noun} needs a token with the scope ${page.scopes}.`,
    wrong: `The ${noun} does not know this token.`,
    scope: `This token may not read this page: it lacks the scope ${page.scopes}.`,
    asking: 'Asking. A wrong token is refused slowly…',
  });
  return html`<main class="door"><form onSubmit=${(/** @type {any} */ e) => {
    e.preventDefault();
    const given = e.target.elements.token.value.trim();
    if (!/^[\x20-\x7e]*$/.test(given)) { // an HTTP header cannot contain this token
      door.value = 'wrong';
      return;
    }
    token.value = given;
    enter();
  }}>
    <h1>${brand}</h1>
    <p role="status">${said[door.value]}</p>
    <label>Token <input name="token" type="password" autocomplete="off" required autofocus readonly=${asking} /></label>
    <p><button class="first" disabled=${asking}>Go in</button></p>
    <p class="note">It is kept only in this tab's memory, and forgotten when the tab closes.</p>
  </form></main>`;
}

function top() {
  const at = place.value.path[0];
  return html`<header class="top">
    <a class="logo" href="#/"><svg viewBox="0 0 16 16" aria-hidden="true"><rect width="16" height="16" rx="3.5" /><path d="M3 5h10M3 8h7M3 11h4" /></svg>${brand}</a>
    <nav aria-label="Views"><ul>${tabs().map(([path, v]) => html`<li key=${path}>
      <a href=${to([path])} aria-current=${shown() === v || page.above?.[at] === path ? 'page' : undefined}>${v.name}</a>
      ${path === '' && page.mark?.()}</li>`)}
      ${(status.value?.links ?? []).map((/** @type {any} */ l) => html`<li key=${l.url}><a href=${l.url} rel="noreferrer">${l.name} ↗</a></li>`)}</ul></nav>
    ${finder(page.find.label, page.find.fits, page.find.go)}
    <button type="button" class="small" aria-label="Help" aria-keyshortcuts="?" onClick=${help}>?</button>
  </header>`;
}

const tabs = () => Object.entries(page.views).filter(([, v]) => typeof v.nav === 'function' ? v.nav() : v.nav);

const keys = () => [['/', page.find.label.toLowerCase()], ['?', 'this help'], [`1 … ${tabs().length}`, 'the views, from left to right'], ['r', 'refresh now'], ['Esc', 'leave a field or a dialog']];

function help() {
  ask({
    title: 'Keys', body: html`<dl class="keys">${keys().map(([k, what]) => html`<div><dt><kbd>${k}</kbd></dt><dd>${what}</dd></div>`)}</dl>
      <p class="note">${page.help}</p>`,
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
  else if (e.key === 'r') { anew(); again(); say('Refreshed.'); }
  else if (tabs()[+e.key - 1]) location.hash = to([tabs()[+e.key - 1][0]]);
});

let finding = false;

addEventListener('keyup', () => { // so that the key is not typed into the field
  if (finding) document.getElementById('find')?.focus();
  finding = false;
});

/** The dialog, if one is open. */
function window_() {
  const d = dialog.value;
  if (!d) return null;
  const busy = doing.value === d;
  /** @type {HTMLDialogElement} */
  let box;
  const leave = () => {
    if (dialog.peek() !== d) return; // another dialog has been opened since
    box.close(); // returns the focus to where it was
    dialog.value = null;
  };
  return html`<dialog aria-labelledby="asks" ref=${(/** @type {any} */ e) => {
    if (!e) return;
    box = e;
    if (!e.open) e.showModal();
  }} onClose=${leave}>
    <form method="dialog" onSubmit=${async (/** @type {any} */ e) => {
      e.preventDefault();
      if (doing.peek() === d) return; // the action is in progress already
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
      <p class=${wrong.value ? 'severe' : 'off'} role="status">${wrong.value || busy && `Waiting for the ${noun}…`}</p>
      <menu><button type="button" onClick=${leave}>${d.leave ?? (d.go ? 'Leave it' : 'Close')}</button>
        ${d.go && html`<button class=${d.danger ? 'danger first' : 'first'} aria-disabled=${busy}>${d.button ?? 'Do it'}${busy && '…'}</button>`}</menu>
    </form></dialog>`;
}

function said() {
  return html`<div class="notes" role="status" aria-live="polite">${notes.value.map(n => html`<p key=${n.n} class=${n.bad ? 'bad' : ''}>${n.text}
    ${n.undo && html` <button type="button" class="small" onClick=${() => { drop(n.n); n.undo?.(); }}>Undo</button>`}
    <button type="button" class="small" aria-label="Dismiss" onClick=${() => drop(n.n)}>×</button></p>`)}</div>`;
}

function absence() {
  if (!away.value) return null;
  second.value;
  return html`<aside class="away" aria-label="The connection"><b role="status">${refusal.value ? `The ${noun} ${page.source.refuses}: ${refusal.value}` : `The ${noun} does not answer`}</b>, for ${time((Date.now() - away.value) / 1000)}.
    ${heard.value ? ` What you see is from ${clock(heard.value)}.` : ''} Trying again.</aside>`;
}

function all() {
  if (door.value) return doorway();
  came.value;
  const view = shown();
  let drawn;
  try {
    drawn = view ? view.draw() : html`<h1>There is no such view</h1><div class="empty"><p>The address may be incomplete.</p><p><a href="#/">${page.views[''].name}</a></p></div>`;
  } catch (e) {
    console.error(e);
    drawn = html`<div class="empty"><p>This view is broken: ${String(e)}</p></div>`;
  }
  return html`${top()}${absence()}<main class=${away.value ? 'stale' : ''} tabindex="-1">${drawn}</main>${window_()}${said()}`;
}

let left = -1;

/** Scrolls the tabs, if they can be scrolled, so that the current one is visible. */
function inSight() {
  /** @type {HTMLElement | null} */
  const tab = document.querySelector('nav [aria-current]');
  if (tab && tab.offsetLeft !== left) tab.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  left = tab?.offsetLeft ?? -1;
}

/** Draws the page of a daemon from now on. @param {Page} of */
export function start(of) {
  page = of;
  live(page.source);
  if (!door.value && !status.value) enter();
  const root = document.body.appendChild(document.createElement('div'));
  root.id = 'page';
  effect(() => {
    begin();
    render(all(), root);
    end();
    inSight();
  });
  effect(() => { document.title = plain([away.value && 'away', place.value.path[1], shown()?.name, brand].filter(Boolean).join(' · ')); });
}
