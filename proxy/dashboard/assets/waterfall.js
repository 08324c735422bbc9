// A run on one time axis. Only the rows in sight are in the document, so ten thousand scroll as smoothly as ten.

import { get } from "./api.js";
import { h } from "./dom.js";
import { chance, count, dollars, percent, seconds } from "./format.js";
import { mark, tag } from "./outcomes.js";
import { Overview } from "./overview.js";

const ROW = 26; // px, as in waterfall.css
const SPARE = 8; // rows above and below those in sight
const MOST_ZOOM = 2000;

const KINDS = [
  ["turn", "model turns"], ["reasoning", "reasoning"], ["probe", "probes"],
  ["prediction", "predictions not run"], ["ahead", "pre-executions"], ["tool", "tool calls"],
];

export class Waterfall {
  constructor(run, signal) {
    this.run = run;
    this.signal = signal;
    this.whole = Math.max(run.serial_s, run.took_s, ...[run.bars.reduce((most, bar) => Math.max(most, bar.end_s), 0.001)]);
    this.from = 0;
    this.to = this.whole;
    this.hidden = new Set();
    this.byId = new Map(run.bars.map((bar) => [bar.id, bar]));
    this.pool = [];
    this.active = -1;
    this.queued = false;
    [this.width, this.left, this.height] = [800, 200, 480];
    this.build();
    this.filter();
  }

  build() {
    this.overview = new Overview(this.run, this.whole, (from, to) => this.look(from, to));
    this.axis = h("div.wf-axis", { "aria-hidden": "true" });
    this.head = h("div.wf-head", h("span.wf-name", "what"), this.axis);
    this.curves = h("path");
    this.links = h("svg.wf-links", { "aria-hidden": "true" }, this.curves);
    this.rows = h("div.wf-rows", this.links);
    this.tip = h("div.wf-tip", { hidden: true, "aria-hidden": "true" });
    this.scroller = h("div.wf-scroll", {
      role: "grid", tabindex: "0", "aria-label": "Waterfall: up and down choose a row, plus and minus zoom, left and right move, Enter follows a hit, Escape lets go",
      "aria-colcount": "2", onscroll: () => this.queue(), onkeydown: (event) => this.key(event),
      onpointermove: (event) => this.hover(event), onpointerleave: () => { this.tip.hidden = true; },
      onclick: (event) => this.click(event), onwheel: (event) => this.wheel(event),
    }, this.rows);
    this.detail = h("aside.wf-detail", { "aria-live": "polite", "aria-label": "The chosen row" }, h("p.quiet", "Choose a row to see its arguments, its confidence and what the gate said."));
    const kinds = KINDS.filter(([kind]) => this.run.bars.some((bar) => bar.kind === kind));
    const boxes = kinds.map(([kind, name]) => h("label.check", h("input", { type: "checkbox", checked: true, onchange: (event) => this.toggle(kind, event.target.checked) }), h("span", { class: `sample kind-${kind}`, "aria-hidden": "true" }), h("span", name)));
    const button = (label, name, act) => h("button", { type: "button", "aria-label": label, title: label, onclick: act }, name);
    const zoom = h("div.wf-zoom", { role: "group", "aria-label": "Zoom" }, button("Zoom in", "+", () => this.zoom(0.5)), button("Zoom out", "−", () => this.zoom(2)), button("The whole run", "fit", () => this.look(0, this.whole)));
    this.element = h("section.wf", { "aria-label": "Waterfall" }, [
      this.overview.element,
      h("div.wf-bar", h("fieldset.wf-kinds", h("legend.quiet", "Show"), boxes), zoom),
      h("div.wf-main", h("div.wf-frame", this.head, this.scroller, this.tip), this.detail),
    ]);
    const watch = new ResizeObserver(() => { this.measure(); this.drawAxis(); this.draw(); this.overview.draw(); });
    watch.observe(this.scroller);
    const recolour = () => this.overview.draw();
    window.addEventListener("themechange", recolour, { signal: this.signal });
    this.signal.addEventListener("abort", () => watch.disconnect());
  }

