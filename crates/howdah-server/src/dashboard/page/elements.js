// Elements of the page. All text is inserted as text, never as HTML, because some of it comes from visitors.

const SVG = ['svg', 'polyline', 'line', 'title'];

/** An element: `el('td.number', text, …)`; an object sets attributes. */
export function el(kind, ...parts) {
  const [tag, ...classes] = kind.split('.');
  const made = SVG.includes(tag) ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  if (classes.length > 0) made.setAttribute('class', classes.join(' '));
  for (const part of parts.flat(Infinity)) {
    if (part === null || part === undefined || part === false) continue;
    if (part instanceof Node) made.append(part);
    else if (typeof part === 'object') for (const name in part) made.setAttribute(name, part[name]);
    else made.append(String(part));
  }
  return made;
}

const keyOf = (node) => (node.dataset ? node.dataset.key : undefined);

/** Makes one element equal to another without replacing equal parts, which keep focus, selection and open state. */
export function become(old, made) {
  if (old.nodeType !== made.nodeType || old.nodeName !== made.nodeName) {
    old.replaceWith(made);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== made.data) old.data = made.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!made.hasAttribute(name) && name !== 'open') old.removeAttribute(name);
  }
  for (const { name, value } of made.attributes) {
    // The page's policy forbids the attribute, not the property.
    if (name === 'style') old.style.cssText = value;
    // Once an element is shown, only the reader opens and closes it.
    else if (name !== 'open' && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const wanted = [...made.childNodes];
  wanted.forEach((child, i) => {
    const key = keyOf(child);
    const at = old.childNodes[i];
    if (key === undefined) {
      if (at && keyOf(at) === undefined) become(at, child);
      else old.insertBefore(child, at || null);
      return;
    }
    // A row stays the same element when its position in a sorted table changes.
    const same = [...old.childNodes].slice(i).find((node) => keyOf(node) === key);
    if (same && same !== at) old.insertBefore(same, at);
    if (same) become(same, child);
    else old.insertBefore(child, at || null);
  });
  while (old.childNodes.length > wanted.length) old.lastChild.remove();
}

/**
 * A table. A column whose name begins with `#` has numbers. Each cell carries its column's name, because a phone shows
 * each row as a block of lines instead of a table.
 */
export function table(caption, columns, rows, none = 'none') {
  if (rows.length === 0) return el('p.faint', none);
  const names = columns.map((column) => column.replace('#', ''));
  const head = columns.map((column, i) => el(column.startsWith('#') ? 'th.number' : 'th', { scope: 'col' }, names[i]));
  const body = rows.map((row) => {
    const cells = Array.isArray(row) ? row : row.cells;
    cells.forEach((cell, i) => { if (names[i]) cell.dataset.label = names[i]; });
    return el('tr', !Array.isArray(row) && { 'data-key': row.key }, cells);
  });
  return el('div.scroll', { tabindex: 0, role: 'region', 'aria-label': caption },
    el('table', el('thead', el('tr', head)), el('tbody', body)));
}

export const number = (text) => el('td.number', text);
export const long = (text) => el('td.long', text);

let texts = { failures: {}, reasons: {} };

/** Loads the meanings of all names, which do not change while the program runs. */
export async function loadNames() {
  const response = await fetch('names.json');
  if (response.ok) texts = await response.json();
}

function explained(name, text, anchor) {
  if (!text) return el('span', name);
  return el('details.name', el('summary', name),
    el('p', text, ' ', el('a', { href: `names.html#${anchor}` }, 'All names')));
}

/** The name of a failure, which opens to its meaning. */
export const failureName = (name) => explained(name, texts.failures[name], name);
/** The reason why the cache was not used, which opens to its meaning. */
export const reasonName = (name) => explained(name, texts.reasons[name], `reason-${name}`);
