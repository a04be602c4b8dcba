// The view of the schedules of all clients.
import { html } from '../html.js';
import { encode, segment } from '../api.js';
import { schedulesOf } from '../schedules.js';
import { jobLink, typeLink } from '../names.js';

export const schedules = schedulesOf({
  list: '/schedules', path: s => `/${encode(s.client)}/schedule/${segment(s.name)}`, route: s => [s.client, s.name], named: ([client, name]) => ({ client, name }),
  what: s => typeLink(`${s.client}-${s.job.type}`), made: (id, s) => jobLink(id, s.client), scope: 'submit', how: html`<code>PUT /CLIENT/schedule/NAME</code>`,
});
