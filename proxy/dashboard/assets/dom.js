// Elements without a framework, and without mark-up in strings: text is always text.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "circle", "rect", "line", "g", "title"]);

/** h("a.link", { href }, "text", child): an element. Properties that begin with "on" are listeners. */
export function h(selector, properties = {}, ...children) {
  if (!isPlain(properties)) [properties, children] = [{}, [properties, ...children]];
  const [tag, ...classes] = selector.split(".");
  const element = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(properties)) set(element, name, value);
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function isPlain(value) {
  return value !== null && typeof value === "object" && Object.getPrototypeOf(value) === Object.prototype;
}

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "vars") for (const [key, one] of Object.entries(value)) element.style.setProperty(`--${key}`, one);
  else if (name === "value" || name === "checked" || name === "disabled" || name === "selected") element[name] = value;
  else element.setAttribute(name, value === true ? "" : String(value));
}

/** A table; each column is { name, cell, number, wide }, and `unnamed` where a card on a phone need not repeat the name. */
export function table(label, columns, rows, options = {}) {
  const head = columns.map((column) =>
    h("th", { role: "columnheader", scope: "col", class: column.number ? "number" : null }, column.name),
  );
  const body = rows.map((row) => {
    const cells = columns.map((column) => {
      const kind = [column.number && "number", column.wide && "wide"].filter(Boolean).join(" ") || null;
      return h("td", { role: "cell", class: kind, "data-name": column.unnamed ? "" : column.name }, column.cell(row));
    });
    return h("tr", { role: "row", ...(options.row ? options.row(row) : {}) }, cells);
  });
  return h("div.table-frame", { role: "region", "aria-label": label, tabindex: "0" }, [
    h("table.cards", { role: "table", "aria-label": label }, [
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)),
      h("tbody", { role: "rowgroup" }, body),
    ]),
  ]);
}

export function section(title, ...children) {
  return h("section", h("h2", title), ...children);
}

/** Figures side by side: { name, value, note, kind }. */
export function figures(...list) {
  return h("dl.figures", list.map(({ name, value, note, kind }) =>
    h("div", { class: kind || null }, h("dt", name), h("dd", h("span.value", value), note ? h("span.note", note) : null)),
  ));
}

/** Nothing to show: why, and what to do. */
export function empty(title, ...advice) {
  return h("div.empty", h("p.title", title), advice.map((line) => (line instanceof Node ? line : h("p", line))));
}
