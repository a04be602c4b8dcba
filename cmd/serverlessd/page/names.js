// Names of clients, types and jobs, and links to them.
import { html } from './html.js';
import { badge, link } from './parts.js';

/** Splits a jobtype into client and type. A client has no hyphen. @param {string} jobtype @returns
 * {[string, string]} */
export function splitJobtype(jobtype) {
  const [, client, type = ''] = /^([^-]*)-?(.*)$/s.exec(jobtype) ?? [];
  return [client, type];
}

/** Returns a job from a list of all clients' jobs with its client and its bare type. @param {any} j
 * */
export function clientFilter(j) {
  const [client, type] = splitJobtype(j.type);
  return { ...j, client, type };
}

export const jobTo = (/** @type {any} */ j) => link(['job', j.client, j.id]);

/** Link to a job. It shows the whole id where there is room, otherwise only its end, in which ids
 * differ. @param {string} id @param {string} client */
export const jobLink = (id, client) => html`<a class="name id" href=${jobTo({ id, client })} title=${id}><span class="w3">${id.slice(0, -12)}</span>${id.slice(-12)}</a>`;

export const typeLink = (/** @type {string} */ jobtype) => html`<a class="name" href=${link(['jobs'], { of: jobtype })}>${jobtype}</a>`;

export const handlerLink = (/** @type {string} */ jobtype, /** @type {any} */ text) => html`<a href=${link(['handlers', ...splitJobtype(jobtype)])}>${text}</a>`;

/** The states, and the styles of their badges. @type {Record<string, string>} */
export const states = { waiting: '', deferred: '', running: 'info', ok: 'ok', failed: 'severe', abandoned: 'severe', expired: 'warning' };

export const stateBadge = (/** @type {any} */ j) => badge(j.state, states[j.state]);

/** Report whether a job in this state waits, and whether it has ended. */
export const isWaiting = (/** @type {string} */ s) => s === 'waiting' || s === 'deferred';
export const hasEnded = (/** @type {string} */ s) => s !== 'running' && !isWaiting(s);
