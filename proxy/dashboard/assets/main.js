// Which page is shown, the head of the page, the key.

import { ApiError, get, key, setKey } from "./api.js";
import { h } from "./dom.js";
import * as calibration from "./pages/calibration.js";
import * as health from "./pages/health.js";
import * as memory from "./pages/memory.js";
import * as run from "./pages/run.js";
import * as runs from "./pages/runs.js";
import * as savings from "./pages/savings.js";
import * as toolsPage from "./pages/tools.js";
import * as waste from "./pages/waste.js";

const MODULES = { runs, run, savings, waste, calibration, tools: toolsPage, memory, health };
const PAGES = Object.entries(MODULES).filter(([name]) => name !== "run").map(([name, page]) => [name, page.title]);
const OTHERS = { run: "runs" };

const main = document.getElementById("page");
const nav = document.getElementById("nav");
const tools = document.getElementById("tools");
let leaving = new AbortController();
let session = null;

function current() {
  const name = location.pathname.replace(/^\/dashboard\/?/, "").replace(/\/$/, "") || "runs";
  return PAGES.some(([page]) => page === name) || OTHERS[name] ? name : null;
}

/** Go to another page of the dashboard. */
export function go(address, { replace = false } = {}) {
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  return show({ moved: true });
}

async function show({ moved = false } = {}) {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const name = current();
  drawNav(OTHERS[name] || name);
  main.setAttribute("aria-busy", "true");
  try {
    if (!session) session = await get("session");
    drawTools();
    if (name === null) {
      main.replaceChildren(h("h1", "There is no such page"), h("p", h("a", { href: "/dashboard" }, "To the runs")));
      return;
    }
    const page = MODULES[name];
    document.title = `${page.title} \u00b7 agentspec`;
    main.replaceChildren(h("h1", page.title), h("p.loading", { role: "status" }, "Reading the books\u2026"));
    const content = await page.render({ session, signal, parameters: new URLSearchParams(location.search), go, again: show });
    if (!signal.aborted) main.replaceChildren(...[content].flat());
    if (moved && !signal.aborted) { main.focus({ preventScroll: true }); window.scrollTo(0, 0); }
  } catch (error) {
    if (!signal.aborted) drawError(error);
  } finally {
    if (!signal.aborted) main.removeAttribute("aria-busy");
  }
}

function drawNav(open) {
  nav.replaceChildren(...PAGES.map(([name, title]) =>
    h("a", { href: name === "runs" ? "/dashboard" : `/dashboard/${name}`, "aria-current": name === open ? "page" : null }, title),
  ));
  const here = nav.querySelector("[aria-current]");
  if (here && nav.scrollWidth > nav.clientWidth) nav.scrollLeft = here.offsetLeft - nav.offsetLeft - 24;
}

function drawError(error) {
  if (error instanceof ApiError && error.status === 401) return askForKey(error.message);
  const plain = error instanceof ApiError ? error.message : `This page failed: ${error.message}`;
  if (!(error instanceof ApiError)) console.error(error);
  main.replaceChildren(
    h("h1", "That did not work"),
    h("div.error", { role: "alert" }, h("p", plain), h("button", { type: "button", onclick: () => show() }, "Try again")),
  );
}

function askForKey(why) {
  session = null;
  const wrong = key() ? "This key is not known here." : "";
  setKey(null);
  drawTools();
  document.title = "Key \u00b7 agentspec";
  const field = h("input", { id: "key", type: "password", autocomplete: "off", required: true, "aria-describedby": "key-help", spellcheck: "false" });
  const form = h("form.key", { onsubmit: (event) => { event.preventDefault(); setKey(field.value.trim()); show({ moved: true }); } }, [
    h("label", { for: "key" }, "Key of the proxy"),
    h("div.line", field, h("button.primary", { type: "submit" }, "Open")),
    wrong ? h("p.wrong", { role: "alert" }, wrong) : null,
    h("p.help", { id: "key-help" }, "The one that your agents send as their API key (it begins with \u201cask-\u201d). The operator makes one with ", h("code", "agentspec keys new NAME"), ". It stays in this tab and is forgotten with it. You will see the runs of that key\u2019s tenant, and no others."),
  ]);
  main.replaceChildren(h("h1", "This dashboard needs a key"), form);
  field.focus();
  return why;
}

function drawTools() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const shown = document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
  const other = shown === "dark" ? "light" : "dark";
  const toggle = h("button.plain", { type: "button", "aria-label": `Use the ${other} theme`, title: `Use the ${other} theme`, onclick: () => {
    document.documentElement.dataset.theme = other;
    localStorage.setItem("agentspec.theme", other);
    drawTools();
    window.dispatchEvent(new Event("themechange"));
  } }, shown === "dark" ? sun() : moon());
  const whose = session && session.tenant ? h("span.tenant", { title: "You see this tenant\u2019s rows" }, session.tenant.replace(/^key:/, "")) : null;
  const leave = key() ? h("button.plain", { type: "button", onclick: () => { setKey(null); session = null; show(); } }, "Forget key") : null;
  tools.replaceChildren(...[whose, leave, toggle].filter(Boolean));
}

function sun() {
  return h("svg", { viewBox: "0 0 20 20", width: 18, height: 18, "aria-hidden": "true" }, [
    h("circle", { cx: 10, cy: 10, r: 4, fill: "currentColor" }),
    h("path", { d: "M10 1.5v2.5M10 16v2.5M1.5 10H4M16 10h2.5M4 4l1.8 1.8M14.2 14.2L16 16M16 4l-1.8 1.8M5.8 14.2L4 16", stroke: "currentColor", "stroke-width": 1.6, "stroke-linecap": "round" }),
  ]);
}

function moon() {
  return h("svg", { viewBox: "0 0 20 20", width: 18, height: 18, "aria-hidden": "true" }, h("path", { d: "M16.5 12.6A7 7 0 0 1 7.4 3.5a7 7 0 1 0 9.1 9.1z", fill: "currentColor" }));
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='/dashboard']");
  if (!link || event.defaultPrevented || event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  go(link.getAttribute("href"));
});
window.addEventListener("popstate", () => show({ moved: true }));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawTools(); window.dispatchEvent(new Event("themechange")); });
show();
