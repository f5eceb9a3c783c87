// Confirmation dialog for changes.

import { $, make, setText } from './dom.js';

/** Number of questions so far. A late answer to an earlier question must not affect the current one. */
let asked = 0;

/**
 * Asks for confirmation, then runs `act`. An error appears in the dialog, or on the page if the dialog was closed in
 * the meantime. `fields` are further inputs, `{name, label, value, options}`; `act` receives their values by name,
 * and `comment`. `diff` is a promise of the change as text. It is awaited here, so that the dialog opens at once.
 */
export function question({ title, text, verb, diff, fields = [], isCalm = false, act }) {
  const dialog = $('ask');
  const own = ++asked;
  const isOpen = () => own === asked && dialog.open;
  setText('ask-title', title);
  setText('ask-text', text);
  setText('ask-wrong', '');
  setText('ask-yes', verb);
  $('ask-yes').className = isCalm ? 'main' : 'danger main';
  $('ask-comment').value = '';
  $('ask-diff').hidden = true;
  $('ask-yes').disabled = Boolean(diff);
  $('undone').hidden = true;
  $('ask-fields').replaceChildren(...fields.map(field));
  const values = () => Object.fromEntries(fields.map(({ name }) => [name, $(`ask-${name}`).value.trim()]));
  $('ask-yes').onclick = async (event) => {
    event.preventDefault();
    if (!$('ask-form').reportValidity()) return;
    $('ask-yes').disabled = true;
    setText('ask-wrong', '');
    try {
      await act({ ...values(), comment: $('ask-comment').value.trim() });
      if (isOpen()) dialog.close();
    } catch (error) {
      if (isOpen()) return setText('ask-wrong', error.message);
      setText('undone', `${title} It failed after the question was left: ${error.message}`);
      $('undone').hidden = false;
    } finally {
      if (own === asked) $('ask-yes').disabled = false;
    }
  };
  $('ask-no').onclick = () => dialog.close();
  dialog.showModal();
  $('ask-no').focus();
  diff?.then((lines) => {
    if (!isOpen()) return;
    $('ask-diff').textContent = lines;
    $('ask-diff').hidden = false;
    $('ask-yes').disabled = false;
  }, (error) => { if (isOpen()) setText('ask-wrong', error.message); });
}

function field({ name, label, value = '', options, placeholder = '', isRequired = true }) {
  const id = `ask-${name}`;
  const input = options
    ? make('select', { id }, ...options.map(([of, text]) => make('option', { value: of, textContent: text })))
    : make('input', { id, value, placeholder, required: isRequired, autocomplete: 'off', spellcheck: false });
  return make('p', { className: 'field' }, make('label', { htmlFor: id, textContent: label }), input);
}
