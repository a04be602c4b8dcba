// A search box for a matcher, and a form that builds a matcher. The matcher is kept as text, so
// that numbers stay as they were typed.
import { html, signal } from '../html.js';

const operators = /** @type {[string, string][]} */ ([['eq', 'is'], ['ne', 'is not'], ['lt', 'is less than'], ['le', 'is at most'], ['gt', 'is more than'], ['ge', 'is at least'],
  ['in', 'is one of, [a, b]'], ['glob', 'matches, with *'], ['regex', 'matches the expression'], ['exists', 'is there, true or false'], ['type', 'is of the type']]);

/** Reports whether a text is JSON. @param {string} text */
export function isJSON(text) {
  try { JSON.parse(text); return true; } catch { return false; }
}

/** Returns the JSON of a condition. A value that is not JSON becomes a string. @param {string}
 * field @param {string} op @param {string} value */
const condition = (field, op, value) =>
  `{"field":${JSON.stringify(field[0] === '/' ? field : '/' + field)},"op":"${op}","value":${['glob', 'regex', 'type'].includes(op) || !isJSON(value) ? JSON.stringify(value) : value.trim()}}`;

/** Combines two matchers. @param {string} a @param {'all'|'any'} how @param {string} b */
function combine(a, how, b) {
  if (!a.trim() || a.trim() === '{}') return b;
  const list = JSON.parse(a)[how];
  return list?.length ? a.trim().replace(/\]\s*\}$/, `,${b}]}`) : `{"${how}":[${a.trim()},${b}]}`;
}

/** The text in the box, and the error shown for it. */
const boxText = signal(''), wrong = signal('');
let address = '';

/** @param {string} match the current one @param {(match: string) => void} go */
export function searchBox(match, go) {
  if (address !== match) { // the address has changed
    address = boxText.value = match;
    wrong.value = '';
  }
  const search = (/** @type {string} */ text) => {
    wrong.value = text.trim() && !isJSON(text) ? 'The matcher is not valid JSON.' : '';
    if (!wrong.value) go(text.trim());
  };
  return html`<form class="matcher" role="search" aria-label="Matcher" onSubmit=${(/** @type {any} */ e) => { e.preventDefault(); search(boxText.value); }}>
      <label>Matcher, JSON <input name="match" spellcheck="false" autocomplete="off" placeholder='{"field": "/argument/user", "op": "eq", "value": 7}'
        value=${boxText.value} onInput=${(/** @type {any} */ e) => { boxText.value = e.target.value; }} /></label>
      <button class="first">Search</button>
      ${match && html`<button type="button" onClick=${() => search('')}>Clear</button>`}
    </form>
    ${wrong.value && html`<p class="severe" role="status">${wrong.value}</p>`}
    <details class="helper"><summary>Build a matcher</summary><form class="filters" onSubmit=${(/** @type {any} */ e) => {
      e.preventDefault();
      const f = Object.fromEntries(new FormData(e.target)), one = condition(String(f.field), String(f.op), String(f.value));
      if (boxText.value.trim() && !isJSON(boxText.value)) { wrong.value = 'The matcher is not valid JSON.'; return; }
      search(combine(boxText.value, f.how === 'any' ? 'any' : 'all', f.not ? `{"not":${one}}` : one));
    }}>
      <label>Field <input name="field" list="fields" required defaultValue="/argument/" spellcheck="false" autocomplete="off" /></label>
      <datalist id="fields">${['/name', '/priority', '/argument/', '/max_retry', '/timeout', '/keep_result'].map(v => html`<option key=${v} value=${v} />`)}</datalist>
      <label>Test <select name="op">${operators.map(([v, text]) => html`<option key=${v} value=${v}>${text}</option>`)}</select></label>
      <label>Value <input name="value" required spellcheck="false" autocomplete="off" /></label>
      <label>Not <select name="not"><option value="">as it is</option><option value="yes">the opposite</option></select></label>
      <label>Combine with the matcher by <select name="how"><option value="all">and</option><option value="any">or</option></select></label>
      <button>Add</button></form></details>`;
}
