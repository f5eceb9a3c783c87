// Live state from the stream: anomalies, the store, the POPs and the rules.

import { $, ago, button, cell, make, number, rate, rows, setText } from './dom.js';
import { Plot } from './plot.js';
import { lookAt } from './key.js';
import { nameOf } from './versions.js';

/** Outcomes of requests, with their colors. */
const OUTCOMES = [['allowed', '--allowed'], ['limited', '--limited'], ['shadow', '--shadow'], ['denied', '--denied']];
const PLOT_POINTS_MAX = 600;

let trips = null;
let rates = null;
/** Rule whose rates are plotted; empty for all. */
let plotted = '';
let limited_per_s = 0;
/** Received rates: the columns of the plot, by rule. */
const received = new Map();

export function showStatus(live) {
  const { store, fleet, budgets } = live;
  setText('where', `${live.replica} \u00b7 ${live.weir_sync}`);
  showOdd(live.anomalies || []);
  tile('store', store.is_up ? `${number(store.rtt_ms, 1)} ms` : 'out of reach', store.is_up ? '' : 'bad');
  setText('store-silence', store.is_up ? 'to answer' : `last answer ${ago(store.silence_s)}: ${store.problem}`);
  tile('in-debt', number(budgets.in_debt), budgets.in_debt ? 'warn' : '');
  setText('budgets', `of ${number(budgets.count)} budgets`);
  trips ??= new Plot('trips', [{ label: 'store', colour: '--mark' }], 'ms');
  trips.add(live.at_s, [store.rtt_ms]);
  if (fleet) showPops(fleet);
  showRules(live);
}

function tile(id, text, kind = '') {
  setText(id, text);
  $(id).className = kind;
}

// Anomalies.

const ODD = {
  rate: (odd) => `${odd.rule} limits ${number(odd.found)} a minute, usually ${number(odd.usual)}`,
  pop: (odd) => `${odd.rule} limits ${number(odd.found)} a minute at ${odd.pop}, usually ${number(odd.usual)}`,
  top_key: (odd) => `${odd.rule}: ${odd.key} is new on top, limited ${number(odd.found)} times a minute, the top key usually ${number(odd.usual)}`,
};

function showOdd(list) {
  $('odd').hidden = !list.length;
  rows('odd-list', list, (odd) => [odd.anomaly, odd.rule, odd.pop, odd.key].join(' '), (odd) => {
    const text = (ODD[odd.anomaly] || (() => `${odd.rule}: ${odd.anomaly}`))(odd);
    const since = new Date(odd.since).toISOString().slice(11, 16);
    const look = odd.key ? button('Look', `Look at ${odd.key} of ${odd.rule}`, () => lookAt(odd.rule, odd.key), 'look') : '';
    return [cell('', text, 'wide'), cell('', `since ${since} UTC`, 'since'), cell('', look, 'acts')];
  });
}

// The POPs.

function showPops(fleet) {
  const isWhole = fleet.current === fleet.count;
  tile('pops-current', `${number(fleet.current)} of ${number(fleet.count)}`, isWhole ? '' : 'warn');
  const summary = fleet.rule_set
    ? `Version ${nameOf(fleet.rule_set)}${fleet.canary ? ', or its canary,' : ''} runs at ${fleet.current} of ${fleet.count} POPs.`
    : 'There is no rule set of the fleet\u2019s: POPs run their own configuration\u2019s.';
  const others = fleet.count - fleet.pops.length;
  setText('pops-summary', others > 0 ? `${summary} ${others} of those that do are not listed.` : summary);
  rows('pops', fleet.pops, (pop) => pop.name, (pop) => [
    cell('POP', pop.name, 'name'), cell('Region', pop.region), cell('Version', versionOf(pop, fleet)),
    cell('State', stateOf(pop, fleet), pop.is_current ? 'good' : 'bad'), cell('Sync', pop.connectivity || '\u2013', CONNECTIVITY[pop.connectivity]),
    cell('Clock', clockOf(pop), isOff(pop) ? 'figure warn' : 'figure'), cell('Module', pop.module || '\u2013'), cell('Last report', ago(pop.silent_s), 'figure'),
  ]);
}

const CONNECTIVITY = { fresh: 'good', stale: 'warn', fallback: 'bad' };
/** Deviation of a POP's clock from which it is highlighted, in seconds. */
const CLOCK_OFF_S = 2;

