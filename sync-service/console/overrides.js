// Overrides: bans, allows and other rates.

import { banOrAllow, lift, subject } from './actions.js';
import { json } from './api.js';
import { $, button, cell, make, rows, setText, secondsUntil, span } from './dom.js';

let isStale = true;

/** Marks the list as stale and reloads it. If that fails, the next event tries again. */
export const refreshOverrides = () => { isStale = true; listOverrides(); };

/** Loads the list if it is stale. The remaining times are updated by `tickOverrides`. */
export async function listOverrides() {
  if (!isStale) return;
  isStale = false;
  try {
    const { overrides } = await json('v1/overrides');
    setText('overrides-wrong', '');
    $('overrides-none').hidden = overrides.length > 0;
    $('overrides-table').hidden = !overrides.length;
    overrides.sort((a, b) => a.at < b.at ? 1 : -1);
    rows('overrides', overrides, (one) => String(one.id), cells);
  } catch (error) {
    isStale = true;
    setText('overrides-wrong', `The overrides cannot be listed: ${error.message}`);
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
    cell('Kind', what), cell('About', whom, 'name'), cell('Left', left, 'figure'), cell('By', one.author), cell('Why', why, 'wide'),
    cell('', button('Lift', `Lift the ${one.kind} of ${subject(one)}`, () => lift(one)), 'acts'),
  ];
}

const leftOf = (until) => span(Math.max(0, secondsUntil(until)));

/** Updates the remaining times. */
export function tickOverrides() {
  for (const time of document.querySelectorAll('#overrides time')) {
    const left = leftOf(time.dateTime);
    if (time.textContent !== left) time.textContent = left;
  }
}

export const startOverrides = () => $('override').addEventListener('click', banOrAllow);
