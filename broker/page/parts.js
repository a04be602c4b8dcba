// Small parts of views.
import { html, signal } from './html.js';
import { call, repeatQueries, encode, mayUse, noun } from './api.js';
import { timeOfDay, count, plural } from './format.js';

/** The place that the address names: '#/type/mail?state=queued' is {path: ['type', 'mail'], query}. */
export const place = signal(readPlace());

function readPlace() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split(/\?(.*)/s);
  return {
    path: path.split('/').map(s => { try { return decodeURIComponent(s); } catch { return s; } }),
    query: new URLSearchParams(query),
  };
}

addEventListener('hashchange', () => {
  refreshListings();
  dialog.value = null; // the link may have been in the dialog
  place.value = readPlace();
  scrollTo(0, 0);
  document.querySelector('main')?.focus({ preventScroll: true });
});

/** An address within the page.
 * @param {(string|number)[]} path @param {Record<string, any>} [query] */
export function link(path, query = {}) {
  const q = new URLSearchParams(Object.entries(query).filter(([, v]) => v !== '' && v !== undefined && v !== null && v !== false));
  return '#/' + path.map(s => encode(String(s))).join('/') + (q.size ? '?' + q : '');
}

/** Changes the query of the address without a new entry in the history.
 * @param {Record<string, any>} query */
export function setQuery(query) {
  const now = Object.fromEntries(place.peek().query);
  history.replaceState(null, '', link(place.peek().path, { ...now, ...query }));
  place.value = readPlace();
}

export const jobLink = (/** @type {string} */ id) => html`<a class="name id" href=${link(['job', id])}>${id}</a>`;

/** @param {string} text @param {string} kind ok, warning, severe, info or '' */
export const badge = (text, kind = '') => html`<span class=${'badge ' + kind}>${text}</span>`;

/** Says in words how many findings there are; the second element is the kind of badge. @param {{severe?: number, warning?: number}} n how many findings there are */
export const verdict = ({ severe, warning }) => severe ? [severe === 1 ? 'One thing is wrong' : `${count(severe)} things are wrong`, 'severe']
  : warning ? [warning === 1 ? 'One thing needs attention' : `${count(warning)} things need attention`, 'warning'] : ['Everything is healthy', 'ok'];

/** A view whose file is loaded when it is first shown.
 * @param {() => Promise<() => any>} load @param {any} [meanwhile] */
export function lazyView(load, meanwhile = html`<div class="empty loading" role="status"><p>Loading…</p></div>`) {
  const view = signal(() => meanwhile);
  let asked = false;
  return () => {
    if (!asked) {
      asked = true;
      load().then(draw => { view.value = draw; }, e => {
        console.warn(e);
        failedViews.add(() => { asked = false; view.value = () => meanwhile; });
        view.value = () => html`<div class="empty" role="status"><p>This view could not be loaded.</p><p><button type="button" onClick=${refreshListings}>Try again</button></p></div>`;
      });
    }
    return view.value();
  };
}

/** Views that could not be loaded. @type {Set<() => void>} */
const failedViews = new Set();

/** Makes listings be requested again, and views that failed to load be loaded again, the next time
 * that they are shown. */
export function refreshListings() {
  for (const l of Listing.all) l.path = l.shown = '';
  for (const go of failedViews) go();
  failedViews.clear();
}

/** The text in place of an empty list.
 * @param {any} what @param {any} [more] */
export const empty = (what, more) => html`<div class="empty"><p>${what}</p>${more && html`<div class="note">${more}</div>`}</div>`;

/** What to show while a request has no answer yet; null once it has one.
 * @param {import('./api.js').Reply} r */
export function pendingText(r) {
  if (r.data !== undefined) return null;
  if (!r.error) return html`<div class="empty loading" role="status"><p>Asking the ${noun}…</p></div>`;
  return html`<div class="empty" role="status"><p>${r.code ? r.error.message : `The ${noun} does not answer. It is asked again.`}</p></div>`;
}

/** A list of facts; those without a value are left out.
 * @param {[string, any][]} rows */
export const facts = rows => html`<dl class="facts">${rows.filter(([, v]) => v !== undefined && v !== null && v !== '' && v !== false).map(([k, v]) =>
  html`<div key=${k}><dt>${k}</dt><dd>${v}</dd></div>`)}</dl>`;

/** A part of a whole as a bar.
 * @param {string} name @param {number} part @param {number} whole @param {(n: number) => string} show */
