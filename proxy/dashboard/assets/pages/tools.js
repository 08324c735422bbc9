import { get } from "../api.js";
import { empty, h, section, table } from "../dom.js";
import { count, percent, seconds } from "../format.js";
import { tally } from "../outcomes.js";
import { head, hours } from "../windows.js";

export const title = "Tools";

const EFFECTS = { pure: "depends on its arguments alone", read: "reads, changes nothing", write: "changes something", irreversible: "cannot be undone" };
const TIERS = { T0: "a thread of the agent\u2019s process", T1: "a process that can change nothing", T2: "a copy-on-write workspace", T3: "another machine" };

export async function render(context) {
  const { parameters, signal } = context;
  const found = await get("tools", { hours: hours(parameters) }, signal);
  const top = head(title, context, "How long tools take, what they may do, where they run ahead, and what they may use.");
  if (!found.tools.length) {
    return [top, empty("No tool is known.", "Declare one with @speculate in the agent\u2019s process, and connect it:", h("pre", h("code", `runtime = agentspec.connect("${location.origin}")`)))];
  }
  const longest = Math.max(...found.tools.map((tool) => tool.p90_s || 0), 1e-9);
  return [
    top,
    table("Tools", [
      { name: "Tool", cell: (tool) => [h("b", tool.name), tool.declared ? null : h("span.badge", { title: "No connected runtime holds it now" }, "away")] },
      { name: "Effect", cell: (tool) => h("span", { title: EFFECTS[tool.effect] || "" }, tool.effect || "undeclared", tool.declared?.egress ? h("span.badge", { title: "Its arguments reach a third party" }, "egress") : null) },
      { name: "Runs ahead", wide: true, cell: where },
      { name: "Calls", number: true, cell: (tool) => count(tool.calls) },
      { name: "Served", number: true, cell: (tool) => (tool.calls ? percent(tool.served / tool.calls) : "\u2013") },
      { name: "Latency, half and nine in ten within", wide: true, cell: (tool) => latency(tool, longest) },
      { name: "Predictions by outcome", cell: (tool) => tally(tool.bets) },
      { name: "Fidelity", wide: true, cell: fidelity },
    ], found.tools),
    section("Budgets", ...budgets(found)),
  ];
}

function where(tool) {
  const { declared } = tool;
  if (!declared) return "\u2013";
  if (declared.needs_approval) return "never: a human has a say in every call";
  if (!declared.ahead) return tool.effect === "write" ? "never: it writes, outside a sandbox" : tool.effect === "irreversible" ? "never: it cannot be undone" : "never: its owner says so";
  const fresh = declared.stable_for_s ? `; good for ${seconds(declared.stable_for_s)}` : "";
  return h("span", h("b", declared.tier), ` ${TIERS[declared.tier] || ""}${fresh}`);
}

function latency(tool, longest) {
  if (tool.p50_s === null) return "\u2013";
  const share = (value) => `${Math.min(1, value / longest) * 100}%`;
  return h("span.latency", [
    h("span.track", { "aria-hidden": "true" }, h("span.p90", { vars: { share: share(tool.p90_s) } }), h("span.p50", { vars: { share: share(tool.p50_s) } })),
    h("span.numbers", `${seconds(tool.p50_s)}, ${seconds(tool.p90_s)}`),
  ]);
}

function fidelity(tool) {
  if (tool.barred) return h("span.outcome-failed", tool.barred);
  if (!tool.declared?.ahead) return "\u2013";
  if (!tool.declared.isolated) return "same process as the real call";
  return tool.bets.hit + tool.bets.joined ? "compared, and equal" : "being compared";
}

function budgets({ limits, used, paused, tools_off: off, tools }) {
  const lines = [
    ["Runs ahead at once", count(limits.runs_at_once), "runs_at_once"],
    ["Of one tool at once", count(limits.tool_runs_at_once), "tool_runs_at_once"],
    ["Of one tool in a minute", count(limits.tool_runs_per_minute), "tool_runs_per_minute"],
    ["Discarded calls that told third parties, in an hour", count(limits.egress_discards_per_hour), "egress_discards_per_hour"],
  ];
  const notes = [];
  if (off.length) notes.push(h("p", "Switched off by the operator (tools_off): ", h("b", off.join(", ")), "."));
  if (paused.length) notes.push(h("p", "Paused, because they cost more than they saved (predictor/tool): ", h("b", paused.join(", ")), ". They are tried again by themselves."));
  if (!off.length && !paused.length) notes.push(h("p.quiet", "Nothing is switched off or paused."));
  const busy = tools.filter((tool) => used[tool.name] && (used[tool.name][0] || used[tool.name][1]));
  return [
    ...notes,
    table("Budgets", [
      { name: "Budget", cell: ([name]) => name },
      { name: "Most", number: true, cell: ([, value]) => value },
      { name: "Setting", cell: ([, , setting]) => h("code", setting) },
    ], lines),
    busy.length ? table("Used now", [
      { name: "Tool", cell: (tool) => tool.name },
      { name: "Under way", number: true, cell: (tool) => count(used[tool.name][0]) },
      { name: "In the last minute", number: true, cell: (tool) => count(used[tool.name][1]) },
    ], busy) : null,
  ].filter(Boolean);
}
