// The time that sums go over, kept in the address.

import { h } from "./dom.js";

const CHOICES = [["1", "1 hour"], ["24", "24 hours"], ["168", "7 days"], ["720", "30 days"], ["", "all"]];

export function hours(parameters) {
  return parameters.has("hours") ? parameters.get("hours") : "168";
}

/** Radio buttons that go to the same page with another window. */
export function chooser({ parameters, go }) {
  const now = hours(parameters);
  return h("fieldset.window", [
    h("legend.quiet", "Time"),
    CHOICES.map(([value, label]) => h("label", [
      h("input", { type: "radio", name: "hours", value, checked: value === now, onchange: () => {
        const next = new URLSearchParams(parameters);
        next.set("hours", value);
        go(`${location.pathname}?${next}`, { replace: true });
      } }),
      h("span", label),
    ])),
  ]);
}

export function head(title, context, lead) {
  return h("div.head", h("div", h("h1", title), lead ? h("p.lead", lead) : null), chooser(context));
}
