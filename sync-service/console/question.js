// What asks before anything is changed.

import { $, make, say } from './dom.js';

/**
 * Asks, and then does it; what is refused is said in the question, which stays open. `fields` are asked for as well:
 * `{name, label, value, options}`; what was said is given to `act` by their names, with `comment`.
 */
export function question({ title, text, verb, diff, fields = [], isCalm = false, act }) {
  const dialog = $('ask');
  say('ask-title', title);
  say('ask-text', text);
  say('ask-wrong', '');
  say('ask-yes', verb);
  $('ask-yes').className = isCalm ? 'main' : 'danger main';
  $('ask-comment').value = '';
  $('ask-diff').hidden = !diff;
  $('ask-diff').textContent = diff || '';
  $('ask-fields').replaceChildren(...fields.map(field));
  const said = () => Object.fromEntries(fields.map(({ name }) => [name, $(`ask-${name}`).value.trim()]));
  $('ask-yes').onclick = async (event) => {
    event.preventDefault();
    if (!$('ask-form').reportValidity()) return;
    $('ask-yes').disabled = true;
    say('ask-wrong', '');
    try {
      await act({ ...said(), comment: $('ask-comment').value.trim() });
      dialog.close();
    } catch (error) {
      say('ask-wrong', error.message);
    } finally {
      $('ask-yes').disabled = false;
    }
  };
  dialog.showModal();
  $('ask-no').focus();
}

function field({ name, label, value = '', options, placeholder = '', isRequired = true }) {
  const id = `ask-${name}`;
  const input = options
    ? make('select', { id }, ...options.map(([of, text]) => make('option', { value: of, textContent: text })))
    : make('input', { id, value, placeholder, required: isRequired, autocomplete: 'off', spellcheck: false });
  return make('p', { className: 'field' }, make('label', { htmlFor: id, textContent: label }), input);
}
