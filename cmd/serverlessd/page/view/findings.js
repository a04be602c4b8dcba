// The links and actions that belong to findings.
import { html } from '../html.js';
import { requestText } from '../api.js';
import { runAction, button, link } from '../parts.js';
import { handlerLink, typeLink } from '../names.js';

/** Makes this daemon hand out jobs again, or stop handing them out. @param {boolean} on */
export const setHandOut = on => runAction(() => requestText('POST', on ? '/start' : '/stop', ''), on ? 'Jobs are handed out again.' : 'No more jobs are handed out here.', () => setHandOut(!on));

/** @type {import('../verdict.js').Words} */
export const words = {
  link: f => f.kind === 'type' ? typeLink(f.subject) : html`The ${f.kind} <span class="name">${f.subject}</span>`,
  help: {
    no_handler: f => handlerLink(f.subject, 'Add one'),
    paused: () => button('Start', () => setHandOut(true)),
    set_aside: () => html`<a href=${link(['journal'])}>The journal</a>`,
    failing: f => html`<a href=${link(['jobs'], { of: f.kind === 'type' && f.subject, state: 'failed' })}>Those that failed</a>`,
  },
};
