// Requests to the server that this page comes from, with the tab's key, and its refusals in words.
import { byId } from "./elements.js";

const KEY = "bundle-api-key";

export class Refusal extends Error {
  // `passing`: to ask again may help.
  constructor(cause, remedy, passing = false) {
    super(cause);
    this.remedy = remedy;
    this.passing = passing;
  }
}

// A key's rate, or a busy server: asked again when the server says so.
const MOST_TRIES = 20;

async function patient(path, options) {
  for (let tries = 1; ; tries++) {
    const answer = await fetch(path, options);
    const after = Number(answer.headers.get("retry-after")) || (answer.status === 503 ? 1 : 0);
    if (![429, 503].includes(answer.status) || !after || tries === MOST_TRIES || options.quiet) return answer;
    await pause(after * 1000, options.signal);
  }
}

function pause(milliseconds, signal) {
  return new Promise((done, failed) => {
    const timer = setTimeout(done, milliseconds);
    signal?.addEventListener("abort", () => { clearTimeout(timer); failed(signal.reason); }, { once: true });
  });
}

export async function ask(path, options = {}) {
  for (let wrong = false; ; wrong = true) {
    const key = sessionStorage.getItem(KEY);
    const headers = { ...options.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
    let answer;
    try {
      answer = await patient(path, { ...options, headers });
    } catch (fault) {
      if (fault.name === "AbortError") throw fault;
      throw new Refusal("The server does not answer", "Is it running? Start it: make up", true);
    }
    if (answer.status !== 401) return answer;
    if (options.quiet) throw new Refusal("The server asks for an API key", "");
    await askForKey(wrong && key);
  }
}

export async function json(path, options) {
  const answer = await ask(path, options);
  if (!answer.ok) throw await refusalOf(answer);
  return answer.json();
}

export async function refusalOf(answer) {
  let error;
  try {
    ({ error } = await answer.json());
  } catch { /* a proxy's page, or nothing */ }
  const passing = [429, 503, 504].includes(answer.status);
  if (error?.cause) return new Refusal(sentence(error.cause), sentence(error.remedy), passing);
  const message = typeof error === "string" ? sentence(error.split("; ")[0]) : "";
  const [cause, remedy] = BY_STATUS[answer.status] ?? [message || `The server says ${answer.status}`, "make logs shows why."];
  return new Refusal(cause, remedy, passing);
}

const BY_STATUS = {
  403: ["The server does not take requests from this page", "Open it under the server's own address."],
  413: ["That is more than the server takes at once", "Send less at once."],
  429: ["Your key has sent too many requests", "Wait a moment and ask again."],
  503: ["The server is busy or starting", "Try again in a few seconds."],
  504: ["There was no answer in time", "The server is under load; try again."],
};

function sentence(text = "") {
  const plain = text.replace(/^in ensemble '[^']*', /, "").replace(/^\[request id: [^\]]*\] /, "").replace(/ \(it begins with b[^)]*\)/, "").trim();
  return plain && plain[0].toUpperCase() + plain.slice(1);
}

// The key

export const hasKey = () => Boolean(sessionStorage.getItem(KEY));

let asking = null;

export function askForKey(wrong = false) {
  asking ??= new Promise(done => {
    const dialog = byId("key"), field = byId("key-value");
    byId("key-wrong").hidden = !wrong;
    field.value = dialog.returnValue = "";
    dialog.addEventListener("close", () => {
      if (dialog.returnValue) sessionStorage.setItem(KEY, field.value.trim());
      byId("key-change").hidden = !hasKey();
      asking = null;
      done();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}
