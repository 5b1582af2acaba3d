// Answers as a file, for a spreadsheet or a program.
import { button, element } from "../elements.js";
import { plain } from "./bars.js";
import { CARDS, cardOf } from "../cards.js";

const FORMS = [["CSV", "text/csv", csv], ["JSON", "application/json", json]];

// Buttons that save what `list` returns then.
export function offerFiles(list) {
  return FORMS.map(([name, type, write]) => button(() => {
    const answers = list();
    save(`${nameOf(answers)}.${name.toLowerCase()}`, type, write(answers));
  }, { title: `All of these answers, as ${name}` }, name));
}

// What one pipeline said of a question, with the share of a picture that it is, or where in it.
export function describe({ file, name, text }, pipeline, { found, fault, by = pipeline }, told = found?.labels) {
  const about = {
    file: file?.name ?? name ?? text, pipeline: by.title, model: by.model, version: by.version,
  };
  if (fault) return { ...about, error: fault.message };
  const places = placesOf(cardOf(pipeline));
  const labels = told.map(({ label, probability, index, share, ...where }) => ({
    label: plain(label), probability, index, share,
    box: places.length ? Object.fromEntries(places.map(each => [each, where[each]])) : undefined,
  }));
  return { ...about, labels, ms: Number(found.browser_ms.toFixed(1)) };
}

// Of each entry, its name and its share come first.
const placesOf = card => card.found?.slice(3) ?? [];

// Of what answered, so that files of several pipelines lie beside one another.
const nameOf = answers => ["answers", ...new Set(answers.map(each => each.pipeline.toLowerCase().replace(/[^\w-]+/g, "_")))].join("-");

function json(answers) {
  return `${JSON.stringify(answers, null, 1)}\n`;
}

// With the mark by which spreadsheets know UTF-8.
function csv(answers) {
  const places = Object.values(CARDS).flatMap(placesOf);
  const lines = answers.flatMap(({ file, pipeline, model, version, labels = [], error = "", ms = "" }) => !labels.length
    ? [[file, pipeline, model, version, "", "", "", error, "", ms, "", ...places.map(() => "")]]
    : labels.map(({ label, probability, index = "", share = "", box }, at) =>
      [file, pipeline, model, version, at + 1, label, probability, "", index, ms, share, ...places.map(each => box?.[each] ?? "")]));
  return "\ufeff" + [["file", "pipeline", "model", "version", "rank", "label", "probability", "error", "class", "ms", "share", ...places], ...lines].map(line => `${line.map(cell).join(",")}\n`).join("");
}

// Quoted, and never a formula of a spreadsheet's.
function cell(value) {
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url));
}
