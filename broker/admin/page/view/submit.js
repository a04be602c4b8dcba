// The dialog that submits a test job.
import { html, signal } from '../html.js';
import { query, encode, requestText } from '../api.js';
import { members, indent } from '../format.js';
import { openDialog, jobLink, addNote } from '../parts.js';
import { longText } from '../body.js';

/** @param {string} [type] @param {string} [body] in JSON @param {string|number} [priority] */
export function submitTestJob(type = '', body = '"test"', priority = 0) {
  const came = signal(/** @type {any} */ (null)), typed = signal(type);
  openDialog({
    title: 'Submit a test job', button: 'Submit', leave: 'Close', body: () => html`
      <label>Type <input name="type" required maxlength="255" defaultValue=${type} list="types" autocomplete="off" onInput=${(/** @type {any} */ e) => { typed.value = e.target.value; }} /></label>
      <datalist id="types">${(query(`/v1/types?filter=${encode(typed.value)}&limit=20`, 0).data?.items ?? []).map((/** @type {any} */ t) => html`<option key=${t.type} value=${t.type} />`)}</datalist>
      <label>Body, JSON <textarea name="body" rows="4" spellcheck="false" defaultValue=${body}></textarea></label>
      <div class="pair"><label>Priority <input name="priority" inputmode="numeric" pattern="-?[0-9]+" defaultValue=${priority} /></label>
        <label>Wait for the answer, s <input name="wait" type="number" min="0" max="3600" defaultValue="10" /></label></div>
      ${came.value && html`<div role="status">${came.value}</div>`}`,
    go: async form => {
      const body = String(form.get('body')), wait = +(form.get('wait') || 0);
      try { JSON.parse(body); } catch (e) {
        came.value = html`<p class="severe">The body is not JSON: ${/** @type {Error} */ (e).message}</p>`;
        return false;
      }
      came.value = html`<p class="note">${wait ? 'Waiting for the answer…' : 'Submitting…'}</p>`;
      try {
        // The body is sent as it was typed: numbers stay exact.
        const sent = `{"type":${JSON.stringify(form.get('type'))},"priority":${form.get('priority') || 0},"body":${body}}`;
        const m = members(await requestText('POST', '/v1/jobs' + (wait ? `?wait=${wait}s` : ''), sent));
        const id = JSON.parse(m.id);
        came.value = m.body ? html`<p>${jobLink(id)} was answered:</p>${longText(indent(m.body), 'Answer')}` : html`<p>${jobLink(id)} is ${JSON.parse(m.state)}.</p>`;
        addNote(`Submitted ${id}.`);
      } catch (e) {
        came.value = html`<p class="severe">${/** @type {Error} */ (e).message}</p>`;
      }
      return false;
    },
  });
}
