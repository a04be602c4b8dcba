// The views of handlers and their versions.
import { html, signal } from '../html.js';
import { query, call, encode, status, requestText } from '../api.js';
import { bytes, members, dateTime, parse } from '../format.js';
import { table } from '../table.js';
import { runAction, openDialog, button, empty, facts, Listing, place, setQuery, link, pendingText } from '../parts.js';
import { longText } from '../body.js';
import { handlerLink, jobTo } from '../names.js';

const listing = new Listing();
/** @param {any} r */
const reload = r => { listing.again(); return r; };

/** @param {string} client @param {string} what @param {string} type */
const handlerPath = (client, what, type) => `/${encode(client)}/handler/${what}/${encode(type)}`;

const scope = 'handler', parts = ['before', 'beforeEach', 'body', 'afterEach'], keys = ['lang', 'eid', ...parts];

/** Requests a handler; its options are as they were written. @param {string} method @param {string}
 * where */
const readHandler = async (method, where) => {
  const s = await requestText(method, where);
  return { ...parse(s), options: members(s).options };
};

/** Adds a version of a handler. @param {string} client @param {string} type @param {any} h */
const putHandler = (client, type, h) => call('PUT', handlerPath(client, 'add', type) + (h.lang === 'http' && h.method ? '?method=' + h.method : ''),
  `{${[...keys.filter(k => h[k]).map(k => `"${k}":${JSON.stringify(h[k])}`), `"options":${h.options || '{}'}`]}}`);

/** @param {string} client @param {string} type */
const dropHandler = (client, type) => call('DELETE', handlerPath(client, 'del', type), '');

/** Asks for a new version of the handler of this type, or of a type that the user names. @param
 * {string} client @param {string} type @param {any} [was] */
function editHandler(client, type, was) {
  const lang = signal(was?.lang ?? status.value.langs?.[0] ?? 'http');
  openDialog({
    title: type ? `A version for ${client}-${type}` : 'A handler', button: 'Add it',
    body: () => html`${!type && html`<div class="pair"><label>Client <input name="client" required placeholder="acme" defaultValue=${client} autocomplete="off" /></label><label>Type <input name="type" required placeholder="greet" autocomplete="off" /></label></div>`}
      <div class="pair"><label>Language <select name="lang" value=${lang.value} onChange=${(/** @type {any} */ e) => { lang.value = e.target.value; }}>${[...new Set([...status.value.langs ?? [], lang.value])].map(l => html`<option key=${l} value=${l}>${l}</option>`)}</select></label>
        ${lang.value === 'http' && html`<label>Method <select name="method" value=${was?.method}>${['POST', 'PUT', 'PATCH'].map(m => html`<option key=${m}>${m}</option>`)}</select></label>`}</div>
      <label>${lang.value === 'http' ? 'Its URL' : lang.value === 'gloom' ? 'A note' : 'Its source'} <textarea name="body" rows="10" spellcheck="false" required defaultValue=${was?.body ?? ''}></textarea></label>
      <label>Options, JSON <input name="options" spellcheck="false" autocomplete="off" placeholder='{"timeout": "1m", "next": "report"}' defaultValue=${was?.options === '{}' ? '' : was?.options} /></label>
      <p class="note">It is in use here at once, and everywhere within a second. Running jobs end with the version before.</p>`,
    go: form => {
      const f = Object.fromEntries([...form].map(([k, v]) => [k, String(v)])), [c, t] = type ? [client, type] : [f.client.trim(), f.type.trim()];
      return runAction(() => putHandler(c, t, { ...was, ...f }), `The handler of ${c}-${t} is added.`, was ? () => putHandler(c, t, was) : () => dropHandler(c, t).then(reload)).then(r => { if (r && !type) location.hash = link(['handlers', c, t]); return reload(r); });
    },
  });
}

/** Asks for a line, adds it as a job, and shows that job. @param {string} client @param {string}
 * type */
const tryHandler = (client, type) => openDialog({
  title: `Try ${client}-${type} with a line`, button: 'Run it', body: html`<label>Line <input name="line" required autocomplete="off" spellcheck="false" /></label><p class="note">It is a job like any other, with all its effects.</p>`,
  go: form => runAction(async () => {
    const line = String(form.get('line')), r = await call('POST', `/${encode(client)}/job/${encode(type)}?wait=store`, line);
    if (!r.ids.length) throw new Error('the line makes no job');
    setTimeout(() => { location.hash = jobTo({ client, id: r.ids[0] }); });
  }, 'It is added.'),
});

