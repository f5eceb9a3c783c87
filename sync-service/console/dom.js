// Elements. All that is shown is built from text nodes, so that no name of a rule or a POP is ever read as HTML.

export const $ = (id) => document.getElementById(id);

/** Changes a text only where it differs: screen readers read what changes. */
export const say = (id, text) => { const element = $(id); if (element.textContent !== text) element.textContent = text; };

/** An element: `make('p', {className: 'note'}, 'text', child)`. */
export function make(tag, fields = {}, ...children) {
  const { data = {}, ...rest } = fields;
  const made = Object.assign(document.createElement(tag), rest);
  for (const [name, value] of Object.entries(data)) made.dataset[name] = value;
  made.append(...children.filter((child) => child != null));
  return made;
}

/** A button; `label` is what it is called where its text alone does not say it. */
export function button(text, label, act, kind = '') {
  const made = make('button', { type: 'button', textContent: text, className: kind });
  made.setAttribute('aria-label', label);
  made.addEventListener('click', act);
  return made;
}

/** A cell. What it is a cell of is shown beside it where the table is too narrow for columns. */
export function cell(label, content, kind = '') {
  return make('td', { className: kind, data: { label } }, content);
}

/**
 * Shows `list` as the rows of the body `id`. A row is made once for each `name(item)`, by `cells(item)`, and made anew
 * only if its item has changed; so what has the focus keeps it.
 */
export function rows(id, list, name, cells) {
  const body = $(id);
  const known = body.rowsByName ??= new Map();
  const focused = document.activeElement;
  const kept = new Map();
  list.forEach((item, place) => {
    const said = JSON.stringify(item);
    let row = known.get(name(item));
    if (!row || row.said !== said) {
      const made = cells(item);
      if (row) refresh(row.tr, made); else row = { tr: make('tr', {}, ...made) };
      row.said = said;
    }
    kept.set(name(item), row);
    if (body.children[place] !== row.tr) body.insertBefore(row.tr, body.children[place] || null);
  });
  while (body.children.length > list.length) body.lastChild.remove();
  body.rowsByName = kept;
  if (focused !== document.activeElement && body.contains(focused)) focused.focus({ preventScroll: true });
}

/** Puts new cells in place of those that differ: one with a button that is the same stays. */
function refresh(tr, made) {
  made.forEach((cell, place) => {
    const old = tr.children[place];
    if (!old) tr.append(cell); else if (!old.isEqualNode(cell)) old.replaceWith(cell);
  });
  while (tr.children.length > made.length) tr.lastChild.remove();
}

// Figures, as people read them.

export const number = (value, digits = 0) => value == null ? '\u2013' : value.toLocaleString('en', { maximumFractionDigits: digits });

/** A rate: three digits are enough. */
export function rate(value) {
  if (value == null) return '\u2013';
  return number(value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

/** A span, in words. */
export function span(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} d`;
}

export const ago = (seconds) => `${span(seconds)} ago`;

/** How long it is until a time, or since it, in seconds, by this machine's clock. */
export const secondsUntil = (time) => (Date.parse(time) - Date.now()) / 1000;

/** A time, as people read it. */
export const clock = (time) => new Date(time).toISOString().replace('T', ' ').replace(/\.\d+Z$/, ' UTC');