export function shareBar(name, part, whole, show) {
  const full = whole ? Math.min(1, part / whole) : 0;
  return html`<div class=${'share' + (full >= 0.9 ? ' high' : '')}>
    <span>${name}</span><span class="num">${show(part)}${whole ? html` <span class="muted">of ${show(whole)}</span>` : ''}</span>
    ${whole ? html`<meter min="0" max="1" high="0.9" value=${full} aria-label=${name}></meter>` : ''}</div>`;
}

/** A button that copies a text, even on plain HTTP, where browsers offer no clipboard.
 * @param {string} text @param {string} [what] */
export function copyButton(text, what = 'Copy') {
  return html`<button class="small" type="button" onClick=${async (/** @type {any} */ e) => {
    const button = e.currentTarget;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement('textarea');
      area.value = text;
      area.className = 'off';
      (button.closest('dialog') ?? document.body).append(area);
      area.select();
      document.execCommand('copy');
      area.remove();
      button.focus();
    }
    addNote('Copied.');
  }}>${what}</button>`;
}

// The notes at the bottom of the page say what was done.

/** @type {import('./lib/signals-core.mjs').Signal<{n: number, text: string, bad?: boolean, undo?: () => void}[]>} */
export const notes = signal([]);
let noteCount = 0;

/** @param {string} text @param {{bad?: boolean, undo?: () => void}} [more] */
export function addNote(text, more = {}) {
  const n = ++noteCount;
  notes.value = [...notes.peek().slice(-3), { n, text, ...more }];
  setTimeout(() => removeNote(n), more.bad || more.undo ? 12000 : 5000);
}

/** @param {number} n */
export const removeNote = n => { notes.value = notes.peek().filter(x => x.n !== n); };

/** Does something and shows a note about the result, unless done is ''.
 * @param {() => Promise<any>} what @param {string | ((reply: any) => string)} done @param {() => any} [undo]
 * @returns {Promise<any>} the reply, or undefined */
export async function runAction(what, done, undo) {
  try {
    const reply = await what() ?? true;
    const text = typeof done === 'function' ? done(reply) : done;
    if (text) addNote(text, { undo: undo && (() => runAction(undo, 'Undone.')) });
    repeatQueries();
    return reply;
  } catch (e) {
    const why = 'Not done: ' + (e instanceof Error ? e.message : e);
    if (busyDialog.peek() && busyDialog.peek() === dialog.peek()) dialogError.value = why;
    else addNote(why, { bad: true });
    repeatQueries();
    return undefined;
  }
}

/** Does something to some rows, one after the other, and returns their number; it throws if one was refused.
 * @param {any[]} rows @param {(row: any) => Promise<any>} what */
export async function forEachRow(rows, what) {
  const refused = [];
  for (const r of rows) await what(r).catch(e => refused.push(e.message));
  if (refused.length) throw new Error(`${count(refused.length)} of ${count(rows.length)} refused: ${refused[0]}`);
  return rows.length;
}

// One dialog at a time.

/** @typedef {{title: string, body?: any, button?: string, leave?: string, danger?: boolean, go?: (form: FormData) => any}} Dialog */
/** @type {import('./lib/signals-core.mjs').Signal<Dialog | null>} */
export const dialog = signal(null);

/** The dialog whose action is in progress. */
export const busyDialog = signal(/** @type {Dialog | null} */ (null));

/** Why the dialog's action failed. The dialog stays open, with what was typed. */
export const dialogError = signal('');

/** @param {Dialog} d */
export const openDialog = d => { dialog.value = d; dialogError.value = ''; };

/** Does something to all items that match a filter, after showing their number and asking for confirmation.
 * @param {{path: string, filter: Record<string, any>, verb: string, one: string, type: string, danger?: boolean, body: any, done: (reply: any) => string, after: (reply: any) => any}} o */
export async function bulkAction({ path, filter, verb, one, type, danger, body, done, after }) {
  const meant = Object.keys(filter).length ? filter : { all: true };
  const n = await runAction(() => call('POST', path + '?count=true', meant), r => `${plural(r.before, one)} ${r.before === 1 ? 'matches' : 'match'}.`);
  if (!n?.before) return;
  const what = `${verb} ${plural(n.before, one)}`;
  openDialog({
    title: `${what} of ${type}?`, danger, button: what, body,
    go: () => runAction(() => call('POST', path, { ...meant, most: n.before }), done).then(after), // no more than were counted
  });
}