  // Which rows there are

  filter() {
    this.bars = this.run.bars.filter((bar) => !this.hidden.has(bar.kind));
    this.place = new Map(this.bars.map((bar, place) => [bar.id, place]));
    this.pairs = this.bars.filter((bar) => bar.kind === "ahead" && bar.serves && this.place.has(bar.serves))
      .map((bar) => [this.place.get(bar.id), this.place.get(bar.serves)]);
    this.rows.style.height = `${this.bars.length * ROW}px`;
    this.scroller.setAttribute("aria-rowcount", String(this.bars.length));
    for (const row of this.pool) row.shown = -1;
    this.draw();
  }

  toggle(kind, shown) {
    const chosen = this.bars[this.active]?.id;
    if (shown) this.hidden.delete(kind);
    else this.hidden.add(kind);
    this.active = -1;
    this.filter();
    if (this.place.has(chosen)) this.activate(this.place.get(chosen), {});
  }

  // Drawing

  queue() {
    this.tip.hidden = true;
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => { this.queued = false; this.draw(); });
  }

  draw() {
    const { height } = this;
    const top = this.scroller.scrollTop;
    const first = Math.max(0, Math.floor(top / ROW) - SPARE);
    const last = Math.min(this.bars.length, Math.ceil((top + height) / ROW) + SPARE);
    const needed = Math.ceil(height / ROW) + 2 * SPARE + 2;
    while (this.pool.length < needed) this.pool.push(this.makeRow());
    this.pool.forEach((row, place) => {
      const size = this.pool.length;
      const wanted = first + ((place - (first % size) + size) % size);
      if (wanted >= last) this.hide(row);
      else if (row.shown !== wanted) this.fill(row, wanted);
    });
    this.drawLinks(first, last);
  }

  makeRow() {
    const parts = { icon: h("span.wf-icon"), text: h("span.wf-text"), ghost: h("div.wf-ghost"), bar: h("div.wf-bar-own"), point: h("div.wf-point"), marks: h("div.wf-marks"), note: h("span.wf-note") };
    const name = h("div.wf-name", { role: "rowheader", "aria-colindex": "1" }, parts.icon, parts.text);
    const track = h("div.wf-track", { role: "gridcell", "aria-colindex": "2" }, parts.ghost, parts.bar, parts.marks, parts.point, parts.note);
    const element = h("div.wf-row", { role: "row", hidden: true }, name, track);
    this.rows.append(element);
    return { ...parts, track, element, shown: -1 };
  }

  hide(row) {
    row.element.hidden = true;
    row.shown = -1;
  }

  fill(row, place) {
    const bar = this.bars[place];
    row.shown = place;
    row.element.hidden = false;
    row.element.style.transform = `translateY(${place * ROW}px)`;
    row.element.className = `wf-row kind-${bar.kind} ${bar.outcome ? `outcome-${bar.outcome}` : ""}`;
    row.element.id = `wf-${place}`;
    row.element.setAttribute("aria-rowindex", String(place + 1));
    row.element.setAttribute("aria-selected", String(place === this.active));
    row.icon.replaceChildren(...(bar.outcome ? [mark(bar.outcome)] : []));
    row.text.textContent = label(bar);
    row.track.setAttribute("aria-label", spoken(bar));
    this.lay(row, bar);
  }

  lay(row, bar) {
    stretch(row.bar, this.share(bar.start_s), this.share(bar.end_s), bar.kind !== "prediction");
    const longer = bar.longer_to_s !== undefined && bar.longer_to_s - bar.end_s > 0.0005;
    stretch(row.ghost, this.share(bar.end_s), this.share(bar.longer_to_s ?? bar.end_s), longer);
    row.point.hidden = bar.kind !== "prediction" || bar.start_s < this.from || bar.start_s > this.to;
    row.point.style.left = `${this.share(bar.start_s)}%`;
    const marks = bar.marks ? Object.entries(bar.marks).filter(([, at]) => at >= this.from && at <= this.to) : [];
    row.marks.replaceChildren(...marks.map(([name, at]) => { const one = h("i", { class: name, title: MARKS[name] }); one.style.left = `${this.share(at)}%`; return one; }));
    const end = this.share(longer ? bar.longer_to_s : bar.end_s);
    const room = end < 78;
    row.note.textContent = bar.kind === "prediction" ? "" : seconds(bar.end_s - bar.start_s);
    row.note.classList.toggle("before", !room);
    row.note.hidden = this.share(bar.start_s) > 100 || end < 0;
    row.note.style.left = room ? `${Math.max(0, end)}%` : "";
    row.note.style.right = room ? "" : `${Math.max(0, 100 - Math.max(0, this.share(bar.start_s)))}%`;
  }

  share(at) {
    return ((at - this.from) / (this.to - this.from)) * 100;
  }

  /** Curves from the end of what ran ahead to the call that got its result. */
  drawLinks(first, last) {
    const { width, left } = this;
    const paths = this.pairs.filter(([a, b]) => Math.max(a, b) >= first && Math.min(a, b) < last && this.meets(this.bars[a].end_s, this.bars[b].start_s)).slice(0, 200).map(([a, b]) => {
      const x = (at) => left + Math.min(1, Math.max(0, this.share(at) / 100)) * width;
      const run = this.bars[a], claim = this.bars[b];
      const [x1, y1, y2] = [x(run.end_s), (a - first + 0.5) * ROW, (b - first + 0.5) * ROW];
      const x2 = x(Math.max(claim.start_s, Math.min(run.end_s, claim.end_s)));
      const bend = Math.max(8, Math.min(40, Math.abs(x2 - x1) / 2));
      return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
    });
    this.links.style.transform = `translateY(${first * ROW}px)`;
    this.links.style.height = `${(last - first) * ROW}px`;
    this.curves.setAttribute("d", paths.join("") || "M0 0");
  }

  meets(one, other) {
    return Math.max(one, other) >= this.from && Math.min(one, other) <= this.to;
  }

  /** Measured when the size changes, not in each frame: to ask means to lay out. */
  measure() {
    this.height = this.scroller.clientHeight || 480;
    this.head.style.paddingRight = `${this.scroller.offsetWidth - this.scroller.clientWidth}px`; // a scroll bar's width
    this.width = this.axis.clientWidth;
    this.left = this.rows.clientWidth - this.width;
  }

  drawAxis() {
    const span = this.to - this.from;
    const { width } = this;
    const step = nice(span / Math.max(2, Math.floor(width / 90)));
    const ticks = [];
    for (let at = Math.ceil(this.from / step) * step; at <= this.to + 1e-9; at += step) {
      const tick = h("span", at === 0 ? "0" : seconds(at, step < 0.1 ? 3 : 2));
      tick.style.left = `${this.share(at)}%`;
      if (this.share(at) > 94) tick.className = "last";
      ticks.push(tick);
    }
    this.axis.replaceChildren(...ticks);
    this.scroller.style.setProperty("--shift", `${(((Math.ceil(this.from / step) * step - this.from) % step) / span) * width}px`);
    this.scroller.style.setProperty("--step", `${(step / span) * width}px`);
  }

  // Zoom

  look(from, to) {
    const span = Math.max(this.whole / MOST_ZOOM, Math.min(this.whole, to - from));
    this.from = Math.max(0, Math.min(from, this.whole - span));
    this.to = this.from + span;
    for (const row of this.pool) if (row.shown >= 0) this.lay(row, this.bars[row.shown]);
    this.drawAxis();
    this.draw();
    this.overview.show(this.from, this.to);
  }

  zoom(factor, at = (this.from + this.to) / 2) {
    const chosen = this.bars[this.active];
    const middle = chosen && at === (this.from + this.to) / 2 ? (chosen.start_s + chosen.end_s) / 2 : at;
    const share = Math.min(1, Math.max(0, (middle - this.from) / (this.to - this.from)));
    const span = (this.to - this.from) * factor;
    this.look(middle - span * share, middle + span * (1 - share));
  }

  wheel(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.timeAt(event.clientX));
  }

  timeAt(x) {
    const box = this.pool[0].track.getBoundingClientRect();
    return this.from + ((x - box.left) / box.width) * (this.to - this.from);
  }

  // Choosing a row

  key(event) {
    const page = Math.max(1, Math.floor(this.height / ROW) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in moves) this.activate(Math.max(0, Math.min(this.bars.length - 1, (this.active < 0 ? -1 : this.active) + moves[event.key])), { scroll: true });
    else if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-") this.zoom(2);
    else if (event.key === "0") this.look(0, this.whole);
    else if (event.key === "ArrowLeft" || event.key === "ArrowRight") this.pan(event.key === "ArrowLeft" ? -0.2 : 0.2);
    else if (event.key === "Escape") this.activate(-1, {});
    else if (event.key === "Enter" && this.bars[this.active]?.serves) this.select(this.bars[this.active].serves, { scroll: true });
    else return;
    event.preventDefault();
  }

  pan(share) {
    const by = (this.to - this.from) * share;
    this.look(this.from + by, this.to + by);
  }

  click(event) {
    const place = this.at(event);
    if (place >= 0) this.activate(place, {});
  }

  at(event) {
    const box = this.rows.getBoundingClientRect();
    const place = Math.floor((event.clientY - box.top) / ROW);
    return place >= 0 && place < this.bars.length ? place : -1;
  }

  select(id, { scroll = false } = {}) {
    const bar = this.byId.get(id);
    if (!bar) return;
    if (this.hidden.has(bar.kind)) {
      this.hidden.clear();
      for (const box of this.element.querySelectorAll(".wf-kinds input")) box.checked = true;
      this.filter();
    }
    this.activate(this.place.get(id), { scroll });
    this.scroller.focus({ preventScroll: true });
    if (scroll) this.element.scrollIntoView({ block: "nearest" });
  }

  activate(place, { scroll = false }) {
    const before = this.active;
    this.active = place;
    if (scroll && place >= 0) {
      const top = place * ROW, { height } = this;
      if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
      else if (top + ROW > this.scroller.scrollTop + height) this.scroller.scrollTop = top + ROW - height;
      this.draw();
    }
    for (const row of this.pool) if (row.shown >= 0 && (row.shown === before || row.shown === place)) row.element.setAttribute("aria-selected", String(row.shown === place));
    if (place >= 0) this.scroller.setAttribute("aria-activedescendant", `wf-${place}`);
    else this.scroller.removeAttribute("aria-activedescendant");
    this.drawDetail(this.bars[place]);
  }

  hover(event) {
    if (event.pointerType === "touch") return;
    const place = this.at(event);
    const bar = this.bars[place];
    if (!bar || place === this.active) { this.tip.hidden = true; return; }
    const said = [h("b", label(bar)), bar.outcome ? tag(bar.outcome) : null, h("div", times(bar)), arguments_(bar, 120), confidence(bar), bar.gate ? h("div.quiet", bar.gate) : null, bar.why && bar.why !== bar.gate ? h("div", bar.why) : null];
    this.tip.replaceChildren(...said.filter(Boolean));
    this.tip.hidden = false;
    const frame = this.tip.parentElement.getBoundingClientRect();
    const left = Math.min(event.clientX - frame.left + 14, frame.width - this.tip.offsetWidth - 8);
    const below = event.clientY - frame.top + 18;
    const top = below + this.tip.offsetHeight > frame.height ? event.clientY - frame.top - this.tip.offsetHeight - 10 : below;
    this.tip.style.transform = `translate(${Math.max(4, left)}px, ${top}px)`;
  }

  drawDetail(bar) {
    if (!bar) {
      this.detail.replaceChildren(h("p.quiet", "Choose a row to see its arguments, its confidence and what the gate said."));
      return;
    }
    const { details = {} } = bar;
    const facts = [["When", `${seconds(bar.start_s)} after the run began, in turn ${bar.turn}`], ["Took", bar.kind === "prediction" ? null : seconds(bar.end_s - bar.start_s)], ...FACTS[bar.kind](bar, details)].filter(([, value]) => value !== null && value !== undefined && value !== "");
    const follow = bar.serves && this.byId.has(bar.serves) ? h("button", { type: "button", onclick: () => this.select(bar.serves, { scroll: true }) }, bar.kind === "ahead" ? "Show the call that got it" : "Show the run it got") : null;
    const close = h("button.plain.close", { type: "button", "aria-label": "Close", onclick: () => this.activate(-1, {}) }, "×");
    this.detail.replaceChildren(...[
      close,
      h("h2", label(bar)), h("p.kind", KIND_WORDS[bar.kind], bar.outcome ? [" ", tag(bar.outcome)] : null),
      bar.why ? [h("h3", WHY[bar.kind] || "Note"), h("p.why", bar.why)] : null,
      bar.gate ? [h("h3", bar.kind === "turn" ? "The gate on probing" : "What the gate said"), h("p", bar.gate), details.verdict && details.verdict !== bar.gate ? h("p.quiet", details.verdict) : null] : null,
      this.argumentsOf(bar, details),
      h("dl.facts", facts.map(([name, value]) => h("div", h("dt", name), h("dd", value)))),
      follow, bar.kind === "turn" ? this.contentButton(bar) : null,
    ].flat(3).filter(Boolean));
  }

  argumentsOf(bar, details) {
    if (!["ahead", "prediction", "tool"].includes(bar.kind) || bar.label === "no call") return null;
    if (details.arguments) return [h("h3", "Arguments"), h("pre", { tabindex: "0", "aria-label": "Arguments" }, h("code", pretty(details.arguments)))];
    const why = this.run.keeps_arguments ? "None were written down." : ["Not kept: the setting ", h("code", "keep_arguments"), " keeps them."];
    return [h("h3", "Arguments"), h("p.quiet", why)];
  }

  contentButton(bar) {
    const place = h("div");
    const open = h("button", { type: "button", onclick: async () => {
      try {
        const { content } = await get("content", { turn: bar.id }, this.signal);
        place.replaceChildren(...(content ? said(content) : [h("p.quiet", "What was said is not kept: the setting ", h("code", "keep_content"), " keeps it.")]));
      } catch (error) {
        place.replaceChildren(h("p", { role: "alert" }, error.message));
      }
    } }, "What was said");
    place.append(open);
    return place;
  }
}

