// What becomes of a request, and why.

import { json } from './api.js';
import { $, button, make, say } from './dom.js';
import { figures, lookAt } from './key.js';

/** The request that the form describes. */
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
    const { list, keys, others = [] } = await json('v1/keys', { method: 'POST', body: request() });
    shown.replaceChildren(verdict(list, keys), ...keys.map(counted));
    if (others.length) shown.append(make('h3', { textContent: 'Not counted by' }), make('ul', { className: 'plain' },
      ...others.map(({ rule, why }) => make('li', {}, make('b', { textContent: rule }), ` ${why}`))));
  } catch (error) {
    shown.replaceChildren(make('p', { className: 'wrong', textContent: error.message }));
  }
}

const LISTS = {
  allow: ['good', 'It meets the list allow: it goes through, and no rule counts it.'],
  deny: ['bad', 'It meets the list deny: it gets 403.'],
  'enforce is false': ['warn', 'All rules are switched off: it goes through.'],
};

/** What becomes of it now, as far as that is known here. */
function verdict(list, keys) {
  const [kind, text] = LISTS[list] || ofKeys(keys);
  return make('p', { className: `verdict ${kind}`, textContent: text });
}

function ofKeys(keys) {
  if (!keys.length) return ['good', 'No rule counts it: it goes through.'];
  const banned = keys.find((key) => key.banned_until);
  if (banned) return ['bad', `It is refused: ${banned.rule} has banned its key.`];
  const empty = keys.find((key) => key.free_in_s > 0);
  if (empty) return ['bad', `It is limited: ${empty.rule} has no token for its key.`];
  return ['good', `It goes through: counted by ${keys.map((key) => key.rule).join(', ')}.`];
}

function counted(key) {
  const head = make('h3', {}, key.rule);
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

export function startExplain() {
  $('explain-form').addEventListener('submit', explain);
  $('explain-form').addEventListener('reset', () => $('explained').replaceChildren());
  say('explained', '');
}
