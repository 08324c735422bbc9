import { events, get } from "../api.js";
import { empty, h } from "../dom.js";
import { ago, count, many, moment, seconds } from "../format.js";
import { DISCARDED, OUTCOMES, mark, tally } from "../outcomes.js";

export const title = "Runs";

const FILTERS = ["text", "model", "outcome", "hours", "discarded"];
const TIMES = [["", "any time"], ["0.25", "last 15 minutes"], ["1", "last hour"], ["24", "last 24 hours"], ["168", "last 7 days"]];
const COLUMNS = [["Run"], ["Model"], ["Went on", "number"], ["Took", "number"], ["Turns", "number"], ["Calls", "number"], ["Predictions by outcome"], ["Discarded", "number"], ["Saved", "number"]];

export async function render({ parameters, signal, session }) {
  const view = new List(parameters, signal, session);
  await view.load();
  return view.elements;
}

class List {
  constructor(parameters, signal, session) {
    this.signal = signal;
    this.session = session;
    this.wanted = Object.fromEntries(FILTERS.map((name) => [name, parameters.get(name) || ""]));
    this.rows = new Map();
    this.order = [];
    this.older = [];
    this.drawn = new Map();
    this.asking = null;
    this.status = h("p.live", { role: "status" });
    this.place = h("div");
    this.more = h("button", { type: "button", hidden: true, onclick: () => this.loadOlder() }, "Show older runs");
    this.body = h("tbody", { role: "rowgroup" });
    const head = COLUMNS.map(([name, kind]) => h("th", { role: "columnheader", scope: "col", class: kind || null }, name));
    this.table = h("div.table-frame", { role: "region", "aria-label": "Runs, the latest first", tabindex: "0" }, h("table.cards.runs", { role: "table", "aria-label": "Runs" }, h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)), this.body));
  }

  get elements() {
    return [h("div.head", h("div", h("h1", title), h("p.lead", "Each conversation of an agent, the one that went on last first.")), this.status), this.form, this.place, this.more];
  }

  async load() {
    const answer = await get("runs", this.wanted, this.signal);
    this.models = answer.models;
    this.form = this.makeForm();
    this.take(answer.runs, answer.runs.map((run) => run.trajectory));
    this.follow();
  }

  makeForm() {
    const { wanted } = this;
    const field = (label, control) => h("label", h("span", label), control);
    const select = (name, choices) => h("select", { name, onchange: () => this.changed() }, choices.map(([value, text]) => h("option", { value, selected: value === wanted[name] }, text)));
    const models = [...new Set([...this.models, ...(wanted.model ? [wanted.model] : [])])];
    let timer;
    return h("form.filters", { role: "search", "aria-label": "Filter the runs", onsubmit: (event) => { event.preventDefault(); this.changed(); } }, [
      field("Session or id", h("input", { type: "search", name: "text", value: wanted.text, placeholder: "any", oninput: () => { clearTimeout(timer); timer = setTimeout(() => this.changed(), 250); } })),
      field("Model", select("model", [["", "any"], ...models.map((name) => [name, name])])),
      field("Outcome", select("outcome", [["", "any"], ...Object.keys(OUTCOMES).map((name) => [name, name])])),
      field("Time", select("hours", TIMES)),
      h("label.check", h("input", { type: "checkbox", name: "discarded", value: "1", checked: wanted.discarded === "1", onchange: () => this.changed() }), h("span", "only with discarded runs")),
    ]);
  }

  async changed() {
    const data = new FormData(this.form);
    this.wanted = Object.fromEntries(FILTERS.map((name) => [name, (data.get(name) || "").trim()]));
    const query = new URLSearchParams(Object.entries(this.wanted).filter(([, value]) => value)).toString();
    history.replaceState(null, "", query ? `?${query}` : location.pathname);
    this.older = [];
    this.follow();
  }

  /** The stream begins with all runs that fit, so it is also what a new filter asks. */
  async follow() {
    if (this.asking) this.asking.abort();
    const asking = (this.asking = new AbortController());
    this.signal.addEventListener("abort", () => asking.abort(), { once: true });
    try {
      let first = true;
      for await (const { data } of events("live", this.wanted, asking.signal, (on) => { this.say(on); first = true; })) {
        if (asking.signal.aborted) return;
        if (first) this.rows = new Map(this.older.map((run) => [run.trajectory, run]));
        first = false;
        this.take(data.changed, data.order);
      }
    } catch (error) {
      if (!asking.signal.aborted) this.status.replaceChildren(h("span.dot.off", { "aria-hidden": "true" }), error.message);
    }
  }

  say(on) {
    const known = this.status.dataset.on;
    if (known === String(on)) return;
    this.status.dataset.on = String(on);
    this.status.replaceChildren(h("span", { class: on ? "dot" : "dot off", "aria-hidden": "true" }), on ? "live" : "not live: the proxy does not answer, trying again");
  }

  take(changed, order) {
    const fresh = new Set();
    for (const run of changed) {
      if (this.drawn.size && !this.drawn.has(run.trajectory)) fresh.add(run.trajectory);
      this.rows.set(run.trajectory, run);
      this.drawn.delete(run.trajectory);
    }
    this.order = order;
    this.draw(fresh);
  }

  draw(fresh = new Set()) {
    const shown = [...this.order, ...this.older.map((run) => run.trajectory).filter((name) => !this.order.includes(name))];
    if (!shown.length) {
      this.place.replaceChildren(this.nothing());
      this.more.hidden = true;
      return;
    }
    const focused = document.activeElement?.closest?.("tr")?.dataset.run;
    const rows = shown.map((name) => {
      if (!this.drawn.has(name)) this.drawn.set(name, line(this.rows.get(name)));
      const row = this.drawn.get(name);
      row.classList.toggle("fresh", fresh.has(name));
      return row;
    });
    this.body.replaceChildren(...rows);
    if (!this.table.isConnected || this.table.parentNode !== this.place) this.place.replaceChildren(this.table);
    if (focused) this.drawn.get(focused)?.querySelector("a")?.focus({ preventScroll: true });
    this.more.hidden = shown.length < 50;
  }

  nothing() {
    if (Object.values(this.wanted).some(Boolean)) {
      const clear = h("button", { type: "button", onclick: () => { this.form.querySelectorAll("input, select").forEach((one) => { if (one.type === "checkbox") one.checked = false; else one.value = ""; }); this.changed(); } }, "Clear the filters");
      return empty("No run fits these filters.", "New ones appear here by themselves.", clear);
    }
    if (!this.session.tracing) return empty("Nothing is written down.", h("p", "The setting ", h("code", "tracing"), " is off. Turns are relayed and sped up all the same."));
    return empty(
      "No runs yet.",
      h("p", "Point an agent at this proxy, and its conversations appear here by themselves:"),
      h("pre", h("code", `client = OpenAI(base_url="${location.origin}/v1")`)),
      h("p", "For tools to run ahead, let ", h("code", `agentspec.connect("${location.origin}")`), " give you the address, and declare them with ", h("code", "@speculate"), "."),
    );
  }

  async loadOlder() {
    const last = this.rows.get((this.older.at(-1) || {}).trajectory || this.order.at(-1));
    const answer = await get("runs", { ...this.wanted, before: last.ended_at, before_id: last.trajectory }, this.signal);
    for (const run of answer.runs) this.rows.set(run.trajectory, run);
    this.older.push(...answer.runs);
    this.draw();
    this.more.hidden = answer.runs.length < 50;
  }
}

