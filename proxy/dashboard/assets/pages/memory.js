import { get, post } from "../api.js";
import { empty, figures, h, section, table } from "../dom.js";
import { bytes, count, many, moment, percent } from "../format.js";

export const title = "Memory";

export async function render(context) {
  const { parameters, signal, go, session } = context;
  const found = await get("memory", { tenant: parameters.get("tenant") || "" }, signal);
  const top = h("div.head", h("div", h("h1", title), h("p.lead", "What was learnt from past runs, and forgetting it.")), chooser(found, session, go));
  if (!found.on) return [top, empty("Memory is off.", h("p", "Nothing is learnt and nothing predicted from the past. The settings ", h("code", "memory"), " and ", h("code", "speculation"), " switch it on."))];
  const said = h("p.said", { role: "status" });
  if (found.tenant === null) return [top, said, empty("Memory has kept nothing yet.", "A run is learnt when it has been quiet for a while (setting memory_idle_s, 30 s) and its agent offered tools.")];
  const { stats, learnt } = found;
  const parts = [top, said];
  if (stats) {
    parts.push(figures(
      { name: "Runs kept", value: count(stats.trajectories), note: stats.newest_at ? `the latest ${moment(stats.newest_at)}` : "", kind: "first" },
      { name: "End users", value: count(found.scopes.length), note: "with values of their own" },
      { name: "Size", value: bytes(stats.size_bytes) },
      { name: "Learnt from", value: learnt ? count(learnt.trajectories) : "\u2013", note: "runs, also those trimmed since" },
    ));
  } else {
    parts.push(h("p.quiet", "Memory lasts as long as this process: the setting memory_database is empty."));
  }
  if (learnt) parts.push(...inWords(learnt));
  if (stats) parts.push(...kept(found, context, said));
  return parts;
}

function chooser(found, session, go) {
  if (session.tenant || found.tenants.length < 2) return null;
  return h("label.pick", h("span", "Tenant"), h("select", { onchange: (event) => go(`/dashboard/memory?tenant=${encodeURIComponent(event.target.value)}`, { replace: true }) }, found.tenants.map((name) => h("option", { value: name, selected: name === found.tenant }, name))));
}

function inWords({ habits, origins, mistakes }) {
  const nothing = empty("Nothing yet.", "It learns from each run when that has been quiet for a while.");
  return [
    section("Habits", habits.length ? h("ul.words", habits.map(habit)) : nothing),
    origins.length ? section("Where arguments come from", h("ul.words", origins.map(origin))) : null,
    mistakes.length ? section("Its usual mistakes", h("ul.words", mistakes.map(mistake))) : null,
  ].filter(Boolean);
}

function habit({ after, weight, next }) {
  const [first, ...others] = next;
  const name = (one) => (one.tool ? ["call ", h("b", one.tool)] : "call nothing more");
  const rest = others.length ? [", else ", others.flatMap((one, place) => [place ? ", " : "", one.tool ? h("b", one.tool) : "nothing", ` ${percent(one.share)}`])] : [];
  return h("li", `After ${after}, agents `, name(first), ` ${percent(first.share)} of the time`, rest, ". ", h("span.quiet", `Seen ${times(weight)}.`));
}

function times(weight) {
  const whole = Math.max(1, Math.round(weight));
  return whole === 1 ? "once" : whole === 2 ? "twice" : `${count(whole)} times`;
}

function origin({ tool, argument, copied_share: share, seen }) {
  const how = share >= 0.995 ? "always comes from what was said or answered before" : share <= 0.005 ? "is a value that the run itself did not tell" : `comes from what was said or answered before ${percent(share)} of the time, else it is a value that the run did not tell`;
  return h("li", h("code", argument), " of ", h("b", tool), ` ${how}. `, h("span.quiet", `Seen ${times(seen)}.`));
}

function mistake({ expected, after, came, share, weight }) {
  const what = (name) => (name ? h("b", name) : "nothing more");
  return h("li", "When it expects ", what(expected), ` after ${after}, `, came ? h("b", came) : "no call", ` comes ${percent(share)} of the time. `, h("span.quiet", `Seen ${times(weight)}; it has learnt to allow for that.`));
}

function kept({ tenant, scopes, trajectories, stats }, { again }, said) {
  const forget = async (what, name) => {
    if (!confirm(`Forget ${name}? What was learnt from it goes as well. This cannot be undone.`)) return;
    said.textContent = "Forgetting\u2026";
    try {
      const { forgotten } = await post("memory/forget", { tenant, ...what });
      await again();
      document.querySelector(".said").textContent = `${many(forgotten, "run")} forgotten, and what was learnt from ${forgotten === 1 ? "it" : "them"}.`;
    } catch (error) {
      said.textContent = `Nothing was forgotten: ${error.message}`;
    }
  };
  const button = (label, what, name) => h("button.danger", { type: "button", "aria-label": label, onclick: () => forget(what, name) }, "Forget");
  const users = scopes.length ? table("End users", [
    { name: "End user (scope)", cell: (row) => h("b", row.scope) },
    { name: "Runs", number: true, cell: (row) => count(row.trajectories) },
    { name: "Size", number: true, cell: (row) => bytes(row.size_bytes) },
    { name: "Latest", cell: (row) => moment(row.newest_at) },
    { name: "Forget", unnamed: true, number: true, cell: (row) => button(`Forget the end user ${row.scope}`, { scope: row.scope }, `everything of the end user \u201c${row.scope}\u201d`) },
  ], scopes) : h("p.quiet", "No run named its end user (header x-agentspec-scope), so no argument value is recalled outside its own run.");
  const runs = trajectories.length ? table("Runs kept", [
    { name: "Run", cell: (row) => h("a", { href: `/dashboard/run?id=${encodeURIComponent(row.trajectory)}` }, row.trajectory.replace(/^[0-9a-f]{8}:/, "")) },
    { name: "End user", cell: (row) => (row.scope === row.trajectory ? "\u2013" : row.scope) },
    { name: "Messages", number: true, cell: (row) => count(row.messages) },
    { name: "Size", number: true, cell: (row) => bytes(row.size_bytes) },
    { name: "Learnt", cell: (row) => moment(row.learnt_at) },
    { name: "Forget", unnamed: true, number: true, cell: (row) => button(`Forget the run ${row.trajectory}`, { trajectory: row.trajectory }, "this run") },
  ], trajectories) : empty("No run is kept.");
  const more = stats.trajectories > trajectories.length ? h("p.quiet", `The newest ${count(trajectories.length)} of ${count(stats.trajectories)}; `, h("code", "agentspec memory export"), " has all.") : null;
  const all = h("p", h("button.danger", { type: "button", onclick: () => forget({ everything: true }, "everything") }, "Forget everything"), h("span.quiet", ` All ${many(stats.trajectories, "run")} and all that was learnt.`));
  return [section("End users", users), section("Runs kept", runs, more), section("Everything", all)];
}
