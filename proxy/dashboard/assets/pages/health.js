import { get } from "../api.js";
import { figures, h, section, table } from "../dom.js";
import { bytes, count, many, seconds } from "../format.js";
import { mark } from "../outcomes.js";

export const title = "Health";

export async function render({ signal, again }) {
  const found = await get("health", {}, signal);
  const { database, memory, runtimes, faults, refused, versions, endpoints } = found;
  const faulty = Object.values(faults).reduce((sum, one) => sum + one, 0);
  const dropped = database.dropped || 0;
  const pairs = (label, first, second, rows) => table(label, [{ name: first, cell: (row) => row[0] }, { name: second, number: true, cell: (row) => count(row[1]) }], rows);
  return [
    h("div.head", h("div", h("h1", title), h("p.lead", found.speculation ? `Up for ${seconds(found.up_s)}.` : `Up for ${seconds(found.up_s)}. Speculation is off: turns are relayed and traced only.`)), h("button", { type: "button", onclick: () => again() }, "Look again")),
    figures(
      { name: "Database", value: state(database.ok, database.ok ? "answers" : "away"), note: database.ok ? `within ${seconds(database.answers_in_s)}` : database.error, kind: database.ok ? "first" : "first bad" },
      { name: "Dropped rows", value: count(dropped), note: dropped ? "the database was away or too slow" : "nothing is missing from the books", kind: dropped ? "bad" : "" },
      { name: "Memory", value: memory.on ? state(!memory.failed && !memory.dropped, "on") : "off", note: memory.on ? `${many(memory.told, "run")} learnt since the start` : "nothing is learnt" },
      { name: "Runtimes", value: count(runtimes.length), note: runtimes.length ? "connected" : "no agent process is connected" },
      { name: "Faults", value: count(faulty), note: faulty ? "each ended in the serial path" : "none since the start", kind: faulty ? "bad" : "" },
    ),
    section("Database", facts([
      ["Kind", database.kind], ["Address", database.url], ["Size", database.size_bytes ? bytes(database.size_bytes) : null],
      ["Rows written since the start", count(database.written)], ["Waiting to be written", count(database.waiting)], ["Dropped", count(database.dropped)],
    ])),
    section("Memory", memory.on ? facts([
      ["Kept in", memory.kept ? memory.url || "a database" : "this process only"], ["Learnt since the start", count(memory.told)],
      ["Not learnt", count(memory.dropped)], ["Learnt, but not kept", count(memory.unkept)], ["Failed", count(memory.failed)], ["Questions left out", count(memory.skipped)],
    ]) : h("p.quiet", "Memory is off.")),
    section("Runtimes", runtimes.length ? table("Runtimes", [
      { name: "Runtime", cell: (one) => h("code", one.name) },
      { name: "Tools", wide: true, cell: (one) => one.tools.join(", ") || "none" },
      { name: "Write going on", cell: (one) => (one.writing ? "yes, reads are held back" : "no") },
    ], runtimes) : h("p.quiet", "No agent process is connected. ", h("code", `agentspec.connect("${location.origin}")`), " connects one; until then turns are relayed, traced and learnt from, and nothing runs ahead.")),
    section("Refused by the brakes", Object.keys(refused).length ? pairs("Refused by brake", "Brake", "Refusals", Object.entries(refused)) : h("p.quiet", "Nothing was refused since the start.")),
    faulty ? section("Faults", pairs("Faults", "Where", "Times", Object.entries(faults))) : null,
    endpoints.length ? section("Endpoints", table("Endpoints", [
      { name: "Address", cell: (one) => h("code", one.url) }, { name: "Kind", cell: (one) => one.kind }, { name: "Models", cell: (one) => one.models },
    ], endpoints)) : null,
    section("Versions", facts(Object.entries(versions).filter(([, version]) => version))),
  ].filter(Boolean);
}

function state(well, word) {
  return h("span", { class: well ? "outcome-hit" : "outcome-failed" }, mark(well ? "hit" : "failed"), ` ${word}`);
}

function facts(rows) {
  return h("dl.facts", rows.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => h("div", h("dt", name), h("dd", value))));
}
