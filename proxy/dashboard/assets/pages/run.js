import { get } from "../api.js";
import { empty, figures, h, section, table } from "../dom.js";
import { count, dollars, many, moment, seconds } from "../format.js";
import { DISCARDED, legend, tag, tally } from "../outcomes.js";
import { Waterfall } from "../waterfall.js";

export const title = "Run";

export async function render({ parameters, signal }) {
  const found = await get("run", { id: parameters.get("id") }, signal);
  const { run, bars } = found;
  const crumbs = h("nav.crumbs", { "aria-label": "Where you are" }, h("a", { href: "/dashboard" }, "Runs"), " / ", h("span", run.session || run.trajectory));
  const top = h("div.head", h("div", crumbs, h("h1", run.session || run.trajectory), about(run)));
  if (!bars.length) return [top, empty("Nothing is written down of this run any more.", "Its summary outlives its rows: see the settings of the ledger’s retention.")];
  const shape = new Waterfall(found, signal);
  const discarded = bars.filter((bar) => bar.kind === "ahead" && DISCARDED.includes(bar.outcome));
  const saved = found.serial_s - found.took_s;
  const spent = run.prompt_tokens + run.completion_tokens;
  const parts = [
    top,
    figures(
      { name: "Took", value: seconds(found.took_s), note: `${many(run.turns, "turn")}, ${many(run.calls, "call")}`, kind: "first" },
      { name: "One after the other", value: seconds(found.serial_s), note: saved > 0.0005 ? `${seconds(saved)} longer` : "the same: no hit saved time" },
      { name: "Summed over hits", value: seconds(run.saved_s), note: `${count(run.served)} of ${many(run.claims, "declared call")} served ahead` },
      { name: "Discarded", value: count(discarded.length), note: `${seconds(run.wasted_s)} of tool time` },
      { name: "Tokens", value: spent ? count(spent) : "–", note: tokens(run, spent) },
    ),
    shape.element,
  ];
  parts.push(section("Discarded runs, and why", discarded.length ? reasons(discarded, shape) : h("p.quiet", "None: all that ran ahead was used.")));
  parts.push(h("details.legend-frame", h("summary", "What the shapes mean"), legend()));
  const wanted = parameters.get("bar");
  if (wanted) requestAnimationFrame(() => shape.select(wanted, { scroll: true }));
  return parts;
}

function tokens(run, spent) {
  const paid = run.cost_usd + run.probe_cost_usd;
  const probes = run.probe_tokens ? `, ${count(run.probe_tokens)} in probes` : "";
  const told = spent ? `${count(run.prompt_tokens)} in, ${count(run.completion_tokens)} out` : "the endpoint did not say";
  return `${told}${probes}${paid ? `, ${dollars(paid)}` : ""}`;
}

function about(run) {
  const words = [run.model, run.endpoint, `began ${moment(run.began_at)}`, run.runtime ? `runtime ${run.runtime}` : "no runtime: nothing could run ahead", run.held_out ? "control group: nothing ran ahead" : null];
  return h("p.lead", words.filter(Boolean).join(" · "), " ", tally(run));
}

function reasons(bars, shape) {
  return table("Discarded runs", [
    { name: "Turn", number: true, cell: (bar) => count(bar.turn) },
    { name: "Tool", cell: (bar) => h("button.link", { type: "button", onclick: () => shape.select(bar.id, { scroll: true }) }, bar.label) },
    { name: "Outcome", cell: (bar) => tag(bar.outcome) },
    { name: "Predictor", cell: (bar) => bar.details?.predictor || "–" },
    { name: "Tool time", number: true, cell: (bar) => seconds(bar.details?.wasted_s || 0) },
    { name: "Why it was not used", wide: true, cell: (bar) => bar.why },
  ], bars);
}
