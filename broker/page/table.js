// Tables.
import { html, Component, signal } from './html.js';

/** @typedef {{name: string, head?: any, of: (row: any) => any, num?: boolean, wide?: number, sort?: string, title?: string, class?: string}} Column
 * wide: the smallest width of the page, 1 to 3, at which the column is shown */

/** @param {Column} c */
const columnClass = c => [c.num && 'num', c.wide && 'w' + c.wide, c.class].filter(Boolean).join(' ') || undefined;

/** @param {Column[]} columns @param {{sort?: string, by?: (sort: string) => void}} [o] */
function tableHead(columns, o = {}) {
  return html`<thead><tr>${columns.map(c => {
    const [name, up] = (o.sort ?? '').startsWith('-') ? [o.sort?.slice(1), true] : [o.sort, false];
    const mine = c.sort && c.sort === name, falls = mine && (up === (c.sort === 'type'));
    return html`<th key=${c.name} scope="col" class=${columnClass(c)} title=${c.title} aria-sort=${mine ? (falls ? 'descending' : 'ascending') : undefined}>
      ${c.sort && o.by ? html`<button type="button" onClick=${() => o.by?.(mine && !up ? '-' + c.sort : c.sort ?? '')}>${c.name}<i aria-hidden="true">${mine ? (falls ? '↓' : '↑') : ''}</i></button>` : c.head ?? c.name}</th>`;
  })}</tr></thead>`;
}

/** @param {Column[]} columns @param {any} row @param {any} key @param {any} [more] */
const tableRow = (columns, row, key, more) => html`<tr key=${key} ...${more}>${columns.map(c => html`<td key=${c.name} class=${columnClass(c)}>${c.of(row)}</td>`)}</tr>`;

/** Rows that the user has chosen, by their keys. */
export class Selection {
  keys = signal(new Set());

  /** @param {(row: any) => any} key @param {(row: any) => string} label what a row is called */
  constructor(key, label) { this.key = key; this.label = label; }

  /** The chosen ones of some rows. @param {any[]} rows */
  of(rows) { return rows.filter(r => this.keys.value.has(this.key(r))); }

  /** @param {any[]} rows @param {boolean} on */
  set(rows, on) {
    const keys = new Set(this.keys.value);
    for (const r of rows) keys[on ? 'add' : 'delete'](this.key(r));
    this.keys.value = keys;
  }

  /** @param {any[]} rows @returns {Column} */
  column(rows) {
    const box = (/** @type {string} */ label, /** @type {any[]} */ some) => html`<input type="checkbox" aria-label=${'Choose ' + label}
      checked=${this.of(some).length === some.length} onChange=${(/** @type {any} */ e) => this.set(some, e.target.checked)} />`;
    return { name: 'Choose', class: 'pick', head: box('all that are shown', rows), of: r => box(this.label(r), [r]) };
  }
}

/** A table with few rows.
 * @param {string} name @param {Column[]} columns @param {any[]} rows @param {(row: any) => any} key */
export const table = (name, columns, rows, key) => html`<div class="scroll" tabindex="0" role="region" aria-label=${name}>
  <table><caption class="off">${name}</caption>${tableHead(columns)}<tbody>${rows.map(r => tableRow(columns, r, key(r)))}</tbody></table></div>`;

const rowHeight = 37, chunk = 100;

/** A table with many rows, of which only the visible ones are requested and drawn.
 * Props: name, columns, sort, by; ask: (from, limit) => rows or undefined, from a multiple of 100; count; key.
 * @extends {Component<any, {top: number, tall: number}>} */
export class LongTable extends Component {
  state = { top: 0, tall: 600 };

  componentDidMount() {
    this.watch = new ResizeObserver(() => this.setState({ tall: this.box.clientHeight }));
    this.watch.observe(this.box);
  }

  componentWillUnmount() { this.watch?.disconnect(); }

  render() {
    const { name, columns, sort, by, ask, count, of } = this.props, { top, tall } = this.state;
    const first = Math.max(0, Math.floor(top / rowHeight) - 8), last = Math.min(count, Math.ceil((top + tall) / rowHeight) + 8);
    const rows = [];
    for (let from = first - first % chunk; from < last; from += chunk) {
      const some = ask(from, chunk) ?? [];
      for (let i = Math.max(first, from); i < Math.min(last, from + chunk); i++) rows.push([i, some[i - from]]);
    }
    // A placeholder row has one cell: with more, hidden columns would appear.
    return html`<div class="scroll long" tabindex="0" role="region" aria-label=${name} ref=${(/** @type {HTMLElement} */ e) => { if (e) this.box = e; }}
      onScroll=${(/** @type {any} */ e) => this.setState({ top: e.currentTarget.scrollTop })}>
      <table aria-rowcount=${count + 1}><caption class="off">${name}</caption>${tableHead(columns, { sort, by })}
      <tbody>
        ${first > 0 && html`<tr key="before" class="gap" aria-hidden="true"><td style=${{ height: first * rowHeight + 'px' }}></td></tr>`}
        ${rows.map(([i, r]) => r ? tableRow(columns, r, of(r), { 'aria-rowindex': i + 2 })
          : html`<tr key=${'row' + i} aria-rowindex=${i + 2} class="loading"><td>…</td></tr>`)}
        ${last < count && html`<tr key="behind" class="gap" aria-hidden="true"><td style=${{ height: (count - last) * rowHeight + 'px' }}></td></tr>`}
      </tbody></table></div>`;
  }
}
