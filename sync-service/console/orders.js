// Overrides: bans, allows and other rates.

import { banOrAllow, lift, subject } from './acts.js';
import { json } from './api.js';
import { $, button, cell, make, rows, say, secondsUntil, span } from './dom.js';

let isStale = true;

/** Marks the list as stale and reloads it. If that fails, the next event tries again. */
export const refreshOrders = () => { isStale = true; listOrders(); };

/** Loads the list if it is stale. The remaining times are updated by `tickOrders`. */
export async function listOrders() {
  if (!isStale) return;
  isStale = false;
  try {
    const { orders } = await json('v1/orders');
    say('orders-wrong', '');
    $('orders-none').hidden = orders.length > 0;
    $('orders-table').hidden = !orders.length;
    orders.sort((a, b) => a.at < b.at ? 1 : -1);
    rows('orders', orders, (one) => String(one.id), cells);
  } catch (error) {
    isStale = true;
    say('orders-wrong', `The orders cannot be listed: ${error.message}`);
  }
}

function cells(one) {
  const what = make('span', { className: `kind ${one.kind}`, textContent: one.kind });
  const terms = one.rate ? `${one.rate}${one.burst ? `, ${one.burst} at once` : ''}` : '';
  const whom = make('div', {}, make('span', { textContent: one.address || one.key }), make('span', { className: 'under', textContent: [one.rule, terms].filter(Boolean).join(': ') }));
  const why = make('div', {}, make('span', { textContent: one.reason || '\u2013' }));
  if (one.without_effect) why.append(make('span', { className: 'under bad', textContent: `without effect: ${one.without_effect}` }));
  const left = make('time', { dateTime: one.until, title: one.until, textContent: leftOf(one.until) });
  return [
    cell('Order', what), cell('About', whom, 'name'), cell('Left', left, 'figure'), cell('By', one.author), cell('Why', why, 'wide'),
    cell('', button('Lift', `Lift the ${one.kind} of ${subject(one)}`, () => lift(one)), 'acts'),
  ];
}

const leftOf = (until) => span(Math.max(0, secondsUntil(until)));

/** Updates the remaining times. */
export function tickOrders() {
  for (const time of document.querySelectorAll('#orders time')) {
    const left = leftOf(time.dateTime);
    if (time.textContent !== left) time.textContent = left;
  }
}

export const startOrders = () => $('order').addEventListener('click', banOrAllow);
