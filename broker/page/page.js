// Draws the frame around the views, and chooses the view.
import { html, render, effect } from './html.js';
import { beginRound, firstAnswers, endRound, loadStatus, repeatQueries, access, noun, status, token } from './api.js';
import { awaySince, shownFrom, startSource, refusal, everySecond } from './live.js';
import { timeOfDay, escapeLine, duration } from './format.js';
import { refreshListings, openDialog, dialog, busyDialog, removeNote, notes, place, addNote, link, dialogError } from './parts.js';
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

const currentView = () => page.views[place.value.path[0]];

/** The texts of the page that asks for a token. */
function accessPage() {
  const asking = access.value === 'asking';
  const texts = /** @type {Record<string, string>} */ ({
    token: `This ${noun} needs a token with the scope ${page.scopes}.`,
    wrong: `The ${noun} does not know this token.`,
    scope: `This token may not read this page: it lacks the scope ${page.scopes}.`,
    asking: 'Asking. A wrong token is refused slowly…',
  });
  return html`<main class="door"><form onSubmit=${(/** @type {any} */ e) => {
    e.preventDefault();
    const given = e.target.elements.token.value.trim();
    if (!/^[\x20-\x7e]*$/.test(given)) { // an HTTP header cannot contain this token
      access.value = 'wrong';
      return;
    }
    token.value = given;
    loadStatus();
  }}>
    <h1>${brand}</h1>
    <p role="status">${texts[access.value]}</p>
    <label>Token <input name="token" type="password" autocomplete="off" required autofocus readonly=${asking} /></label>
    <p><button class="first" disabled=${asking}>Go in</button></p>
    <p class="note">It is kept only in this tab's memory, and forgotten when the tab closes.</p>
  </form></main>`;
}

function header() {
  const at = place.value.path[0];
  return html`<header class="top">
    <a class="logo" href="#/"><svg viewBox="0 0 16 16" aria-hidden="true"><rect width="16" height="16" rx="3.5" /><path d="M3 5h10M3 8h7M3 11h4" /></svg>${brand}</a>
    <nav aria-label="Views"><ul>${tabs().map(([path, v]) => html`<li key=${path}>
      <a href=${link([path])} aria-current=${currentView() === v || page.above?.[at] === path ? 'page' : undefined}>${v.name}</a>
      ${path === '' && page.mark?.()}</li>`)}
      ${(status.value?.links ?? []).map((/** @type {any} */ l) => html`<li key=${l.url}><a href=${l.url} rel="noreferrer">${l.name} ↗</a></li>`)}</ul></nav>
    ${finder(page.find.label, page.find.fits, page.find.go)}
    <button type="button" class="small" aria-label="Help" aria-keyshortcuts="?" onClick=${showHelp}>?</button>
  </header>`;
}

const tabs = () => Object.entries(page.views).filter(([, v]) => typeof v.nav === 'function' ? v.nav() : v.nav);

const keyHelp = () => [['/', page.find.label.toLowerCase()], ['?', 'this help'], [`1 … ${tabs().length}`, 'the views, from left to right'], ['r', 'refresh now'], ['Esc', 'leave a field or a dialog']];

function showHelp() {
  openDialog({
    title: 'Keys', body: html`<dl class="keys">${keyHelp().map(([k, what]) => html`<div><dt><kbd>${k}</kbd></dt><dd>${what}</dd></div>`)}</dl>
      <p class="note">${page.help}</p>`,
  });
}

addEventListener('keydown', e => {
  const in_ = /** @type {HTMLElement} */ (e.target);
  if (e.key === 'Escape' && in_.matches?.('input')) in_.blur();
  if (e.ctrlKey || e.metaKey || e.altKey || dialog.value || in_.matches?.('input, textarea, select')) return;
  if (e.key === '/') {
    e.preventDefault();
    focusFind = true;
  } else if (e.key === '?') showHelp();
  else if (e.key === 'r') { refreshListings(); repeatQueries(); addNote('Refreshed.'); }
  else if (tabs()[+e.key - 1]) location.hash = link([tabs()[+e.key - 1][0]]);
});