/** A button, shown only if the token has the scope.
 * @param {string} text @param {() => any} go @param {{scope?: string, danger?: boolean, title?: string, first?: boolean}} [o] */
export const button = (text, go, o = {}) => mayUse(o.scope ?? 'admin')
  ? html`<button type="button" class=${(o.danger ? 'danger' : '') + (o.first ? ' first' : '')} title=${o.title} onClick=${go}>${text}</button>` : null;

/** A button that makes another job like the one that is shown, and goes to it.
 * @param {() => Promise<string>} make returns its address @param {string} scope */
export const duplicateButton = (make, scope) => button('Duplicate', () => openDialog({
  title: 'Another job like this one?', button: 'Duplicate it', body: html`<p>The copy has the same argument and starts from the beginning. This job stays as it is.</p>`,
  go: () => runAction(async () => { const at = await make(); setTimeout(() => { location.hash = at; }); }, 'It is added.'),
}), { scope });

// Listings that are read page by page.

/** @typedef {(path: string, next: any) => Promise<{items: any[], next?: any}>} Reading
 * reads a part of a listing, from the start or from where the previous part ended */

/** @type {Reading} */
async function readPage(path, next) {
  const r = await call('GET', path + (path.includes('?') ? '&' : '?') + 'limit=50' + (next === undefined ? '' : '&cursor=' + encode(next)));
  return { items: r.items, next: r.next ?? r.cursor ?? undefined };
}

/** A listing of /v1: what has been read of it, and how to continue. */
export class Listing {
  /** @type {import('./lib/signals-core.mjs').Signal<{items: any[], next?: any, busy: boolean, error?: Error, looked: number, at: number}>} */
  state = signal({ items: [], busy: false, looked: 0, at: 0 });
  path = '';
  soon = 0;

  /** @type {Listing[]} */
  static all = [];

  /** @param {Reading} [how] @param {string} [looked] how many items a part examines at most, in words */
  constructor(how = readPage, looked = 'million jobs') { this.how = how; this.many = looked; Listing.all.push(this); }

  /** Begins to read if the path has changed, and returns what has been read.
   * @param {string} path */
  of(path) {
    if (path !== this.path) {
      clearTimeout(this.soon);
      this.soon = setTimeout(() => this.read(true), this.path ? 200 : 0); // the user may still be typing
      this.path = path;
    }
    return this.rows();
  }

  /** What has been read of this path. */
  rows() {
    const s = this.state.value;
    return this.shown === this.path ? s : { items: [], busy: true, looked: 0, at: 0 };
  }

  /** Reads until there are more rows, or the end is reached.
   * @param {boolean} [anew] from the start */
  async read(anew = false) {
    const path = this.path, was = this.state.peek();
    if (was.busy && !anew) return;
    let items = anew ? [] : was.items, next = anew ? undefined : was.next, looked = 0;
    const shown = anew && this.shown === path ? was.items : items, at = anew ? Date.now() : was.at;
    this.shown = path;
    this.state.value = { items: shown, next, busy: true, looked, at: was.at };
    try {
      for (let found = 0; !found; looked++) {
        const more = await this.how(path, next);
        if (path !== this.path) return;
        for (const x of more.items) x.at = Date.now();
        items = items.concat(more.items);
        found = more.items.length;
        next = more.next;
        if (next === undefined) break;
        if (!found) this.state.value = { items, next, busy: true, looked: looked + 1, at };
      }
      this.state.value = { items, next, busy: false, looked, at };
    } catch (e) {
      if (path === this.path) this.state.value = { items, next, busy: false, error: /** @type {Error} */ (e), looked, at };
    }
  }

  shown = '';
  again() { if (this.path) this.read(true); }

  /** What is shown below the rows. */
  foot() {
    const s = this.rows();
    if (s.error) return html`<p class="note" role="status">${s.error.message} <button type="button" class="small" onClick=${() => this.again()}>Ask again</button></p>`;
    if (s.busy) return html`<p class="note" role="status">Looking…${s.looked > 1 ? ` (${s.looked} ${this.many} looked at)` : ''}</p>`;
    return html`<p class="note">${s.next !== undefined && html`<button type="button" onClick=${() => this.read()}>More</button>`}
      ${' '}<button type="button" class="small" onClick=${() => this.again()}>Look again</button> as of ${timeOfDay(s.at)}</p>`;
  }
}