function line(run) {
  const discarded = DISCARDED.reduce((sum, name) => sum + run[name], 0);
  const name = run.session || run.trajectory;
  const cells = [
    h("a", { href: `/dashboard/run?id=${encodeURIComponent(run.trajectory)}` }, name),
    run.model || "",
    h("time", { datetime: new Date(run.ended_at * 1000).toISOString(), title: moment(run.ended_at) }, ago(run.ended_at)),
    seconds(run.ended_at - run.began_at),
    count(run.turns), count(run.calls),
    tally(run),
    discarded ? count(discarded) : "0",
    run.saved_s ? seconds(run.saved_s) : "\u2013",
  ];
  const badges = [
    run.held_out ? h("span.badge", { title: "This run belongs to the control group: nothing ran ahead" }, "control") : null,
    run.errors ? h("span.badge.bad", { title: "Turns that did not end in a whole answer" }, mark("failed"), many(run.errors, "error")) : null,
  ];
  return h("tr", { role: "row", "data-run": run.trajectory }, cells.map((cell, place) => {
    const [column, kind] = COLUMNS[place];
    const head = place === 0;
    return h(head ? "th" : "td", { role: head ? "rowheader" : "cell", scope: head ? "row" : null, class: kind || null, "data-name": column }, cell, head ? badges : null);
  }));
}
