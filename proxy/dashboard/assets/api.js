// The dashboard's own API. The key lives in this tab only and travels as a header, so no other page can borrow it.

const KEY = "agentspec.key";
const BASE = "/dashboard/api";

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function key() {
  return sessionStorage.getItem(KEY);
}

export function setKey(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

export function get(path, parameters = {}, signal = undefined) {
  return ask(address(path, parameters), { signal });
}

export function post(path, body) {
  const headers = { "content-type": "application/json", "x-agentspec-dashboard": "1" };
  return ask(`${BASE}/${path}`, { method: "POST", body: JSON.stringify(body), headers });
}

/** Server-sent events, as { event, data }; begins again by itself after a pause, until the signal says stop. */
export async function* events(path, parameters, signal, told = () => {}) {
  while (!signal.aborted) {
    try {
      const answer = await request(address(path, parameters), { signal });
      told(true);
      yield* read(answer.body);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status < 500) throw error;
    }
    told(false);
    await pause(2000, signal);
  }
}

async function* read(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (waiting + value).split("\n\n");
    waiting = blocks.pop();
    for (const block of blocks) {
      const data = field(block, "data");
      if (data) yield { event: field(block, "event") || "message", data: JSON.parse(data) };
    }
  }
}

function field(block, name) {
  const line = block.split("\n").find((one) => one.startsWith(`${name}: `));
  return line ? line.slice(name.length + 2) : "";
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}

function address(path, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(given).toString();
  return query ? `${BASE}/${path}?${query}` : `${BASE}/${path}`;
}

async function ask(url, options) {
  return (await request(url, options)).json();
}

async function request(url, options) {
  const headers = { ...(options.headers || {}) };
  if (key()) headers.authorization = `Bearer ${key()}`;
  let answer;
  try {
    answer = await fetch(url, { ...options, headers, credentials: "omit", cache: "no-store" });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(503, "The proxy does not answer. Is it still running?");
  }
  if (answer.ok) return answer;
  let message = `The proxy answered ${answer.status}.`;
  try {
    message = (await answer.json()).error.message;
  } catch { /* not one of our own errors: its status says all there is */ }
  throw new ApiError(answer.status, message);
}
