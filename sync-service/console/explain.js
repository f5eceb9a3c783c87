// Explanation of the decision on a described request.

import { json } from './api.js';
import { $, button, make, number } from './dom.js';
import { figures, lookAt } from './key.js';

/** Maximum number of listed rules that do not count the request. */
const OTHERS_MAX = 20;

/** Request described in the form. */
function request() {
  const asked = {};
  for (const name of ['method', 'path', 'host', 'address']) {
    const value = $(`explain-${name}`).value.trim();
    if (value) asked[name] = value;
  }
  const headers = {};
  for (const line of $('explain-headers').value.split('\n').filter((text) => text.trim())) {
    const at = line.indexOf(':');
    if (at < 1) throw new Error(`expected a header, as in x-api-key: abc, found ${line.trim()}`);
    headers[line.slice(0, at).trim().toLowerCase()] = line.slice(at + 1).trim();
  }
  if (Object.keys(headers).length) asked.headers = headers;
  return asked;
}

async function explain(event) {
  event.preventDefault();
  const shown = $('explained');
  try {
    const { summary, keys, others = [] } = await json('v1/keys', { method: 'POST', body: request() });
    const sentence = make('p', { className: `summary ${summary.kind}`, textContent: summary.text });
    shown.replaceChildren(sentence, ...keys.map(counted));
    if (others.length) shown.append(make('h3', { textContent: 'Not counted by' }), uncounted(others));
  } catch (error) {
    shown.replaceChildren(make('p', { className: 'wrong', textContent: error.message }));
  }
}

function counted(key) {
  const head = make('h3', {}, key.rule);
  if (key.enforced_percent < 100) head.append(make('span', { className: 'kind', textContent: key.enforced_percent ? `for ${key.enforced_percent} % of keys` : 'in shadow' }));
  if (key.key) head.append(make('span', { className: 'under', textContent: key.key }));
  const box = make('article', {}, head);
  if (key.why) {
    box.append(make('p', { className: 'note', textContent: key.why }));
  } else {
    box.append(make('dl', { className: 'figures' }, ...figures(key).map(([name, text, kind = '']) =>
      make('div', {}, make('dt', { textContent: name }), make('dd', { textContent: text, className: kind })))));
    box.append(button('Act on this key', `Act on ${key.key} of ${key.rule}`, () => lookAt(key.rule, key.key)));
  }
  return box;
}

function uncounted(others) {
  const items = others.slice(0, OTHERS_MAX).map(({ rule, why }) => make('li', {}, make('b', { textContent: rule }), ` ${why}`));
  if (others.length > OTHERS_MAX) items.push(make('li', { textContent: `and ${number(others.length - OTHERS_MAX)} more: weir-sync explain lists all` }));
  return make('ul', { className: 'plain' }, ...items);
}

export function startExplain() {
  $('explain-form').addEventListener('submit', explain);
  $('explain-form').addEventListener('reset', () => $('explained').replaceChildren());
}
