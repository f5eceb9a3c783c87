// Top keys of the whole fleet.

import { banKey, reset } from './actions.js';
import { json, patience } from './api.js';
import { $, button, cell, make, number, rate, rows, setText, secondsUntil, span } from './dom.js';
import { lookAt } from './key.js';
import { limitedPerS } from './status.js';

/** Number of listed keys. */
const LISTED = 20;
/** Interval between requests, in milliseconds. */
const EVERY_MS = 2000;

let asking = null;
let asked_ms = 0;

/** Requests the keys again if the interval has passed, or at once if `isNow`. */
export async function refreshKeys(isNow = false) {
  // A slow request is not aborted by the next interval, or nothing would ever be shown.
  const isDue = !asking && !document.hidden && Date.now() - asked_ms >= EVERY_MS - 100;
  if (!isNow && !isDue) return;
  asking?.abort();
  const own = asking = new AbortController();
  asked_ms = Date.now();
  const query = new URLSearchParams({ sort: sort(), limit: LISTED });
  for (const name of ['rule', 'prefix']) {
    const value = $(`keys-${name}`).value.trim();
    if (value) query.set(name, value);
  }
  try {
    show(await json(`v1/keys?${query}`, { signal: AbortSignal.any([own.signal, patience()]) }));
    setText('keys-wrong', '');
  } catch (error) {
    if (asking === own) setText('keys-wrong', `The keys cannot be listed: ${error.message}`);
  } finally {
    if (asking === own) asking = null;
  }
}

const sort = () => document.querySelector('input[name=keys-sort]:checked').value;

function show(answer) {
  const { keys, found } = answer;
  const isAll = !$('keys-rule').value && !$('keys-prefix').value.trim();
  $('keys-none').hidden = keys.length > 0;
  setText('keys-none', isAll ? noKeys() : 'No top key is like that. Keys that are far from their quota are not listed.');
  $('keys-table').hidden = !keys.length;
  const partial = answer.is_partial ? ' Only what reports to this weir-sync: the store is out of reach, or another weir-sync is of another version.' : '';
  setText('keys-summary', keys.length ? `${number(keys.length)} of ${number(found)} top keys, over the last ${answer.window_s} s.${partial}` : partial.trim());
  const most = Math.max(...keys.map((key) => key.limited_per_s), 0.001);
  rows('keys', keys, (key) => `${key.rule} ${key.key}`, (key) => cells(key, most));
}

function cells(key, most) {
  const { rule, key: value } = key;
  const name = make('div', {}, button(short(value), `Look at ${value} of ${rule}`, () => lookAt(rule, value), 'link'), make('span', { className: 'under', textContent: rule }));
  const bar = make('span', { className: 'bar' });
  bar.style.setProperty('--part', `${Math.round(100 * key.limited_per_s / most)}%`);
  const limited = key.limited_per_s
    ? make('span', { className: 'with-bar' }, make('b', { textContent: rate(key.limited_per_s) }), bar) : rate(0);
  const acts = make('span', { className: 'actions' },
    button('Reset', `Reset ${value} of ${rule}`, () => reset(rule, value)),
    button('Ban', `Ban ${value} of ${rule}`, () => banKey(rule, value), 'danger'));
  return [
    cell('Key', name, 'name'), cell('Asked/s', rate(key.asked_per_s), 'figure'), cell('Admitted/s', rate(key.admitted_per_s), 'figure'),
    cell('Limited/s', limited, key.limited_per_s ? 'figure limited' : 'figure'), cell('Level', level(key), `figure ${key.level < 0 ? 'bad' : ''}`),
    cell('Limited for', limitedFor(key)), cell('At', places(key)), cell('', acts, 'acts'),
  ];
}

/** Explanation of an empty list. */
function noKeys() {
  const limited = limitedPerS();
  return limited
    ? `No key is listed, but ${rate(limited)} requests a second are limited: by rules whose keys POPs do not report, or at POPs that cannot be asked now.`
    : 'No key is near its quota: none is limited.';
}

/** Shortens a key in hexadecimal to its beginning and end, which suffice to distinguish it. */
const short = (key) => key.length > 30 && key.startsWith('hex:') ? `${key.slice(0, 14)}\u2026${key.slice(-8)}` : key;

const level = (key) => key.level == null ? '\u2013' : `${number(Math.floor(key.level))} of ${number(key.burst)}`;

function limitedFor(key) {
  if (key.banned_until) return make('span', { className: 'bad', textContent: `banned, ${span(Math.max(0, secondsUntil(key.banned_until)))} left` });
  return key.since ? span(Math.max(0, -secondsUntil(key.since))) : '\u2013';
}

/** POPs with demand for the key; only their number if there are more than three. */
function places(key) {
  const pops = key.pops.map((pop) => pop.pop).sort();
  const count = key.regions.reduce((all, region) => all + region.pops, 0);
  return count > 3 || pops.length < count ? `${number(count)} POPs in ${number(key.regions.length)} regions` : pops.join(', ') || '\u2013';
}

/** Fills the list of rules to choose from. */
export function offerRules(names) {
  const select = $('keys-rule');
  // Replacing the options closes an open list, so it is done only if they differ.
  if (['', ...names].join() === [...select.options].map((option) => option.value).join()) return;
  const chosen = select.value;
  select.replaceChildren(make('option', { value: '', textContent: 'all rules' }), ...names.map((name) => make('option', { value: name, textContent: name })));
  select.value = names.includes(chosen) ? chosen : '';
}

export function startKeys() {
  const now = () => refreshKeys(true);
  $('keys-rule').addEventListener('change', now);
  $('keys-prefix').addEventListener('input', now);
  for (const radio of document.querySelectorAll('input[name=keys-sort]')) radio.addEventListener('change', now);
  $('keys-form').addEventListener('submit', (event) => { event.preventDefault(); now(); });
}