const MARKS = { first_byte: "first byte", first_token: "first token", call: "the last call was complete" };
const KIND_WORDS = { turn: "Model turn", reasoning: "Reasoning of the model", probe: "Probe", prediction: "Prediction that did not run", ahead: "Pre-execution", tool: "Tool call" };
const WHY = { ahead: "Why it was not used", prediction: "Why it did not run" };

const FACTS = {
  turn: (bar, one) => [["Model", one.model], ["Endpoint", one.endpoint], ["Status", one.status], ["Ended", one.finish], ["First byte after", since(bar, "first_byte")], ["First token after", since(bar, "first_token")], ["Call complete after", since(bar, "call")], ["Calls", one.calls === undefined ? null : count(one.calls)], ["Prompt", one.prompt_tokens === undefined ? null : `${count(one.prompt_tokens)} tokens`], ["Answer", one.completion_tokens === undefined ? null : `${count(one.completion_tokens)} tokens`], ["Cost", one.cost_usd === undefined ? null : dollars(one.cost_usd)], ["Control group", one.held_out ? "yes: nothing ran ahead" : null]],
  reasoning: () => [],
  probe: (bar, one) => [["Result", one.outcome], ["Prompt", one.prompt_tokens === undefined ? null : `${count(one.prompt_tokens)} tokens`], ["Answer", one.completion_tokens === undefined ? null : `${count(one.completion_tokens)} tokens`], ["Cost", one.cost_usd === undefined ? null : dollars(one.cost_usd)]],
  prediction: (bar, one) => predicted(one),
  ahead: (bar, one) => [...predicted(one), ["Saved", one.saved_s ? seconds(one.saved_s) : null], ["Tool time for nothing", one.wasted_s ? seconds(one.wasted_s) : null], ["Ran in", one.tier], ["Effect", one.effect], ["Told a third party", one.egress ? "yes" : null]],
  tool: (bar, one) => [["Effect", one.effect], ["The agent waited", one.waited_s === undefined ? null : seconds(one.waited_s)], ["The tool took", one.latency_s === undefined ? null : seconds(one.latency_s)], ["Saved", bar.longer_to_s - bar.end_s > 0.0005 ? seconds(bar.longer_to_s - bar.end_s) : null], ["Why it ran plainly", bar.outcome === "miss" ? one.reason : null]],
};

