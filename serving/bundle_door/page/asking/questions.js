// One question to one pipeline, and its answer in one form: {labels, boxes, areas or table, timings, browser_ms}.
import { ask, json, refusalOf } from "../server.js";
import { requireReadable } from "./files.js";
import { numbers } from "../answers/rows.js";

// Longer than any network here looks at; a larger one would only be sent and shrunk.
const MOST_PIXELS = 640;

// `question` may have a signal that ends it.
export async function answerOf(pipeline, question, most) {
  if (question.file) await requireReadable(question.file, most);
  const began = performance.now();
  const found = await KINDS[pipeline.kind](pipeline, question);
  return { ...found, browser_ms: performance.now() - began };
}

export const canAsk = pipeline =>
  pipeline.kind in KINDS && (pipeline.kind !== "text" || pipeline.model === "sentiment_ensemble");

const KINDS = {
  pictures: classified,
  sounds: classified,
  boxes: classified,
  masks: classified,

  async text(pipeline, { text, signal }) {
    const found = await post("sentiment?timings=1", text, signal);
    return { ...found, labels: [{ label: found.label, probability: found.score }] };
  },

  async rows(pipeline, { text, signal }) {
    const { input: [input], output: [output], parameters, max_batch_size: most } = await json(`v2/models/${pipeline.model}/config`);
    const [width, values] = [input, output].map(each => Number(each.dims[0]));
    const rows = numbers(text, JSON.parse(parameters.columns.string_value), width);
    const classes = output.label_filename ? { outputs: [{ name: output.name, parameters: { classification: values } }] } : {};
    const answers = [];
    for (let from = 0; from < rows.length; from += most) { // as many as the model takes at once
      const part = rows.slice(from, from + most);
      const sent = Float32Array.from(part.flat());
      const [{ data }] = await infer(pipeline, "FP32", [part.length, width], sent, sent.byteLength, signal, classes);
      answers.push(...part.map((_, at) => data.slice(values * at, values * (at + 1))));
    }
    const example = rows.find(row => !row.some(Number.isNaN));
    return {
      table: output.label_filename ? named(answers) : unnamed(answers, values),
      example: example && { inputs: [{ name: pipeline.input, datatype: "FP32", shape: [1, width], data: example }], ...classes },
    };
  },

  async pixels(pipeline, { file, signal }) {
    const { width, height, values } = await pixelsOf(file);
    const [found] = await infer(pipeline, "FP32", [1, height, width, 3], values, values.byteLength, signal);
    return { labels: found.data.map(label) };
  },
};

async function classified(pipeline, { file, signal }) {
  const query = new URLSearchParams({ timings: 1, model: pipeline.model, ...(pipeline.kind === "masks" ? { mask: 1 } : {}) });
  const found = await post(`classify?${query}`, file, signal);
  for (const each of [...(found.boxes ?? []), ...(found.areas ?? [])]) each.probability = each.score ?? each.share;
  return found;
}

function named(answers) {
  const found = answers.map(each => each.map(label));
  const classes = [...found[0]].sort((one, other) => one.index - other.index);
  const share = (labels, index) => `${(100 * labels.find(each => each.index === index).probability).toFixed(1)} %`;
  return {
    names: ["label", ...classes.map(each => each.label)],
    rows: found.map(labels => [labels[0].label, ...classes.map(({ index }) => share(labels, index))]),
  };
}

const unnamed = (answers, values) => ({
  names: values > 1 ? answers[0].map((_, at) => `value ${at + 1}`) : ["value"],
  rows: answers.map(each => each.map(value => Number(value.toPrecision(6)).toString())),
});

async function infer(pipeline, datatype, shape, values, size, signal, more = {}) {
  const head = new TextEncoder().encode(JSON.stringify({
    inputs: [{ name: pipeline.input, shape, datatype, parameters: { binary_data_size: size } }],
    ...more,
  }));
  const found = await post(`v2/models/${pipeline.model}/infer`, new Blob([head, values]), signal,
    { "inference-header-content-length": String(head.length) });
  return found.outputs;
}

async function post(path, body, signal, headers = {}) {
  // Which version answers is chosen on the page, not by a canary.
  const answer = await ask(path, { method: "POST", body, headers: { "x-live-only": "1", ...headers }, signal });
  if (!answer.ok) throw await refusalOf(answer);
  return answer.json();
}

function label(text) {
  const [probability, index, ...name] = text.split(":");
  return { label: name.join(":"), index: Number(index), probability: Number(probability) };
}

async function pixelsOf(file) {
  const picture = await createImageBitmap(file);
  const scale = Math.min(1, MOST_PIXELS / Math.max(picture.width, picture.height));
  const width = Math.max(1, Math.round(picture.width * scale));
  const height = Math.max(1, Math.round(picture.height * scale));
  const canvas = new OffscreenCanvas(width, height).getContext("2d");
  canvas.drawImage(picture, 0, 0, width, height);
  const { data } = canvas.getImageData(0, 0, width, height);
  const values = new Float32Array(width * height * 3);
  for (let from = 0, to = 0; from < data.length; from += 4)
    for (let channel = 0; channel < 3; channel++) values[to++] = data[from + channel];
  return { width, height, values };
}