let focusFind = false;

addEventListener('keyup', () => { // so that the key is not typed into the field
  if (focusFind) document.getElementById('find')?.focus();
  focusFind = false;
});

/** The dialog, if one is open. */
function dialogBox() {
  const d = dialog.value;
  if (!d) return null;
  const busy = busyDialog.value === d;
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
      if (busyDialog.peek() === d) return; // the action is in progress already
      busyDialog.value = d;
      dialogError.value = '';
      try {
        if (!d.go || await d.go(new FormData(e.target)) !== false && !dialogError.peek()) leave();
      } finally {
        if (busyDialog.peek() === d) busyDialog.value = null;
      }
    }}>
      <h2 id="asks">${d.title}</h2>
      <div class="what">${typeof d.body === 'function' ? d.body() : d.body}</div>
      <p class=${dialogError.value ? 'severe' : 'off'} role="status">${dialogError.value || busy && `Waiting for the ${noun}…`}</p>
      <menu><button type="button" onClick=${leave}>${d.leave ?? (d.go ? 'Leave it' : 'Close')}</button>
        ${d.go && html`<button class=${d.danger ? 'danger first' : 'first'} aria-disabled=${busy}>${d.button ?? 'Do it'}${busy && '…'}</button>`}</menu>
    </form></dialog>`;
}

function noteList() {
  return html`<div class="notes" role="status" aria-live="polite">${notes.value.map(n => html`<p key=${n.n} class=${n.bad ? 'bad' : ''}>${n.text}
    ${n.undo && html` <button type="button" class="small" onClick=${() => { removeNote(n.n); n.undo?.(); }}>Undo</button>`}
    <button type="button" class="small" aria-label="Dismiss" onClick=${() => removeNote(n.n)}>×</button></p>`)}</div>`;
}

function awayNotice() {
  if (!awaySince.value) return null;
  everySecond.value;
  return html`<aside class="away" aria-label="The connection"><b role="status">${refusal.value ? `The ${noun} ${page.source.refuses}: ${refusal.value}` : `The ${noun} does not answer`}</b>, for ${duration((Date.now() - awaySince.value) / 1000)}.
    ${shownFrom() ? ` What you see is from ${timeOfDay(shownFrom())}.` : ''} Trying again.</aside>`;
}

function drawPage() {
  if (access.value) return accessPage();
  firstAnswers.value;
  const view = currentView();
  let drawn;
  try {
    drawn = view ? view.draw() : html`<h1>There is no such view</h1><div class="empty"><p>The address may be incomplete.</p><p><a href="#/">${page.views[''].name}</a></p></div>`;
  } catch (e) {
    console.error(e);
    drawn = html`<div class="empty"><p>This view is broken: ${String(e)}</p></div>`;
  }
  return html`${header()}${awayNotice()}<main class=${awaySince.value ? 'stale' : ''} tabindex="-1">${drawn}</main>${dialogBox()}${noteList()}`;
}

let lastTabLeft = -1;

/** Scrolls the tabs, if they can be scrolled, so that the current one is visible. */
function scrollToTab() {
  /** @type {HTMLElement | null} */
  const tab = document.querySelector('nav [aria-current]');
  if (tab && tab.offsetLeft !== lastTabLeft) tab.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  lastTabLeft = tab?.offsetLeft ?? -1;
}

/** Draws the page of a daemon from now on. @param {Page} of */
export function start(of) {
  page = of;
  startSource(page.source);
  if (!access.value && !status.value) loadStatus();
  const root = document.body.appendChild(document.createElement('div'));
  root.id = 'page';
  effect(() => {
    beginRound();
    render(drawPage(), root);
    endRound();
    scrollToTab();
  });
  effect(() => { document.title = escapeLine([awaySince.value && 'away', place.value.path[1], currentView()?.name, brand].filter(Boolean).join(' · ')); });
}
