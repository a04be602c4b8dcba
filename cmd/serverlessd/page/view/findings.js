// The links and actions that belong to findings.
import { html } from '../html.js';
import { text } from '../api.js';
import { act, button, to } from '../parts.js';
import { handlerLink, typeLink } from '../names.js';

/** Makes this daemon hand out jobs again, or stop handing them out. @param {boolean} on */
export const handOut = on => act(() => text('POST', on ? '/start' : '/stop', ''), on ? 'Jobs are handed out again.' : 'No more jobs are handed out here.', () => handOut(!on));

/** @type {import('../verdict.js').Words} */
export const words = {
  link: f => f.kind === 'type' ? typeLink(f.subject) : html`The ${f.kind} <span class="name">${f.subject}</span>`,
  help: {
    no_handler: f => handlerLink(f.subject, 'Add one'),
    paused: () => button('Start', () => handOut(true)),
    set_aside: () => html`<a href=${to(['journal'])}>The journal</a>`,
    failing: f => html`<a href=${to(['jobs'], { of: f.kind === 'type' && f.subject, state: 'failed' })}>Those that failed</a>`,
  },
};
