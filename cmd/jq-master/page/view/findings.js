// Links to names and constraints, and the links of findings.
import { html } from '../html.js';
import { query } from '../api.js';
import { count } from '../format.js';
import { link } from '../parts.js';
import { rowReader } from '../body.js';

/** Returns how many jobs with a name wait. @param {any} n */
export const waitingJobs = n => n.states.queued + n.states.retrying;

export const nameLink = (/** @type {string} */ name) => html`<a class="name" href=${link(['jobs'], { name })}>${name}</a>`;

const readRules = rowReader('constraints');

/** Requests the constraints, each with its matcher as it was written. @param {number} [every] */
export const queryConstraints = (every = 4000) => query('/v1/constraints', every, readRules);

export const ruleLink = (/** @type {string} */ id) => html`<a class="name" href=${link(['constraints'], { id })}>${id}</a>`;

/** Link to the waiting jobs that a constraint matches. @param {any} c */
export const heldJobs = c => link(['jobs'], { status: 'queued', match: c.raw.match });

/** Describes in words what a constraint allows. @param {any} c */
export const limitText = c => [c.concurrency !== null && `${count(c.concurrency)} at a time`, c.rate !== null && `${count(c.rate)} a second${c.burst > 1 ? `, ${count(c.burst)} at once` : ''}`].filter(Boolean).join(', ') + (c.per ? ` for each ${c.per}` : '');

const workers = html`<a href=${link(['workers'])}>The workers</a>`;

/** @type {import('../verdict.js').Words} */
export const words = {
  link: f => f.kind === 'name' ? nameLink(f.subject) : ruleLink(f.subject),
  help: {
    no_worker: () => workers, silent: () => workers, paused: () => workers,
    failing: f => html`<a href=${link(['jobs'], { name: f.kind === 'name' && f.subject, status: 'error' })}>Those with an error</a>`,
  },
};
