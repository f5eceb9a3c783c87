// What becomes of a request, and why.

import { json } from './api.js';
import { $, button, make, number } from './dom.js';
import { figures, lookAt } from './key.js';

/** How many rules that do not count a request are listed. */
const OTHERS_MAX = 20;

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
    if (others.length) shown.append(make('h3', { textContent: 'Not counted by' }), uncounted(others));
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
  const limiting = keys.filter((key) => key.enforced_percent > 0);
  const banned = limiting.find((key) => key.banned_until);
  if (banned) return ['bad', `It is refused: ${banned.rule} has banned its key.`];
  const lacking = limiting.find((key) => key.is_refused);
  if (lacking) return ['bad', `It is limited: it lacks a part of the key of ${lacking.rule}.`];
  const empty = limiting.find((key) => key.free_in_s > 0 && key.enforced_percent === 100);
  if (empty) return ['bad', `It is limited: ${empty.rule} has no token for its key.`];
  const part = limiting.find((key) => key.grant && key.grant.admit_ratio < 1);
  if (part) return ['warn', `It may be limited: ${part.rule} lets ${number(100 * part.grant.admit_ratio)} % of its key\u2019s requests through now.`];
  const unsure = limiting.find((key) => key.free_in_s > 0);
  if (unsure) return ['warn', `It may be limited: ${unsure.rule} has no token for its key, and limits ${unsure.enforced_percent} % of its keys.`];
  const unknown = limiting.filter((key) => key.why).map((key) => key.rule);
  if (unknown.length) return ['warn', `It may go through: how its key stands under ${unknown.join(', ')} is not known here.`];
  return ['good', keys.length ? `It goes through: counted by ${keys.map((key) => key.rule).join(', ')}.` : 'It goes through: no rule counts it.'];
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