function predicted(one) {
  const factors = one.name_confidence === undefined ? null : `${chance(one.name_confidence)} for the tool × ${chance(one.argument_confidence)} for the arguments`;
  const worth = one.probability === undefined ? null : `${chance(one.probability)}${one.threshold === undefined ? "" : `, ${chance(one.threshold)} was asked`}`;
  return [["Predicted by", one.predictor], ["Its confidence", factors || (one.confidence === undefined ? null : chance(one.confidence))], ["Worth (calibrated)", worth], ["It would save", one.expected_s === undefined ? null : seconds(one.expected_s)], ["Came true", one.came_true === undefined ? null : one.came_true ? "yes" : "no"]];
}

function since(bar, name) {
  return bar.marks?.[name] === undefined ? null : seconds(bar.marks[name] - bar.start_s);
}

function label(bar) {
  if (bar.kind === "turn") return `turn ${bar.turn}`;
  if (bar.kind === "tool") return `${bar.label}()`;
  if (bar.kind === "ahead") return `ahead ${bar.label}`;
  if (bar.kind === "prediction") return `guess ${bar.label}`;
  return bar.label;
}

function spoken(bar) {
  const saves = bar.longer_to_s - bar.end_s > 0.0005 ? `, ${seconds(bar.longer_to_s - bar.end_s)} saved` : "";
  return `${KIND_WORDS[bar.kind]}${bar.outcome ? `, ${bar.outcome}` : ""}, ${times(bar)}${saves}`;
}

