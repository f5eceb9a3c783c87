// Actions on a key, an address or a network. Each asks for confirmation first.

import { ask, commented, keyPath } from './api.js';
import { question } from './question.js';

const KINDS = { ban: 'bans', allow: 'allows' };
/** Durations of bans, allows and other rates. The first is the default. */
const SPANS = [['1h', '1 hour'], ['15m', '15 minutes'], ['1d', '1 day'], ['7d', '7 days']];
const forHow = { name: 'for', label: 'For how long?', options: SPANS };

/** Makes a change and fires `changed`, so that all parts of the page update. */
async function change(path, options) {
  await ask(path, options);
  document.dispatchEvent(new Event('changed'));
}

const put = (path, body) => change(path, { method: 'PUT', body });

export function reset(rule, key) {
  question({
    title: `Reset ${key}?`, verb: 'Reset it', isCalm: true,
    text: `Its budget under ${rule} starts full again, and a ban of it ends, at every POP. It may have its whole burst at once.`,
    act: ({ comment }) => change(keyPath(rule, key), { method: 'DELETE', headers: commented(comment) }),
  });
}

export function banKey(rule, key) {
  question({
    title: `Ban ${key}?`, verb: 'Ban it', fields: [forHow],
    text: `The rule ${rule} refuses it, at every POP, until then. What the rule does not count goes on.`,
    act: ({ for: time, comment }) => put('v1/bans', { rule, key, for: time, reason: comment }),
  });
}

export function banAddress(address) {
  question({
    title: `Ban the address ${address}?`, verb: 'Ban it', fields: [forHow],
    text: 'All its requests get 403, whatever they ask for, at every POP, until then.',
    act: ({ for: time, comment }) => put('v1/bans', { address, for: time, reason: comment }),
  });
}

export function allowAddress(address) {
  question({
    title: `Allow the address ${address}?`, verb: 'Allow it', isCalm: true, fields: [forHow],
    text: 'No rule counts its requests, at every POP, until then.',
    act: ({ for: time, comment }) => put('v1/allows', { address, for: time, reason: comment }),
  });
}

export function override(rule, key, present) {
  question({
    title: `Another rate for ${key}?`, verb: 'Give it this rate', isCalm: true,
    text: `The rule ${rule} gives this key another rate, at every POP, until then. Its bucket starts full.`,
    fields: [
      { name: 'rate', label: 'Rate', value: present, placeholder: '100/s' },
      { name: 'burst', label: 'Burst (empty: that of the rate)', isRequired: false, placeholder: '200' }, forHow,
    ],
    act: ({ rate: to, burst, for: time, comment }) => put(`${keyPath(rule, key)}/override`, {
      rate: to, ...(burst ? { burst: Number(burst) } : {}), for: time, reason: comment,
    }),
  });
}

/** Subject of an override, as text. */
export const subject = (one) => one.address || `${one.key} of ${one.rule}`;

export function lift(one) {
  const path = one.kind === 'rate' ? `${keyPath(one.rule, one.key)}/override` : `v1/${KINDS[one.kind]}/${one.id}`;
  question({
    title: `Lift the ${one.kind} of ${subject(one)}?`, verb: 'Lift it', isCalm: true, text: 'It ends now, at every POP.',
    act: ({ comment }) => change(path, { method: 'DELETE', headers: commented(comment) }),
  });
}

/** Bans or allows an address or a network, by the user's choice. */
export function banOrAllow() {
  question({
    title: 'Ban or allow', verb: 'Set it', isCalm: true, text: 'In force at every POP within a second.',
    fields: [
      { name: 'kind', label: 'What?', options: [['bans', 'Ban: all its requests get 403'], ['allows', 'Allow: no rule counts its requests']] },
      { name: 'address', label: 'Which address or network?', placeholder: '203.0.113.0/24' }, forHow,
    ],
    act: ({ kind, address, for: time, comment }) => put(`v1/${kind}`, { address, for: time, reason: comment }),
  });
}
