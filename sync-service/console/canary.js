// The canary: its progress, with buttons to promote it and to take it back.

import { ask, commented, json } from './api.js';
import { $, setText } from './dom.js';
import { question } from './question.js';

let shown = null;

const where = (canary) => canary.region ? `the POPs of ${canary.region}` : (canary.pops || []).join(', ');

/** Shows the fleet's canary, if there is one. */
export function showCanary(canary) {
  shown = canary || null;
  $('canary').hidden = !canary;
  if (!canary) return;
  const { running = [], refused = [], waiting = [] } = canary;
  setText('canary-where', `A canary runs at ${where(canary)}`);
  const parts = [`${running.length} of ${running.length + refused.length + waiting.length} POPs run it`];
  if (refused.length) parts.push(`refused by ${refused.join(', ')}`);
  if (waiting.length) parts.push(`not yet at ${waiting.join(', ')}`);
  setText('canary-progress', `${parts.join('; ')}.`);
  $('canary-progress').className = refused.length ? 'bad' : 'note';
}

function promote() {
  const canary = shown;
  about('Promote the canary?', 'All POPs run it, as the next version of the rule set.', 'Promote it', false, ({ comment }) =>
    ask('v1/rules/canary/promote', { method: 'POST', headers: { 'if-match': `"${canary.id}"`, ...commented(comment) } }));
}

function withdraw() {
  const canary = shown;
  about('Take the canary back?', `At ${where(canary)} the rule set of all others is run again.`, 'Take it back', true, ({ comment }) =>
    ask('v1/rules/canary', { method: 'DELETE', headers: { 'if-match': `"${canary.id}"`, ...commented(comment) } }));
}

/** Asks for confirmation and shows the canary's changes. */
function about(title, text, verb, isCalm, act) {
  const done = async (values) => { await act(values); document.dispatchEvent(new Event('changed')); };
  question({ title, text, verb, isCalm, diff: changes(), act: done });
}

async function changes() {
  const { lines } = await json('v1/rules/canary');
  return lines.length ? lines.join('\n') : 'No difference to the rule set.';
}

export function startCanary() {
  $('canary-promote').addEventListener('click', promote);
  $('canary-back').addEventListener('click', withdraw);
}
