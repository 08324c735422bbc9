import { get } from "../api.js";
import { savedAndWasted } from "../charts.js";
import { empty, figures, h, section, table } from "../dom.js";
import { count, many, percent, seconds, signed } from "../format.js";
import { tally } from "../outcomes.js";
import { head, hours } from "../windows.js";

export const title = "Savings";

export async function render(context) {
  const { parameters, signal } = context;
  const found = await get("savings", { hours: hours(parameters) }, signal);
  const top = head(title, context, "What speculation saved: measured against a control group, and summed over hits.");
  const { measured, totals } = found;
  if (!totals.runs) return [top, empty("Nothing ran in this time.", "Choose a longer time, or let an agent work through the proxy.")];
  const share = totals.claims ? totals.served / totals.claims : null;
  return [
    top,
    figures(
      { name: "Measured", value: measured.difference_s === null ? "\u2013" : signed(measured.difference_s), note: "a turn, treated less control", kind: "first" },
      { name: "Summed over hits", value: seconds(totals.saved_s), note: `in ${many(totals.runs, "run")}` },
      { name: "Calls served ahead", value: percent(share), note: `${count(totals.served)} of ${count(totals.claims)} declared calls` },
      { name: "Spent on discarded runs", value: seconds(totals.wasted_s), note: "tool time" },
    ),
    section("Measured", ...inWords(found)),
    section("Over time", savedAndWasted(found.over_time, found.step_s, signal)),
    section("By tool", byTable("Savings by tool", "tool", found.by_tool)),
    section("By predictor", byTable("Savings by predictor", "predictor", found.by_predictor)),
  ];
}

function inWords({ measured, holdout_share: share }) {
  const groups = h("p.quiet", `Treated: ${many(measured.treated, "run")}, ${many(measured.treated_turns, "turn")}. Control: ${many(measured.control, "run")}, ${many(measured.control_turns, "turn")} (setting holdout_share, now ${percent(share, 1)}).`);
  if (measured.difference_s === null) {
    const why = measured.control ? "no run with a runtime was treated yet" : share ? "no run has fallen into the control group yet" : "the control group is switched off";
    return [h("p", `Nothing can be measured: ${why}. Until then there is only the sum over hits, which is what the proxy would like to believe.`), groups];
  }
  if (measured.low_s === null) return [h("p", `A turn took ${signed(measured.difference_s)} compared with the control group. That is from too few runs for an interval: each group needs two.`), groups];
  const clear = measured.high_s < 0 ? "Turns were faster." : measured.low_s > 0 ? "Turns were slower: see Waste, and tell us." : "The interval holds 0: it is not clear yet whether turns were faster.";
  return [
    h("p", h("b", clear), ` A turn took ${signed(measured.difference_s)} compared with the control group (95% interval ${signed(measured.low_s)} to ${signed(measured.high_s)}, by a bootstrap over runs); over all treated turns that is ${seconds(measured.measured_s)} saved.`),
    interval(measured),
    groups,
  ];
}

function interval({ low_s: low, high_s: high, difference_s: middle }) {
  const reach = Math.max(Math.abs(low), Math.abs(high), 1e-6) * 1.15;
  const at = (value) => 50 + (value / reach) * 50;
  const frame = h("div.interval", { role: "img", "aria-label": `Between ${signed(low)} and ${signed(high)} a turn, most likely ${signed(middle)}; below zero is faster` }, [
    h("div.range", { vars: { from: `${at(low)}%`, to: `${at(high)}%` } }),
    h("div.middle", { vars: { at: `${at(middle)}%` } }),
    h("div.zero"),
  ]);
  return h("div.interval-frame", frame, h("div.ends", { "aria-hidden": "true" }, h("span", "\u2190 faster"), h("span", "same"), h("span", "slower \u2192")));
}

export function byTable(label, column, rows, barred = "saved_s") {
  const most = Math.max(...rows.map((row) => row[barred]), 1e-9);
  const time = (row, name) => (name === barred ? bar(row[name], most, name) : seconds(row[name]));
  if (!rows.length) return empty("No prediction was made in this time.");
  return table(label, [
    { name: column === "tool" ? "Tool" : "Predictor", cell: (row) => h("b", row[column]) },
    { name: "Predictions by outcome", cell: (row) => tally(row) },
    { name: "Ran ahead", number: true, cell: (row) => count(row.ran) },
    { name: "Served", number: true, cell: (row) => (row.ran ? percent((row.hit + row.joined) / row.ran) : "\u2013") },
    { name: "Saved", number: true, cell: (row) => time(row, "saved_s") },
    { name: "Discarded tool time", number: true, cell: (row) => time(row, "wasted_s") },
  ], rows);
}

function bar(value, most, name) {
  return h("span", { class: `bar ${name}` }, h("span.fill", { "aria-hidden": "true", vars: { share: `${Math.max(0, value / most) * 100}%` } }), h("span", seconds(value)));
}
