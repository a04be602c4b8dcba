// Requests to /v1.
import { batch, signal } from './html.js';
import { parse } from './format.js';

/** What the daemon is, such as "broker". */
export const noun = document.body.dataset.noun;

/** The token that the user entered, kept only in this tab's memory. */
export const token = signal('');

/** Why the page has no access, '' if it has access: 'token' if it needs one, 'wrong' for a wrong token, 'asking' while it asks, 'scope' if the token lacks the scope. */
export const access = signal('');

/** The reply of GET /v1/status, null until it is known. */
export const status = signal(/** @type {any} */ (null));

class Refusal extends Error {
  /** @param {number} code @param {any} reply */
  constructor(code, reply) {
    super(reply.reason || `the ${noun} answered with ${code}`);
    this.code = code;
    this.error = reply.error;
  }
}

/** The time of silence after which the daemon counts as away, in milliseconds. */
export const silenceLimit = 15_000;

/** Browsers differ in their texts for this error. @param {any} e @returns {never} */
const throwNoAnswer = e => { throw e instanceof TypeError ? new Error(`the ${noun} does not answer`) : e; };

/** @param {string} path @param {RequestInit} init */
async function request(path, init) {
  const headers = new Headers(init.headers), stop = new AbortController();
  if (token.value) headers.set('Authorization', 'Bearer ' + token.value);
  // A request that changes something is not aborted: the daemon might carry it out anyway.
  const timer = init.method === 'GET' ? setTimeout(() => stop.abort(new Error(`the ${noun} has not answered for ${silenceLimit / 1000} s`)), silenceLimit) : 0;
  try {
    return await fetch(path, { ...init, headers, cache: 'no-store', signal: stop.signal }).catch(throwNoAnswer);
  } finally {
    clearTimeout(timer);
  }
}

/** Sends a request and returns the reply's text; throws a Refusal if the reply is not a success.
 * @param {string} method @param {string} path @param {any} [body] @returns {Promise<string>} */
export async function requestText(method, path, body) {
  /** @type {RequestInit} */
  const init = { method };
  if (method !== 'GET') {
    init.headers = { 'Content-Type': 'application/json' };
    init.body = typeof body === 'string' ? body : JSON.stringify(body ?? {});
  }
  const reply = await request(path, init);
  const got = await reply.text().catch(throwNoAnswer);
  if (reply.ok) return got;
  let said = {};
  try { said = parse(got); } catch { /* not JSON: only the code is known */ }
  if (reply.status === 401) access.value = token.value ? 'wrong' : 'token';
  throw new Refusal(reply.status, said);
}

/** Sends a request and returns the reply, parsed; null if it is empty.
 * @param {string} method @param {string} path @param {any} [body] @returns {Promise<any>} */
export const call = async (method, path, body) => parse(await requestText(method, path, body) || 'null');

/** @param {string} scope */
export const mayUse = scope => !!status.value?.scopes.includes(scope);

/** The data that the document contains: replies to the page's first requests, among them GET /v1/status, or {guarded: true} if a token is needed. It is null
 * if the document was cached, or arrived so slowly that the data is old. */
export const initialData = (() => {
  const receivedAt = /** @type {PerformanceNavigationTiming} */ (performance.getEntriesByType('navigation')[0]).responseStart;
  const it = parse(/** @type {HTMLTemplateElement} */ (document.getElementById('first')).content.textContent ?? '');
  return it?.guarded || performance.now() - receivedAt < 1000 ? it : null;
})();

if (initialData?.guarded) access.value = 'token';
if (initialData?.status) status.value = { ...initialData.status, at: Date.now() };

/** Finds out which daemon this is and what the token allows. */
export async function loadStatus() {
  if (access.value) access.value = 'asking';
  try {
    status.value = { ...await call('GET', '/v1/status'), at: Date.now() };
    access.value = '';
  } catch (e) {
    if (e instanceof Refusal && e.code === 403) access.value = 'scope';
    else if (access.value === 'asking') access.value = '';
  }
}

/** @typedef {{data?: any, error?: Error, code?: number}} Reply */
/** @type {Map<string, {reply: import('./lib/signals-core.mjs').Signal<Reply>, every: number, how: typeof call, used: number, timer: number, n: number}>} */
const queries = new Map();
let round = 0;

/** Changes when a query has its first answer. Scrolling a table starts queries without rendering the page. */
export const firstAnswers = signal(0);

/** The latest reply to a GET of a path. It is requested again every `every` ms as long as each rendering of the page calls this.
 * @param {string} path @param {number} [every] 0 asks once @param {(method: string, path: string) => Promise<any>} [how] @returns {Reply} */
export function query(path, every = 2000, how = call) {
  let q = queries.get(path);
  if (!q) {
    q = { reply: signal({}), every, how, used: round, timer: 0, n: 0 };
    queries.set(path, q);
    sendQuery(path, q);
  }
  q.used = round;
  return q.reply.value;
}

/** @param {string} path @param {any} q */
async function sendQuery(path, q) {
  clearTimeout(q.timer);
  const n = ++q.n; // the answer to an earlier query may arrive later
  const answer = (/** @type {Reply} */ reply) => n === q.n && batch(() => {
    if (q.reply.peek().data === undefined) firstAnswers.value++;
    q.reply.value = reply;
  });
  if (!document.hidden)
    try {
      answer({ data: await q.how('GET', path) });
    } catch (e) {
      answer({ data: e instanceof Refusal ? undefined : q.reply.peek().data, error: /** @type {Error} */ (e), code: e instanceof Refusal ? e.code : 0 });
    }
  if (n === q.n && q.every && queries.get(path) === q) q.timer = setTimeout(sendQuery, q.every, path, q);
}

/** Must be called before the page is rendered. */
export function beginRound() { round++; }

/** Must be called after the page was rendered: stops the queries that it did not use. */
export function endRound() {
  for (const [path, q] of queries)
    if (q.used !== round) {
      clearTimeout(q.timer);
      queries.delete(path);
    }
}

/** Repeats all current queries at once, for example after a change. */
export function repeatQueries() {
  for (const [path, q] of queries) sendQuery(path, q);
}

document.addEventListener('visibilitychange', () => document.hidden || repeatQueries());

/** @param {string} s */
export const encode = encodeURIComponent;

/** A name as a part of a path. Browsers remove "." and ".." from paths, and servers take "/" for the slash at a path's end, so these names are preceded by a byte that no name contains.
 * @param {string} s */
export const segment = s => (s === '.' || s === '..' || s === '/' ? '%FF' : '') + encode(s);
