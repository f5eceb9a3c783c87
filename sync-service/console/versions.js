// The rule set: versions, their differences, rollback and the kill switch.

import { ask, commented, json } from './api.js';
import { $, button, cell, clock, make, rows, setText } from './dom.js';
import { offerRules } from './keys.js';
import { question } from './question.js';

let current = 0;
/** The short name of the current version, as a number: 12 of r12. */
let short = 0;

/** What a version is called, for people: r12 is the twelfth; the number of what is none. */
export const nameOf = (version) => (current >= version && current - version < short ? `r${short - (current - version)}` : String(version));

/** Loads the list of versions, and shows if rules are enforced. */
export async function listVersions() {
  const { versions: kept } = await json('v1/rules/versions');
  current = kept[0]?.version || 0;
  short = Number(kept[0]?.name?.slice(1) || 0);
  $('versions-none').hidden = kept.length > 0;
  $('versions-table').hidden = !kept.length;
  rows('versions', kept.map((version) => ({ ...version, is_current: version.version === current })), (version) => String(version.version), cells);
  const document = kept.length ? await json('v1/rules') : {};
  const isOff = document.enforce === false;
  $('off').hidden = !isOff;
  $('enforce-off').hidden = isOff || !kept.length;
  $('enforce-on').hidden = !isOff;
  offerRules((document.rules || []).map((rule) => rule.name));
}

function cells({ version, is_current: isCurrent, at_s, author, note, comment }) {
  const acts = isCurrent ? make('span', { className: 'kind current', textContent: 'current' }) : make('span', { className: 'actions' },
    button('Compare', `Compare version ${nameOf(version)} with the current one`, () => compare(version)),
    button('Roll back', `Roll back to version ${nameOf(version)}`, () => rollBack(version), 'danger'));
  return [
    cell('Version', nameOf(version), 'name'), cell('Made', clock(at_s * 1000)), cell('By', author), cell('From', note),
    cell('Comment', comment || '\u2013', 'wide'), cell('', acts, 'acts'),
  ];
}

/** Differences from version `from` to version `to`, one per line. */
async function changes(from, to) {
  const { lines } = await json(`v1/rules/diff?from=${from}&to=${to}`);
  return lines.length ? lines.join('\n') : 'No difference.';
}

async function compare(version) {
  const from = current;
  try {
    const text = await changes(from, version);
    setText('diff', `From ${nameOf(from)} to ${nameOf(version)}:\n${text}`);
    $('diff').hidden = false;
    $('diff').focus();
    setText('versions-wrong', '');
  } catch (error) { setText('versions-wrong', error.message); }
}

function rollBack(version) {
  // The rollback succeeds only if the version shown in the question is still the current one.
  const seen = current;
  question({
    title: `Roll back to ${nameOf(version)}?`, text: 'This puts the version again, as a new one, in the whole fleet.', verb: 'Roll back', diff: changes(seen, version),
    act: async ({ comment }) => {
      await ask('v1/rules/rollback', { method: 'POST', headers: { 'if-match': `"${seen}"`, ...commented(comment) }, body: { version } });
      await listVersions();
    },
  });
}

function enforce(isOn) {
  const [title, text, verb] = isOn
    ? ['Switch all rules on?', 'Rules limit again, in the whole fleet.', 'Switch them on']
    : ['Switch all rules off?', 'No rule limits anything any more, in the whole fleet, until they are switched on again.', 'Switch them off'];
  question({
    title, text, verb, isCalm: isOn,
    act: async ({ comment }) => {
      await ask('v1/enforcement', { method: 'PUT', headers: commented(comment), body: { enforce: isOn } });
      await listVersions();
    },
  });
}

export function startVersions() {
  $('enforce-off').addEventListener('click', () => enforce(false));
  $('enforce-on').addEventListener('click', () => enforce(true));
  $('off-on').addEventListener('click', () => enforce(true));
}