const isOff = (pop) => Math.abs(pop.clock_s || 0) >= CLOCK_OFF_S;
function clockOf(pop) {
  if (pop.clock_s == null) return '\u2013';
  const off = number(Math.abs(pop.clock_s), 1);
  return off === '0' ? '0 s' : `${pop.clock_s < 0 ? '\u2212' : '+'}${off} s`;
}

function versionOf(pop, fleet) {
  if (!pop.is_current) return pop.version ? `revision ${pop.version}` : '\u2013';
  return pop.is_canary ? 'canary' : nameOf(fleet.rule_set);
}

function stateOf(pop, fleet) {
  if (pop.is_current) return 'current';
  if (pop.refused) return `refused ${pop.refused === fleet.version ? nameOf(fleet.rule_set) : pop.refused}${pop.refusal ? `: ${pop.refusal}` : ''}`;
  return pop.version ? 'behind' : 'its own rules';
}

// The rules: rates of their decisions, and debts of their budgets.

function showRules(live) {
  const now = live.rates?.rules || [];
  const has = Boolean(live.rates);
  const byName = new Map();
  const of = (name) => byName.get(name) || byName.set(name, { name }).get(name);
  for (const { rule, ...budget } of live.rules) Object.assign(of(rule), budget);
  for (const { rule, ...rates } of now) Object.assign(of(rule), rates);
  $('rules-table').classList.toggle('without-rates', !has);
  $('rates').hidden = !has;
  $('outcomes').hidden = !has;
  if (has) {
    plotRates(live.at_s, now);
    for (const [outcome] of OUTCOMES) setText(`all-${outcome}`, rate(sum(now, outcome)));
    limited_per_s = sum(now, 'limited');
    const where = live.rates.is_partial ? 'a second, at this weir-sync\u2019s POPs' : 'a second';
    for (const under of document.querySelectorAll('#outcomes .under')) under.textContent = where;
  }
  const list = [...byName.values()].sort((a, b) => a.name < b.name ? -1 : 1);
  $('rules-none').hidden = list.length > 0;
  rows('rules', list, (rule) => rule.name, ruleCells);
}

function ruleCells(rule) {
  const isAbove = rule.bound != null && rule.overshoot > rule.bound;
  const figures = OUTCOMES.map(([outcome]) => {
    const value = rule[`${outcome}_per_s`];
    return cell(`${outcome[0].toUpperCase()}${outcome.slice(1)}/s`, rate(value), `figure rates ${value ? outcome : ''}`);
  });
  return [
    cell('Rule', rule.name, 'name'), ...figures,
    cell('Debt', number(rule.debt, 1), 'figure'), cell('Overshoot', number(rule.overshoot, 1), `figure ${isAbove ? 'bad' : ''}`),
    cell('The most', number(rule.overshoot_max, 1), 'figure'), cell('Bound', number(rule.bound), 'figure'),
  ];
}

/** Last known rate of limited requests, per second. */
export const limitedPerS = () => limited_per_s;

const sum = (rules, outcome) => rules.reduce((all, rule) => all + (rule[`${outcome}_per_s`] || 0), 0);

function plotRates(at_s, rules) {
  rates ??= new Plot('rates-plot', OUTCOMES.map(([label, colour]) => ({ label, colour })), '');
  const add = (name, list) => {
    const columns = received.get(name) || received.set(name, [[], ...OUTCOMES.map(() => [])]).get(name);
    [at_s, ...OUTCOMES.map(([outcome]) => sum(list, outcome))].forEach((value, column) => columns[column].push(value));
    if (columns[0].length > PLOT_POINTS_MAX) for (const column of columns) column.shift();
  };
  add('', rules);
  for (const rule of rules) add(rule.rule, [rule]);
  const names = ['', ...rules.map((rule) => rule.rule)];
  // The console may be open for weeks, so the data of removed rules is dropped.
  for (const name of [...received.keys()]) if (!names.includes(name)) received.delete(name);
  if (!received.has(plotted)) plotted = '';
  rates.show(received.get(plotted));
  const select = $('plotted');
  if (names.join() !== [...select.options].map((option) => option.value).join()) {
    select.replaceChildren(...names.map((name) => make('option', { value: name, textContent: name || 'all rules' })));
    select.value = plotted;
    select.onchange = () => { plotted = select.value; rates.show(received.get(plotted)); };
  }
}
