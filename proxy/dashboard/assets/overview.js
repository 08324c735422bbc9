// The run above its serial ghost, on one axis: what was saved, at a glance; dragging over it zooms.

import { h } from "./dom.js";
import { seconds } from "./format.js";

const LANE = 18, GAP = 8;

export class Overview {
  constructor(run, whole, look) {
    this.run = run;
    this.whole = whole;
    this.look = look;
    this.from = 0;
    this.to = whole;
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.window = h("div.window", { "aria-hidden": "true" });
    this.stage = h("div.stage", { onpointerdown: (event) => this.begin(event), onpointermove: (event) => this.drag(event), onpointerup: (event) => this.end(event), ondblclick: () => look(0, whole) }, this.canvas, this.window);
    const saved = run.serial_s - run.took_s;
    const words = saved > 0.0005 ? `As it ran: ${seconds(run.took_s)}. One after the other it would have taken ${seconds(run.serial_s)}.` : `It took ${seconds(run.took_s)}, as long as one after the other.`;
    this.element = h("figure.overview", { "aria-label": words }, [
      h("div.names", { "aria-hidden": "true" }, h("span", "as it ran"), h("span", "serial ghost")),
      this.stage,
      h("div.lengths", { "aria-hidden": "true" }, h("b", seconds(run.took_s)), h("span", seconds(run.serial_s))),
    ]);
  }

  draw() {
    const width = this.stage.clientWidth, height = 2 * LANE + GAP;
    if (!width) return;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const x = (at) => (at / this.whole) * width;
    const box = (from, to, top, fill) => { pen.fillStyle = fill; pen.fillRect(x(from), top, Math.max(1, x(to) - x(from)), LANE); };
    const second = LANE + GAP;
    for (const bar of this.run.bars) if (bar.kind === "turn") { box(bar.start_s, bar.end_s, 0, colour("turn")); box(bar.ghost_start_s, bar.ghost_end_s, second, colour("ghost-fill")); }
    for (const bar of this.run.bars) if (bar.kind === "tool") {
      const served = bar.serves !== undefined;
      box(bar.start_s, bar.end_s, 0, colour(served ? "hit" : "tool"));
      box(bar.ghost_start_s, bar.ghost_end_s, second, served ? colour("ghost-strong") : colour("ghost-tool"));
    }
    if (this.run.serial_s - this.run.took_s > 0.0005) {
      pen.strokeStyle = colour("hit");
      pen.setLineDash([3, 3]);
      pen.strokeRect(x(this.run.took_s) + 0.5, 0.5, Math.max(0, x(this.run.serial_s) - x(this.run.took_s) - 1), LANE - 1);
      const text = `${seconds(this.run.serial_s - this.run.took_s)} saved`;
      pen.font = "600 11px system-ui, sans-serif";
      const room = x(this.run.serial_s) - x(this.run.took_s);
      if (pen.measureText(text).width + 10 < room) {
        pen.fillStyle = colour("hit");
        pen.textAlign = "center";
        pen.textBaseline = "middle";
        pen.fillText(text, x(this.run.took_s) + room / 2, LANE / 2 + 0.5);
      }
    }
    this.show(this.from, this.to);
  }

  show(from, to) {
    [this.from, this.to] = [from, to];
    const all = to - from > this.whole * 0.9999;
    this.window.hidden = all;
    this.window.style.left = `${(from / this.whole) * 100}%`;
    this.window.style.width = `${((to - from) / this.whole) * 100}%`;
  }

  begin(event) {
    if (event.pointerType === "touch") return;
    this.started = this.at(event);
    this.stage.setPointerCapture(event.pointerId);
  }

  drag(event) {
    if (this.started === undefined) return;
    const now = this.at(event);
    const [from, to] = [Math.min(this.started, now), Math.max(this.started, now)];
    if ((to - from) / this.whole > 0.005) this.look(from, to);
  }

  end() {
    this.started = undefined;
  }

  at(event) {
    const frame = this.stage.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - frame.left) / frame.width)) * this.whole;
  }
}
