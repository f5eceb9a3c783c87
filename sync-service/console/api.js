// Asks weir-sync. The paths are relative, so that a proxy may put the page under any path.

const KEY = 'weir-token';

/** What a weir-sync said that it refuses. */
export class Refused extends Error {
  constructor(status, detail) { super(detail); this.status = status; }
}

/** The operator's token: it stays in the tab. */
export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (text) => sessionStorage.setItem(KEY, text),
  forget: () => sessionStorage.removeItem(KEY),
};

/** Ends what takes longer than weir-sync ever does: the connection is dead. */
export const patience = () => AbortSignal.timeout(30000);

/** The answer, if it is good; else throws what weir-sync said. */
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

/** The same as JSON. */
export const json = async (path, options) => (await ask(path, options)).json();

/** The header that says why: a header holds bytes, so UTF-8, a character for each. */
export const commented = (comment) => comment
  ? { 'weir-comment': String.fromCharCode(...new TextEncoder().encode(comment)) } : {};

/** The path of a key of a rule. */
export const keyPath = (rule, key) => `v1/keys/${encodeURIComponent(rule)}/${encodeURIComponent(key)}`;
