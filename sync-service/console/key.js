// Dialog for one key: its state, with buttons for actions.

import { allowAddress, banAddress, banKey, override, reset } from './actions.js';
import { json, keyPath } from './api.js';
import { $, button, cell, make, number, rate, rows, setText, secondsUntil, span } from './dom.js';

/** True if a key can be given another rate: an address, a network, `all`, or a single value. */
const isNamed = (key) => !key.startsWith('hex:') && !key.includes(' text:') && key !== 'lacking';

/** Number of requests so far. Only the answer to the last one is shown. */
let looks = 0;

/** Opens the dialog for a key. */
export async function lookAt(rule, key) {
  const dialog = $('key');
  const look = ++looks;
  setText('key-title', key);
  setText('key-rule', rule);
  setText('key-wrong', '');
  for (const id of ['key-figures', 'key-actions', 'key-places']) $(id).replaceChildren();
  $('key-where').hidden = true;
  if (!dialog.open) dialog.showModal();
  try {
    const one = await json(keyPath(rule, key));
    if (look === looks) show(one);
  } catch (error) {
    if (look === looks) setText('key-wrong', error.message);
  }
}

function show(one) {
  const { rule, key, address } = one;
  $('key-figures').replaceChildren(...figures(one).map(([name, text, kind = '']) =>
    make('div', {}, make('dt', { textContent: name }), make('dd', { textContent: text, className: kind }))));
  const then = (act) => () => { $('key').close(); act(); };
  const acts = [
    button('Reset', `Reset ${key} of ${rule}`, then(() => reset(rule, key))),
    button('Ban under this rule', `Ban ${key} of ${rule}`, then(() => banKey(rule, key)), 'danger'),
  ];
  if (isNamed(key)) acts.splice(1, 0, button('Another rate', `Another rate for ${key} of ${rule}`, then(() => override(rule, key, `${number(one.rate_per_s, 9).replaceAll(',', '')}/s`))));
  if (address) {
    acts.push(button('Ban the address', `Ban the address ${address}`, then(() => banAddress(address)), 'danger'));
    acts.push(button('Allow the address', `Allow the address ${address}`, then(() => allowAddress(address))));
  }
  $('key-actions').replaceChildren(...acts);
  $('key-where').hidden = !one.pops.length;
  rows('key-places', one.pops, (pop) => pop.pop, (pop) => [
    cell('POP', pop.pop, 'name'), cell('Region', pop.region), cell('Asked/s', rate(pop.asked_per_s), 'figure'),
    cell('Admitted/s', rate(pop.admitted_per_s), 'figure'), cell('Limited/s', rate(pop.limited_per_s), 'figure'),
  ]);
}

/** Figures of a key, each as name, text and kind. */
export function figures(one) {
  const list = [['Asked for', `${rate(one.asked_per_s)}/s`], ['Admitted', `${rate(one.admitted_per_s)}/s`],
    ['Limited', `${rate(one.limited_per_s)}/s`, one.limited_per_s ? 'limited' : '']];
  if (one.rate_per_s != null) list.push(['Quota', `${rate(one.rate_per_s)}/s, ${number(one.burst)} at once`]);
  if (one.level != null) list.push(['Level', `${number(one.level, 1)} of ${number(one.burst)}`, one.level < 1 ? 'bad' : 'good']);
  if (one.free_in_s != null) list.push(['Free', one.free_in_s ? `in ${span(one.free_in_s)}` : 'now', one.free_in_s ? 'bad' : 'good']);
  if (one.full_in_s) list.push(['Full', `in ${span(one.full_in_s)}`]);
  if (one.since) list.push(['Limited for', span(Math.max(0, -secondsUntil(one.since)))]);
  if (one.banned_until) list.push(['Banned', `${span(Math.max(0, secondsUntil(one.banned_until)))} more`, 'bad']);
  if (one.leased) list.push(['Leased to POPs', number(one.leased)]);
  if (one.grant) list.push(['Admit ratio', `${number(100 * one.grant.admit_ratio, 1)} %`]);
  if (one.store_error) list.push(['Its budget', one.store_error, 'bad']);
  return list;
}
