// The search field: matches are listed as the user types.
import { html, signal } from './html.js';

/** @typedef {{name: string, kind: string, href: string}} Hit */
const hits = signal(/** @type {Hit[]} */ ([]));

/** The index of the chosen hit; -1 for none. */
const chosen = signal(-1);

let timer = 0, round = 0;

function close() {
  clearTimeout(timer);
  round++; // matches that arrive later are ignored
  hits.value = [];
  chosen.value = -1;
}

/** @param {string} label @param {(what: string) => Promise<Hit[]>} search returns what matches a text @param {(what: string) => any} go where Enter leads if no hit is chosen */
export function finder(label, search, go) {
  const list = hits.value, n = list.length;
  const leave = (/** @type {HTMLFormElement} */ form, /** @type {Hit | undefined} */ hit) => {
    const { find } = /** @type {any} */ (form.elements), what = find.value.trim();
    close();
    form.reset();
    find.blur();
    if (hit) location.hash = hit.href;
    else if (what) go(what);
  };
  return html`<form role="search" onSubmit=${(/** @type {any} */ e) => { e.preventDefault(); leave(e.currentTarget, list[chosen.value]); }}>
    <input id="find" name="find" role="combobox" autocomplete="off" spellcheck="false" placeholder=${label} aria-label=${label} aria-keyshortcuts="/"
      aria-autocomplete="list" aria-controls="hits" aria-expanded=${String(n > 0)} aria-activedescendant=${chosen.value < 0 ? undefined : 'hit' + chosen.value}
      onInput=${(/** @type {any} */ e) => {
        const what = e.target.value.trim(), mine = ++round;
        clearTimeout(timer);
        if (!what) return close();
        timer = setTimeout(async () => {
          const found = await search(what).catch(() => []);
          if (mine !== round) return;
          hits.value = found;
          chosen.value = -1;
        }, 150);
      }}
      onKeyDown=${(/** @type {any} */ e) => {
        const step = ({ ArrowDown: 1, ArrowUp: -1 })[/** @type {string} */ (e.key)];
        if (!step || !n) return;
        e.preventDefault();
        chosen.value = (chosen.value + 1 + step + n + 1) % (n + 1) - 1; // -1, the field itself, comes between the last hit and the first
      }} onBlur=${close} />
    <ul id="hits" role="listbox" aria-label="Matches" hidden=${!n}>${list.map((h, i) => html`<li key=${h.href} id=${'hit' + i} role="option" aria-selected=${String(i === chosen.value)}
      onMouseDown=${(/** @type {any} */ e) => { e.preventDefault(); leave(e.currentTarget.closest('form'), h); }}><span class="name">${h.name}</span> <span class="note">${h.kind}</span></li>`)}</ul></form>`;
}
