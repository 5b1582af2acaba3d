// One question to one pipeline, and its answer, as cards.js describes it.
import { ask, refusalOf } from "../server.js";
import { CARDS, cardOf } from "../cards.js";
import { requireReadable } from "./files.js";

// `question` may have a signal that ends it.
export async function answerOf(pipeline, question, most) {
  if (question.file) await requireReadable(question.file, most);
  const began = performance.now();
  const found = await (cardOf(pipeline).ask ?? classified)(pipeline, question);
  return { ...found, browser_ms: performance.now() - began };
}

export const canAsk = pipeline => pipeline.kind in CARDS && cardOf(pipeline).offers(pipeline);

async function classified(pipeline, { file, signal }) {
  const { found: [list, , share], query } = cardOf(pipeline);
  const found = await post(`classify?${new URLSearchParams({ timings: 1, model: pipeline.model, ...query })}`, file, signal);
  return { ...found, labels: found[list].map(each => ({ ...each, probability: each[share] })) };
}

export async function infer(pipeline, datatype, shape, values, size, signal, more = {}) {
  const head = new TextEncoder().encode(JSON.stringify({
    inputs: [{ name: pipeline.input, shape, datatype, parameters: { binary_data_size: size } }],
    ...more,
  }));
  const found = await post(`v2/models/${pipeline.model}/infer`, new Blob([head, values]), signal,
    { "inference-header-content-length": String(head.length) });
  return found.outputs;
}

export async function post(path, body, signal, headers = {}) {
  // Which version answers is chosen on the page, not by a canary.
  const answer = await ask(path, { method: "POST", body, headers: { "x-live-only": "1", ...headers }, signal });
  if (!answer.ok) throw await refusalOf(answer);
  return answer.json();
}

export function readLabel(text) {
  const [probability, index, ...name] = text.split(":");
  return { label: name.join(":"), index: Number(index), probability: Number(probability) };
}
