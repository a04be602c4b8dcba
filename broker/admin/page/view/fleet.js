// Brokers that lend each other jobs.
import { html } from '../html.js';
import { query } from '../api.js';
import { count, plural, duration } from '../format.js';
import { table } from '../table.js';
import { badge, empty, pendingText } from '../parts.js';

/** @param {any} b */
const wantText = b => b.wants.map((/** @type {any} */ w) => `${w.types.join(', ')} (${count(w.places)})`).join('; ');

/** @param {any} f */
const stateBadge = f => f.alone ? badge('alone: another broker has this name', 'severe')
  : f.nats.connected ? badge('together', 'ok') : badge(`alone: NATS has been away for ${duration(f.nats.since_seconds)}`, 'severe');

export function fleetView() {
  const r = query('/v1/fleet');
  const f = r.data;
  return html`<header class="bar"><h1>Fleet</h1>${f?.member && html`<span class="note">this broker is <b class="name">${f.name}</b></span> ${stateBadge(f)}`}</header>
    ${pendingText(r) ?? (!f.member ? empty('This broker is not in a fleet.', html`<code>gloomd --fleet nats://…</code> joins one.`) : html`
    ${f.nats.reason && html`<p class="holds">NATS is away: ${f.nats.reason}.</p>`}
    <p>${plural(f.lent, 'job')} lent to others now, ${plural(f.borrowed, 'job')} borrowed. Since the start: ${count(f.lends_total)} lent, ${count(f.borrows_total)} borrowed, ${count(f.returned_total)} came back without a run, ${count(f.lost_total)} were lost with their borrower.</p>
    <section>${!f.brokers.length ? empty('No other broker sends heartbeats.', 'Jobs of types that no worker here serves wait.')
      : table('Brokers', [
        { name: 'Broker', class: 'main', of: b => html`<span class="name">${b.name}</span> ${b.state === 'foreign' ? badge(`uses version ${b.version}: no lending`, 'warning') : b.state !== 'up' && badge(b.state, 'warning')}` },
        { name: 'Lent', num: true, of: b => count(b.lent) },
        { name: 'Borrowed', num: true, of: b => count(b.borrowed) },
        { name: 'Round trip', num: true, of: b => b.round_trip_ms === undefined ? '–' : duration(b.round_trip_ms / 1000) },
        { name: 'Idle workers for', class: 'main', wide: 1, of: b => html`<span class="name">${wantText(b) || '–'}</span>` },
      ], f.brokers, b => b.name)}</section>
    <p class="note">Limits hold per broker: a type with a limit of 10 running jobs may run 10 on each.</p>`)}`;
}
