// Client of weir-sync's HTTP API. Paths are relative, so that a proxy may serve the console under any path.

const KEY = 'weir-token';

/** A refusal of weir-sync, with the status and the detail of the response. */
export class Refused extends Error {
  constructor(status, detail) { super(detail); this.status = status; }
}

/** The operator's token, kept only for the lifetime of the tab. */
export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (text) => sessionStorage.setItem(KEY, text),
  forget: () => sessionStorage.removeItem(KEY),
};

/** Signal that aborts a request after 30 s. weir-sync always answers sooner, so the connection is dead by then. */
export const patience = () => AbortSignal.timeout(30000);

/** Sends a request and returns a successful response. Throws `Refused` for any other. */
export async function ask(path, { method = 'GET', headers = {}, body, signal = patience() } = {}) {
  const all = { ...headers };
  if (token.get()) all.authorization = `Bearer ${token.get()}`;
  if (body !== undefined) all['content-type'] = 'application/json';
  const answer = await fetch(path, {
    method, headers: all, body: body === undefined ? undefined : JSON.stringify(body), signal, cache: 'no-store', credentials: 'omit',
  });
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  const detail = problem.detail || `${answer.status} ${answer.statusText}`;
  const errors = (problem.errors || []).map(({ place, problem: what }) => `${place}: ${what}`);
  throw new Refused(answer.status, [detail, ...errors].join('\n'));
}

/** Sends a request and parses the response as JSON. */
export const json = async (path, options) => (await ask(path, options)).json();

/** Header with the operator's comment. Header values are bytes, so each UTF-8 byte becomes one character. */
export const commented = (comment) => comment
  ? { 'weir-comment': String.fromCharCode(...new TextEncoder().encode(comment)) } : {};

/** Path of a rule's key. */
export const keyPath = (rule, key) => `v1/keys/${encodeURIComponent(rule)}/${encodeURIComponent(key)}`;
