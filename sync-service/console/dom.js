// Construction of elements. All content becomes text nodes, so that names of rules and POPs are never parsed as HTML.

export const $ = (id) => document.getElementById(id);

/** Sets an element's text only if it differs, because screen readers announce each change. */
export const setText = (id, text) => { const element = $(id); if (element.textContent !== text) element.textContent = text; };

/** Creates an element: `make('p', {className: 'note'}, 'text', child)`. */
export function make(tag, fields = {}, ...children) {
  const { data = {}, ...rest } = fields;
  const made = Object.assign(document.createElement(tag), rest);
  for (const [name, value] of Object.entries(data)) made.dataset[name] = value;
  made.append(...children.filter((child) => child != null));
  return made;
}

/** Creates a button. `label` is its accessible name, for use without the context. */
export function button(text, label, act, kind = '') {
  const made = make('button', { type: 'button', textContent: text, className: kind });
  made.setAttribute('aria-label', label);
  made.addEventListener('click', act);
  return made;
}

/** Creates a table cell. `label` is its column, shown beside the cell if the table is too narrow for columns. */
export function cell(label, content, kind = '') {
  return make('td', { className: kind, data: { label } }, content);
}

/**
 * Shows `list` as the rows of the table body `id`. The row of each `name(item)` is created by `cells(item)`, and
 * updated only if the item has changed, so that focus is preserved.
 */
export function rows(id, list, name, cells) {
  const body = $(id);
  const known = body.rowsByName ??= new Map();
  const focused = document.activeElement;
  const kept = new Map();
  list.forEach((item, place) => {
    const content = JSON.stringify(item);
    let row = known.get(name(item));
    if (!row || row.content !== content) {
      const made = cells(item);
      if (row) refresh(row.tr, made); else row = { tr: make('tr', {}, ...made) };
      row.content = content;
    }
    kept.set(name(item), row);
    if (body.children[place] !== row.tr) body.insertBefore(row.tr, body.children[place] || null);
  });
  while (body.children.length > list.length) body.lastChild.remove();
  body.rowsByName = kept;
  if (focused !== document.activeElement && body.contains(focused)) focused.focus({ preventScroll: true });
}

/** Replaces the cells that differ. An unchanged cell keeps its button. */
function refresh(tr, made) {
  made.forEach((cell, place) => {
    const old = tr.children[place];
    if (!old) tr.append(cell); else if (!old.isEqualNode(cell)) old.replaceWith(cell);
  });
  while (tr.children.length > made.length) tr.lastChild.remove();
}

// Formatting of numbers and times.

export const number = (value, digits = 0) => value == null ? '\u2013' : value.toLocaleString('en', { maximumFractionDigits: digits });

/** Formats a rate with about three digits. */
export function rate(value) {
  if (value == null) return '\u2013';
  return number(value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

/** Formats a duration. */
export function span(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} d`;
}

export const ago = (seconds) => `${span(seconds)} ago`;

/** Seconds until a time by this machine's clock; negative if it has passed. */
export const secondsUntil = (time) => (Date.parse(time) - Date.now()) / 1000;

/** Formats a time. */
export const clock = (time) => new Date(time).toISOString().replace('T', ' ').replace(/\.\d+Z$/, ' UTC');