/** @param {string} client @param {string} type */
function removeHandler(client, type) {
  /** @type {any} */
  let was; // what is shown may be out of date
  openDialog({
    title: `Delete the handler of ${client}-${type}?`, danger: true, button: 'Delete all versions', body: html`<p>Its jobs wait until there is another one. Undoing brings back only the newest version.</p>`,
    go: () => runAction(async () => {
      was = await readHandler('GET', handlerPath(client, 'get', type));
      await dropHandler(client, type);
    }, 'It is deleted.', () => putHandler(client, type, was).then(reload)).then(reload),
  });
}

/** @param {any} h */
const sourceText = h => html`${facts([['Version', h.id], ['Since', dateTime(h.dt)], ['Language', h.lang], ['Method', h.lang === 'http' && h.method], ['Context', h.eid], ['Options', h.options !== '{}' && html`<code>${h.options}</code>`]])}
  ${parts.filter(k => h[k]).map(k => html`<section key=${k}><h2>${k === 'body' ? 'Source' : k}</h2>${longText(h[k], k)}</section>`)}`;

/** @param {string} client @param {string} type */
function handlerView(client, type) {
  const id = place.value.query.get('id') ?? '', now = query(handlerPath(client, 'get', type), 3000, readHandler), h = now.data, v = h && query(`${handlerPath(client, 'versions', type)}#${h.id}`, 0);
  const old = id && query(`${handlerPath(client, 'get', type)}?id=${encode(id)}`, 0, readHandler), seen = old ? old.data : h;
  return html`<header class="bar"><h1 class="name">${client}-${type}</h1><a href=${link(['jobs'], { of: `${client}-${type}` })}>its jobs</a><div class="actions">
      ${h && button('Try with a line', () => tryHandler(client, type), { scope: 'submit', first: true })} ${(h || now.code === 404) && button(h ? 'New version' : 'Add a handler', () => editHandler(client, type, h), { scope })} ${h && button('Delete', () => removeHandler(client, type), { scope, danger: true })}</div></header>
    ${now.code === 404 ? empty('This type has no handler: its jobs wait for one.') : !seen ? pendingText(old || now) : sourceText(seen)}
    ${v?.data && html`<section><h2>Versions</h2>${table('Versions', [
      { name: 'Version', class: 'main', of: x => html`<a class="id" href=${link(['handlers', client, type], { id: x.id === h.id ? '' : x.id })}>${x.id}</a>` }, { name: 'Since', num: true, of: x => dateTime(x.dt) }, { name: 'Language', wide: 1, of: x => x.lang }, { name: 'Size', num: true, wide: 1, of: x => bytes(x.bytes) },
      { name: 'Do', of: x => x.id === h.id ? html`<span class="muted">in use</span>` : button('Use again', () => runAction(async () => putHandler(client, type, await readHandler('GET', `${handlerPath(client, 'get', type)}?id=${encode(x.id)}`)), 'It is in use again, as a new version.', () => putHandler(client, type, h)), { scope }) },
    ], v.data.versions, x => x.id)}</section>`}`;
}

export function handlersView() {
  const [, client, type] = place.value.path, part = place.value.query.get('part') ?? '';
  if (type) return handlerView(client, type);
  const s = listing.of(`/handlers?part=${encode(part)}`);
  return html`<header class="bar"><h1>Handlers</h1>
    <input type="search" aria-label="Part of a client-type" placeholder="Part of a client-type" value=${part} onInput=${(/** @type {any} */ e) => setQuery({ part: e.target.value })} />${button('Add a handler', () => editHandler('', ''), { scope })}</header>
    ${s.items.length ? table('Handlers', [
      { name: 'Type', class: 'main', of: x => html`<span class="name">${handlerLink(x.type, x.type)}</span>` }, { name: 'Language', of: x => x.lang }, { name: 'Since', num: true, wide: 1, of: x => dateTime(x.dt) }, { name: 'Source', num: true, wide: 1, of: x => bytes(x.bytes) },
    ], s.items, x => x.type) : !s.busy && !s.error && empty(part ? 'No type with a handler has this in its name.' : 'There is no handler.')}
    ${listing.foot()}`;
}
