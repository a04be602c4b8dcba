// A plot with a legend that shows the values under the pointer.
import { html, Component, painted } from './html.js';
import { timeOfDay, count, rate, duration } from './format.js';

/** @typedef {{name: string, key: string, color: string, dash?: number[], fill?: boolean}} Line */

const dark = matchMedia('(prefers-color-scheme: dark)');
const css = (/** @type {string} */ name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The end of a scale: a round number above the largest value.
 * @param {number} most @param {number} least */
function axisMax(most, least) {
  most = Math.max(most * 1.05, least);
  const step = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 2.5, 5, 10].map(f => f * step).find(n => n >= most) ?? most;
}

/** uPlot, loaded after the first paint, so that nothing waits for it.
 * @type {Promise<any> | undefined} */
let library;

const loadLibrary = () => library ??= painted.then(() => new Promise((go, stop) => {
  document.head.append(Object.assign(document.createElement('script'), { src: 'lib/uPlot.iife.min.js', onload: go, onerror: stop }));
}));

/** Props: title; lines; t: times; of: columns by key; show: (value) => text; least: the least end of the scale;
 * @extends {Component<any, any>} */
export class Plot extends Component {
  componentDidMount() {
    this.watch = new ResizeObserver(() => this.plot?.setSize(this.size()));
    this.watch.observe(this.box);
    this.theme = () => { if (this.plot) { this.plot.destroy(); this.make(); } };
    dark.addEventListener('change', this.theme);
    loadLibrary().then(() => this.box.isConnected && this.make(), () => { library = undefined; });
  }

  componentWillUnmount() {
    this.watch?.disconnect();
    dark.removeEventListener('change', this.theme);
    this.plot?.destroy();
  }

  componentDidUpdate() { this.plot?.setData(this.data()); }

  size() { return { width: this.box.clientWidth, height: 150 }; }

  data() {
    const { t, of, lines } = this.props;
    return [t, ...lines.map((/** @type {Line} */ l) => of[l.key])];
  }

  make() {
    const { lines, show, least = 1 } = this.props;
    const axis = { stroke: css('--muted'), font: '11px system-ui, sans-serif', grid: { stroke: css('--line'), width: 1 }, ticks: { show: false } };
    this.plot = new globalThis.uPlot({
      ...this.size(),
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { size: 6 }, y: false },
      scales: {
        x: { range: () => { const now = Date.now() / 1000; return [now - 300, now]; } },
        y: { range: (/** @type {any} */ _, /** @type {number} */ __, /** @type {number|null} */ most) => [0, axisMax(most ?? 0, least)] },
      },
      axes: [
        { ...axis, space: 70, size: 22, values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map(s => new Date(s * 1000).toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' })), incrs: [60, 120] },
        { ...axis, size: 50, space: 34, values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map(show) },
      ],
      series: [{}, ...lines.map((/** @type {Line} */ l) => ({
        stroke: css(l.color), width: 1.6, dash: l.dash, spanGaps: false, points: { show: false },
        fill: l.fill ? css(l.color) + '22' : undefined,
      }))],
      hooks: { setCursor: [(/** @type {any} */ u) => u.cursor.idx !== this.state.at && this.setState({ at: u.cursor.idx })] },
    }, this.data(), this.box);
  }

  /** The value of a line under the pointer, or its last value.
   * @param {Line} l */
  value(l) {
    const column = this.props.of[l.key], v = column[this.state.at ?? column.length - 1];
    return v === null || v === undefined ? '–' : this.props.show(v);
  }

  render() {
    const { title, lines, note } = this.props;
    return html`<figure class="plot">
      <figcaption>
        <h2>${title}</h2>
        <ul class="legend">${lines.map((/** @type {Line} */ l) => html`<li key=${l.key}>
          <i style=${{ borderColor: `var(${l.color})`, borderTopStyle: l.dash ? 'dashed' : 'solid' }}></i>${l.name} <b>${this.value(l)}</b></li>`)}</ul>
      </figcaption>
      <div class="canvas" role="img" aria-label=${title + ': ' + lines.map((/** @type {Line} */ l) => `${l.name} ${this.value(l)}`).join(', ')}
        ref=${(/** @type {HTMLElement} */ e) => { if (e) this.box = e; }}></div>
      ${note && html`<p class="note">${note}</p>`}
    </figure>`;
  }
}

/** The plots of all jobs, or of one type. A type's values are known only from when its view was opened.
 * @param {import('./live.js').Series} s @param {string} [type] */
export function plots(s, type = '') {
  const since = type && s.t.length > 0 && `, since ${timeOfDay(s.t[0] * 1000)}`;
  return html`<div class="plots" key=${type}>
    <${Plot} title="Does it keep up?" t=${s.t} of=${s.of} show=${rate} least=${5} note=${'jobs per second' + (since || '')}
      lines=${[{ name: 'in', key: 'in', color: '--blue' }, { name: 'out', key: 'out', color: '--green', dash: [5, 3] }, { name: 'failed', key: 'failed', color: '--red' }]} />
    <${Plot} title="What piles up?" t=${s.t} of=${s.of} show=${count} least=${5} note=${'jobs' + (since || '')}
      lines=${[{ name: 'waiting', key: 'queued', color: '--amber', fill: true }, { name: 'running', key: 'running', color: '--blue' }]} />
    <${Plot} title="How long does it take?" t=${s.t} of=${s.of} show=${duration} least=${0.001} note="half and 95 of 100 jobs took less, over the last 10 s"
      lines=${[{ name: 'wait p50', key: 'wait50', color: '--amber' }, { name: 'p95', key: 'wait95', color: '--amber', dash: [4, 3] },
        { name: 'run p50', key: 'run50', color: '--blue' }, { name: 'p95', key: 'run95', color: '--blue', dash: [4, 3] }]} />
  </div>`;
}

/** A small line of past values, without axes.
 * @param {number[]} values */
export function sparkline(values) {
  const most = Math.max(1, ...values), n = values.length;
  if (n < 2) return html`<svg class="spark" aria-hidden="true" />`;
  const points = values.map((v, i) => `${(60 - n + 1 + i).toFixed(0)},${(17 - 15 * v / most).toFixed(1)}`).join(' ');
  return html`<svg class="spark" viewBox="0 0 60 18" preserveAspectRatio="none" aria-hidden="true"><polyline points=${points} /></svg>`;
}
