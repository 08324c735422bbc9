import { get } from "../api.js";
import { savedAndWasted } from "../charts.js";
import { empty, figures, h, section, table } from "../dom.js";
import { count, dollars, many, moment, percent, seconds } from "../format.js";
import { DISCARDED, tag } from "../outcomes.js";
import { head, hours } from "../windows.js";
import { byTable } from "./savings.js";

export const title = "Waste";

export async function render(context) {
  const { parameters, signal } = context;
  const found = await get("waste", { hours: hours(parameters) }, signal);
  const { totals } = found;
  const top = head(title, context, "What was run, asked and told to others for nothing.");
  if (!totals.runs) return [top, empty("Nothing ran in this time.", "Choose a longer time, or let an agent work through the proxy.")];
  const discarded = DISCARDED.reduce((sum, name) => sum + totals[name], 0);
  const ran = discarded + totals.hit + totals.joined;
  return [
    top,
    figures(
      { name: "Discarded runs ahead", value: count(discarded), note: ran ? `${percent(discarded / ran)} of ${count(ran)} (max_discarded_share: ${percent(found.max_discarded_share)})` : "nothing ran ahead", kind: "first" },
      { name: "Tool time", value: seconds(totals.wasted_s), note: `against ${seconds(totals.saved_s)} saved` },
      { name: "Probes", value: count(totals.probe_tokens), note: `tokens in ${many(totals.probes, "probe")}` },
      { name: "Money", value: dollars(totals.probe_cost_usd), note: "probes at hosted endpoints" },
      { name: "Told third parties", value: count(totals.egress), note: `discarded calls; the budget is ${count(found.egress_discards_per_hour)} an hour` },
    ),
    section("Why runs were discarded", reasons(found.reasons)),
    section("Over time", savedAndWasted(found.over_time, found.step_s, signal)),
    section("By tool", byTable("Waste by tool", "tool", [...found.by_tool].sort((a, b) => b.wasted_s - a.wasted_s), "wasted_s")),
    section("By predictor", byTable("Waste by predictor", "predictor", [...found.by_predictor].sort((a, b) => b.wasted_s - a.wasted_s), "wasted_s")),
    section("The latest", latest(found.latest)),
  ];
}

function reasons(rows) {
  if (!rows.length) return empty("No run ahead was discarded.", "That may also mean that nothing ran ahead: see Runs.");
  return table("Why runs were discarded", [
    { name: "Outcome", cell: (row) => tag(row.outcome) },
    { name: "Reason", wide: true, cell: (row) => row.reason || "\u2013" },
    { name: "Runs", number: true, cell: (row) => count(row.count) },
    { name: "Tool time", number: true, cell: (row) => seconds(row.wasted_s) },
  ], rows);
}

function latest(rows) {
  if (!rows.length) return empty("None.");
  return table("The latest discarded runs", [
    { name: "When", cell: (row) => moment(row.at) },
    { name: "Tool", cell: (row) => h("a", { href: `/dashboard/run?id=${encodeURIComponent(row.trajectory)}&bar=${encodeURIComponent(row.id)}` }, row.tool) },
    { name: "Outcome", cell: (row) => tag(row.outcome) },
    { name: "Predictor", cell: (row) => row.predictor },
    { name: "Told others", cell: (row) => (row.egress ? h("b", "yes") : "no") },
    { name: "Tool time", number: true, cell: (row) => seconds(row.wasted_s) },
    { name: "Why", wide: true, cell: (row) => row.reason || "\u2013" },
  ], rows);
}
