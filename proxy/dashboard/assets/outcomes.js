// The seven outcomes of a prediction, each with a shape, a colour and a meaning.

import { h } from "./dom.js";

export const OUTCOMES = {
  hit: "the claim got the finished result at once",
  joined: "the claim waited for the rest of the run",
  miss: "the agent did not make this call",
  stale: "a write came in between, or the result grew too old",
  failed: "the run or its channel failed; the tool ran as usual",
  vetoed: "it was not run: the gate or the runtime said no",
  unclaimed: "the call was made, but nobody asked for the result",
};

export const DISCARDED = ["miss", "stale", "failed", "unclaimed"];

const SHAPES = {
  hit: () => [h("circle", { cx: 6, cy: 6, r: 5, fill: "currentColor" })],
  joined: () => [
    h("circle", { cx: 6, cy: 6, r: 4.2, fill: "none", stroke: "currentColor", "stroke-width": 1.6 }),
    h("path", { d: "M6 1.5a4.5 4.5 0 0 1 0 9z", fill: "currentColor" }),
  ],
  miss: () => [line("M2 2l8 8M10 2l-8 8", 2.2)],
  stale: () => [h("circle", { cx: 6, cy: 6, r: 4.7, fill: "none", stroke: "currentColor", "stroke-width": 1.5 }), line("M6 3v3l2.2 1.6", 1.5)],
  failed: () => [h("path", { d: "M6 1l5.4 10H.6z", fill: "currentColor" })],
  vetoed: () => [h("circle", { cx: 6, cy: 6, r: 4.7, fill: "none", stroke: "currentColor", "stroke-width": 1.5 }), line("M2.8 9.2l6.4-6.4", 1.5)],
  unclaimed: () => [h("rect", { x: 1.7, y: 1.7, width: 8.6, height: 8.6, fill: "none", stroke: "currentColor", "stroke-width": 1.7 })],
};

function line(d, width) {
  return h("path", { d, fill: "none", stroke: "currentColor", "stroke-width": width, "stroke-linecap": "round" });
}

/** The outcome's shape, which says nothing by itself: a label stands beside it, or is given. */
export function mark(outcome, label = null) {
  const shape = SHAPES[outcome] ? SHAPES[outcome]() : [];
  const named = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  return h("svg.mark", { viewBox: "0 0 12 12", width: 12, height: 12, class: `mark outcome-${outcome}`, ...named }, shape);
}

export function tag(outcome) {
  return h("span", { class: `tag outcome-${outcome}`, title: OUTCOMES[outcome] }, mark(outcome), outcome);
}

/** Counts by outcome, as shapes with numbers. */
export function tally(counts) {
  const found = Object.keys(OUTCOMES).filter((outcome) => counts[outcome]);
  if (!found.length) return h("span.quiet", "none");
  return h("span.tally", found.map((outcome) =>
    h("span", { class: `outcome-${outcome}`, title: `${counts[outcome]} ${outcome}: ${OUTCOMES[outcome]}` }, [
      mark(outcome, outcome), h("span", String(counts[outcome])),
    ]),
  ));
}

export function legend(...names) {
  const shown = names.length ? names : Object.keys(OUTCOMES);
  return h("ul.legend", { "aria-label": "Outcomes" }, shown.map((outcome) =>
    h("li", mark(outcome), h("b", outcome), h("span", OUTCOMES[outcome])),
  ));
}
