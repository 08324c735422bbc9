// Charts by uPlot, in the theme's colours, redrawn with it; each has its figures in words or a table beside it.

import { h } from "./dom.js";
import { count, percent, seconds } from "./format.js";

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function axis(more) {
  return { stroke: colour("quiet"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1, size: 5 }, font: "12px system-ui, sans-serif", ...more };
}

/** A figure that draws itself as wide as it is, and again when that or the theme changes. */
function figure(label, height, signal, build, narrow = Infinity) {
  const place = h("div.chart", { role: "img", "aria-label": label });
  let plot = null;
  const draw = () => {
    const width = Math.min(Math.floor(place.clientWidth), narrow);
    if (width < 40) return;
    if (plot) plot.destroy();
    const { options, data } = build();
    plot = new window.uPlot({ width, height, cursor: { show: false }, legend: { show: false }, ...options }, data, place);
  };
  const watch = new ResizeObserver(() => { if (!plot || Math.abs(plot.width - Math.min(place.clientWidth, narrow)) > 1) draw(); });
  watch.observe(place);
  window.addEventListener("themechange", draw, { signal });
  signal.addEventListener("abort", () => { watch.disconnect(); if (plot) plot.destroy(); });
  return place;
}

/** Seconds saved (up) and wasted (down) by steps of time. */
export function savedAndWasted(rows, step, signal) {
  if (!rows.length) return null;
  const filled = fill(rows, step);
  const at = filled.map((row) => row.at + step / 2);
  const most = Math.max(...filled.map((row) => row.saved_s), 0.001);
  const least = Math.min(...filled.map((row) => -row.wasted_s), 0);
  const saved = rows.reduce((sum, row) => sum + row.saved_s, 0);
  const wasted = rows.reduce((sum, row) => sum + row.wasted_s, 0);
  const label = `Tool time by ${stepName(step)}: ${seconds(saved)} saved, ${seconds(wasted)} spent on discarded runs`;
  const bars = window.uPlot.paths.bars({ size: [0.7, 48, 2] });
  const place = figure(label, 220, signal, () => ({
    data: [at, filled.map((row) => row.saved_s || null), filled.map((row) => -row.wasted_s || null)],
    options: {
      padding: [10, 10, 0, 0],
      scales: { x: { time: true, range: [at[0] - step, at[at.length - 1] + step] }, y: { range: [least * 1.1, most * 1.1] } },
      axes: [axis({ size: 30, space: 80, values: (_, values) => values.map((one) => clock(one, step)) }), axis({ size: 62, space: 36, values: (_, values) => values.map((one) => seconds(Math.abs(one), 2)) })],
      series: [
        {},
        { fill: colour("hit-fill"), stroke: colour("hit"), width: 1, paths: bars, points: { show: false } },
        { fill: colour("miss-fill"), stroke: colour("miss"), width: 1, paths: bars, points: { show: false } },
      ],
    },
  }));
  const legend = h("p.key-line", [
    h("span.swatch.hit", { "aria-hidden": "true" }), `saved by hits, up; `,
    h("span.swatch.miss", { "aria-hidden": "true" }), `spent on discarded runs, down. One bar: ${stepName(step)}.`,
  ]);
  return h("figure", place, h("figcaption", legend));
}

function clock(at, step) {
  const when = new Date(at * 1000);
  const midnight = when.getHours() === 0 && when.getMinutes() === 0;
  if (step >= 86400 || (step >= 3600 && midnight)) return when.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return when.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}

function stepName(step) {
  if (step < 3600) return `${step / 60} minutes`;
  if (step < 86400) return step === 3600 ? "an hour" : `${step / 3600} hours`;
  return "a day";
}

function fill(rows, step) {
  const found = new Map(rows.map((row) => [row.at, row]));
  const all = [];
  const last = rows[rows.length - 1].at;
  const first = Math.max(rows[0].at, last - 400 * step);
  for (let at = Math.min(first, last - 11 * step); at <= last; at += step) all.push(found.get(at) || { at, saved_s: 0, wasted_s: 0 });
  return all;
}

/** What a predictor promised against what came; the size of a point says how many predictions it stands for. */
export function reliability(one, signal) {
  const bins = [...one.bins].sort((a, b) => a[0] - b[0]);
  const most = Math.max(...bins.map((bin) => bin[2]));
  const words = bins.map(([told, came, n]) => `${percent(told)} promised, ${percent(came)} came, ${count(n)} times`).join("; ");
  const points = (plot) => {
    const { ctx } = plot;
    const scale = window.devicePixelRatio || 1;
    ctx.save();
    ctx.setLineDash([]);
    bins.forEach(([told, came, n]) => {
      const x = plot.valToPos(told, "x", true), y = plot.valToPos(came, "y", true);
      const sum = 1.96 * Math.sqrt(Math.max(came * (1 - came), 0.02) / n);
      ctx.strokeStyle = colour("joined"); ctx.lineWidth = 1.5 * scale; ctx.globalAlpha = 0.55;
      ctx.beginPath();
      ctx.moveTo(x, plot.valToPos(Math.min(1, came + sum), "y", true));
      ctx.lineTo(x, plot.valToPos(Math.max(0, came - sum), "y", true));
      ctx.stroke();
      ctx.globalAlpha = 1;
      ctx.fillStyle = colour("joined");
      ctx.beginPath();
      ctx.arc(x, y, (3 + 6 * Math.sqrt(n / most)) * scale, 0, 2 * Math.PI);
      ctx.fill();
    });
    ctx.restore();
  };
  const percents = (_, values) => values.map((value) => `${Math.round(value * 100)}%`);
  return figure(`Reliability of ${one.predictor}: ${words}`, 260, signal, () => ({
    data: [[0, 1], [0, 1]],
    options: {
      padding: [12, 22, 4, 0],
      scales: { x: { time: false, range: [0, 1] }, y: { range: [0, 1] } },
      axes: [axis({ size: 28, values: percents, label: "promised", labelSize: 20, labelFont: "12px system-ui, sans-serif" }), axis({ size: 48, values: percents, label: "came true", labelSize: 18, labelFont: "12px system-ui, sans-serif" })],
      series: [{}, { stroke: colour("quiet"), width: 1, dash: [5, 5], points: { show: false } }],
      hooks: { draw: [points] },
    },
  }), 420);
}
