// The view of the schedules of jobs.
import { html } from '../html.js';
import { segment } from '../api.js';
import { schedulesOf } from '../schedules.js';
import { jobLink } from './jobs.js';
import { nameLink } from './findings.js';

export const schedules = schedulesOf({
  list: '/v1/schedules', path: s => '/v1/schedules/' + segment(s.name), route: s => [s.name], named: ([name]) => ({ name }),
  what: s => nameLink(s.job.name), made: jobLink, scope: 'admin', how: html`<code>PUT /v1/schedules/NAME</code>`,
});
