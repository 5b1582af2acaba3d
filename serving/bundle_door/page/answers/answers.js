// An answer as people read it: labels with bars, where the time went, what answered.
import { amountOf, labelOf } from "./bars.js";
import { cardOf, PICTURES } from "../cards.js";
import { button, element } from "../elements.js";
import { snippets } from "./snippets.js";

const stepsOf = ({ before, after }) => [
  [/^received$/, "Upload"], [/(postprocess|_choice)/, after], [/preprocess/, before], [/(_onnx|_trt)$/, "Neural network"],
];

export function card(question, medium) {
  const columns = element("div", { className: "columns" });
  const made = element("article", { className: medium === PICTURES ? "card" : "card wide" });
  if (question.file) {
    const name = question.file.name || "pasted picture";
    made.append(element("figure", { className: "seen" }, ...(medium.seen ?? seen)(question.file),
      element("figcaption", {}, `${name} · ${size(question.file.size)}`)));
    made.setAttribute("aria-label", name);
  } else {
    columns.dataset.text = question.text;
    const name = question.name ?? `“${question.text}”`;
    made.setAttribute("aria-label", name);
    made.append(element("p", {}, name));
  }
  made.append(columns);
  return { made, columns };
}

function seen(file) {
  const picture = element("img", { alt: "", src: URL.createObjectURL(file) });
  picture.addEventListener("error", () => picture.replaceWith(element("p", { className: "broken" }, "no picture")));
  return [picture];
}

export function waiting(pipeline) {
  return element("section", { className: "answer" },
    element("h3", {}, titleOf(pipeline)), element("p", { className: "busy" }, "asking …"));
}

export function answered(place, pipeline, found, question) {
  place.closest(".card").classList.toggle("scenic", Boolean(cardOf(pipeline).isScene));
  const told = element("div", { className: "told" }, element("div", {}, ...cardOf(pipeline).show(found, question)));
  (told.querySelector(".beside > :last-child") ?? told).append(whereOf(found, pipeline));
  place.replaceChildren(
    element("h3", {}, titleOf(pipeline)), facts(pipeline), told,
    copies(pipeline, question, found));
}

// Of several answers to one question: their times on one scale, and whether they say the same, where
// they could.
export function compared(places, pipelines, answers, alike) {
  const whole = Math.max(...answers.map(wholeOf));
  for (const [at, place] of places.entries()) {
    place.querySelector(".where, .only")?.replaceWith(whereOf(answers[at], pipelines[at], whole));
    if (alike !== null) place.querySelector("h3").append(" ", element("span", { className: alike ? "badge" : "badge differs" }, alike ? "same" : "differs"));
  }
}

const wholeOf = found => Math.max(found.timings?.total_ms ?? 0, found.browser_ms);

const whereOf = (found, pipeline, whole = wholeOf(found)) =>
  found.timings ? waterfall(found, stepsOf(cardOf(pipeline)), whole) : onlyTotal(found);

// What an answer says first.
export const saidFirst = (pipeline, { labels }) => cardOf(pipeline).isScene ? labels : labels.slice(0, 1);

export const told = (pipeline, found) => found.told ?? (saidFirst(pipeline, found)
  .map(each => `${labelOf(each)}, ${amountOf(each, " percent")}`).join("; ") || "nothing found");

export function refused(place, pipeline, fault, again) {
  const error = element("div", { className: "error" },
    element("b", {}, fault.message.replace(/\.?$/, ".")),
    element("span", {}, fault.remedy ?? ""));
  if (fault.passing) error.append(button(again, {}, "Retry"));
  place.replaceChildren(element("h3", {}, titleOf(pipeline)), error);
}

export const titleOf = pipeline => `${pipeline.title}, version ${pipeline.version}`;

// Of answers of one pipeline, each version that gave some.
export const answerersOf = answers => [...new Map(answers.map(({ by }) => [by.version, by])).values()];

// On what the answers are, as another pipeline may be chosen by then.
export function marksOf(pipeline) {
  const mark = pipeline.untrained ? "untrained weights" : isDrawn(pipeline) ? "for trying out" : "";
  return mark ? [element("span", { className: "badge differs" }, mark), " "] : [];
}