function times(bar) {
  return bar.kind === "prediction" ? `at ${seconds(bar.start_s)}` : `${seconds(bar.start_s)} to ${seconds(bar.end_s)}, ${seconds(bar.end_s - bar.start_s)}`;
}

function arguments_(bar, most) {
  const text = bar.details?.arguments;
  return text ? h("code", text.length > most ? `${text.slice(0, most)}…` : text) : null;
}

function confidence(bar) {
  const worth = bar.details?.probability;
  return worth === undefined || bar.kind === "tool" ? null : h("div", `${bar.details.predictor}: ${percent(worth)} likely`);
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function said(content) {
  const parts = [["New messages", content.said], ["Reasoning", content.reasoning], ["Answer", content.answer], ["Calls", content.calls]];
  return parts.filter(([, text]) => text).flatMap(([name, text]) => [h("h3", name), h("pre", { tabindex: "0", "aria-label": name }, h("code", pretty(text)))]);
}

function stretch(element, from, to, shown) {
  const left = Math.max(-1, from), right = Math.min(101, to);
  element.hidden = !shown || right < 0 || left > 100;
  if (element.hidden) return;
  element.style.left = `${left}%`;
  element.style.width = `${Math.max(0, right - left)}%`;
}

/** 1, 2 or 5 times a power of ten, at least so much. */
export function nice(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1e-6)));
  return [1, 2, 5, 10].map((one) => one * power).find((one) => one >= least * 0.999);
}