// The small networks that the bundle brings.
export const isDrawn = ({ networks }) => networks.some(each => each.name === "drawn" || each.weights === "drawn");

function facts(pipeline) {
  const made = element("p", { className: "facts" }, ...marksOf(pipeline));
  if (pipeline.candidate) made.append(element("span", { className: "badge" }, `candidate, ${pipeline.share ?? 0}%`), " ");
  made.append(pipeline.networks.map(each => trainedOn(each, cardOf(pipeline))).join(" · ") || pipeline.model);
  return made;
}

// In other words than a manifest's, where these are the project's own.
function trainedOn({ name, weights }, { made: [made] }) {
  if (name === "drawn") return "a small network, trained on drawings";
  const source = { drawn: `trained on ${made}`, default: "published weights" }[weights] ?? `weights ${weights}`;
  return weights ? `${name}, ${source}` : name;
}

// Each bar lies where its time did; what is grey before it was spent waiting for that step.
function waterfall(found, steps, whole) {
  const { total_ms: total, spans } = found.timings;
  const rows = [];
  let until = 0;
  for (const span of spans) {
    const waited = Math.max(0, span.start_ms - until);
    rows.push(row(nameOf(span, steps), span.ms, whole,
      [["wait", until, waited], ["", span.start_ms, span.ms]]));
    until = Math.max(until, span.start_ms + span.ms);
  }
  // Steps that tell nothing of themselves are one.
  rows.push(row(spans.length > 1 ? "Answer" : "Pipeline", total - until, whole, [["", until, total - until]]));
  const wire = Math.max(0, found.browser_ms - total);
  rows.push(row("Wire, browser", wire, whole, [["outside", total, wire]]));
  rows.reduce((one, other) => other.ms > one.ms ? other : one).made.classList.add("longest");
  const waits = wholeOf(found) - rows.reduce((sum, each) => sum + each.ms, 0);
  return element("details", { open: true, className: "where" },
    element("summary", {}, `${ms(found.browser_ms)} in all, ${ms(total)} of it in the server`),
    element("ol", { className: "spans" }, ...rows.map(each => each.made)),
    element("p", { className: "spans-note" },
      `Grey: waiting and hand-over between the steps, ${ms(Math.max(0, waits))}. Wire and browser are before and after.`,
      ...spans.filter(each => each.batch > 1).map(each => ` ${nameOf(each, steps)}: in a batch of ${each.batch}.`)));
}

function row(name, took, whole, parts) {
  const track = element("span", { className: "track", "aria-hidden": "true" });
  for (const [kind, start, length] of parts) {
    if (kind && length < whole / 200) continue;
    const part = element("i", { className: kind });
    part.style.left = `${(100 * start) / whole}%`;
    part.style.width = `${(100 * length) / whole}%`;
    track.append(part);
  }
  const made = element("li", {},
    element("span", {}, name), track, element("span", { className: "ms" }, ms(took)));
  return { made, ms: took };
}

function onlyTotal(found) {
  return element("p", { className: "spans-note only" }, `${ms(found.browser_ms)} in all`);
}

const nameOf = ({ name }, steps) => steps.find(([pattern]) => pattern.test(name))?.[1] ?? name;

function copies(pipeline, question, found) {
  const forms = Object.entries(snippets(pipeline, question, found));
  if (!forms.length) return "";
  const made = element("div", { className: "copies" }, "Copy as");
  const status = element("span", { role: "status" });
  const shown = element("pre", { hidden: true, tabIndex: 0 });
  for (const [name, text] of forms) {
    made.append(button(async () => {
      shown.textContent = text;
      shown.hidden = false;
      try {
        await navigator.clipboard.writeText(text);
        status.textContent = "copied";
      } catch { // over plain HTTP from another machine
        status.textContent = "select it below";
      }
    }, {}, name));
  }
  made.append(status, shown);
  return made;
}

export const ms = value => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;

function size(bytes) {
  return bytes < 1e6 ? `${Math.max(1, Math.round(bytes / 1e3))} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}
