// How the server is doing, asked again every few seconds while the page is looked at.
import { byId, element, shape } from "./elements.js";
import { json } from "./server.js";
import { ms } from "./answers/answers.js";

const EVERY_MS = 5000, SOON_MS = 1000, MOST_EVENTS = 6;
// What has not come by then will not: a server that stands still, or a network that lost it.
const PATIENT_MS = 10_000;
const BECAME = {
  published: "published", begins: "started", serves: "live", stayed: "not switched to",
};
const UNSEEN = ["shadow", "replay"];

// When the server last told.
let seen = null;

let wake = () => {}, soon = null, due = false;

// `list`: the models that are served, asked or not.
export async function watch(names, list) {
  for (;;) {
    due = false;
    if (!document.hidden) await show(names, list);
    await new Promise(done => {
      wake = done;
      if (due) done();
      else setTimeout(done, EVERY_MS);
    });
  }
}

// What this page has asked is seen at once; but it is not looked for more than once a second.
export function lookSoon() {
  soon ??= setTimeout(() => {
    soon = null;
    due = true;
    wake();
  }, SOON_MS);
}

async function show(names, list) {
  let state;
  try {
    state = await json("page/live.json", { quiet: true, signal: AbortSignal.timeout(PATIENT_MS) });
  } catch (fault) {
    health("bad", fault.message);
    document.body.classList.add("gone");
    if (seen) byId("dated").textContent = `As of ${seen.toLocaleTimeString()}`;
    return;
  }
  seen = new Date();
  document.body.classList.remove("gone");
  byId("dated").textContent = "";
  if (state.ready === false) health("bad", `Not ready: ${state.reason}`);
  else health("good", "Ready");
  tiles(state, names);
  byId("gpus").replaceChildren(...state.gpus.map(gpu => element("li", { title: gpu.uuid }, ofGpu(gpu))));
  byId("shadows").replaceChildren(...state.shadows.map(each => element("li", {}, ofCopies(each, names))));
  throughput(state);
  latency(state.over_time);
  byId("totals").textContent = summed(state);
  table(state.series, names, list());
  drift(state.drift);
  byId("history").replaceChildren(...events(state.history, names));
  byId("errors").replaceChildren(...(state.errors.length
    ? together(state.errors.toReversed()).slice(0, MOST_EVENTS).map(([each, times]) => event(new Date(each.at * 1000),
      `${names(each.pipeline)}: ${each.why.replaceAll("_", " ")} (${each.status})${times > 1 ? `, ${times} times` : ""}`))
    : [element("li", { className: "empty" }, "Nothing since the start.")]));
  byId("keeper").replaceChildren(...(state.keeper.length
    ? state.keeper.toReversed().map(each => event(new Date(each.at * 1000), each.did))
    : [element("li", { className: "empty" }, "Nothing had to be restored.")]));
}

// Since the door's start; the slowest of what the charts show.
function summed({ answered, unanswered, since, slowest_ms: slowest }) {
  const of = new Date(1000 * since);
  return `${answered.toLocaleString()} answered, ${unanswered.toLocaleString()} not, since ${of.toDateString() === new Date().toDateString() ? of.toLocaleTimeString() : of.toLocaleString()}`
    + (slowest ? `; the slowest of these 15 minutes took ${ms(slowest)}` : "");
}

// The same one after the other: the last of them, and how many.
function together(errors) {
  const found = [];
  const alike = (one, other) => one && ["pipeline", "why", "status"].every(each => one[each] === other[each]);
  for (const each of errors) {
    if (alike(found.at(-1)?.[0], each)) found.at(-1)[1] += 1;
    else found.push([each, 1]);
  }
  return found;
}

// What Triton was not told of it is not there, or 0.
function ofGpu(gpu) {
  const gigabytes = bytes => (bytes / 1e9).toFixed(1);
  const told = [
    gpu.utilization === undefined ? "" : `${Math.round(100 * gpu.utilization)} % busy`,
    gpu.memory_total_bytes ? `${gigabytes(gpu.memory_used_bytes)} of ${gigabytes(gpu.memory_total_bytes)} GB` : "",
    gpu.power_limit ? `${Math.round(gpu.power_usage)} of ${Math.round(gpu.power_limit)} W` : "",
  ];
  return `GPU: ${told.filter(Boolean).join(" · ")}`;
}

// A version that answers copies of requests, unseen (make shadow).
function ofCopies({ model, version, counts, most }, names) {
  const count = name => counts[name] ?? 0;
  const copies = count("same") + count("differs") + count("failed");
  const told = [
    `${copies.toLocaleString()} copies answered by version ${version} of ${names(model.replace(/_candidate$/, ""))}, which nobody sees`,
    count("differs") && `${count("differs").toLocaleString()} differ`,
    count("failed") && `${count("failed").toLocaleString()} failed`,
    count("left out") && `${count("left out").toLocaleString()} left out while the server was busy`,
    most && `most often ${most[0]} → ${most[1] || "no answer"}`,
  ];
  return told.filter(Boolean).join(" · ");
}

const rate = value => value.toFixed(value && value < 1 ? 2 : 1);

function health(kind, text) {
  const place = byId("health");
  if (place.textContent === text) return;
  place.className = `health ${kind}`;
  place.textContent = text;
}

function tiles(state, names) {
  const sum = field => state.series.reduce((all, each) => all + each[field], 0);
  const queued = Object.values(state.queued).reduce((all, count) => all + count, 0);
  const failed = sum("failed");
  const shown = [
    ["answers/s", rate(sum("per_second"))],
    median(state.series, names),
    ["being answered", Math.max(0, state.in_flight - 1)], // without this very request
    ["queued", queued],
    ["refused", sum("refused")],
    ["busy", sum("busy")],
    ["failed", failed, failed ? "bad" : ""],
  ];
  byId("tiles").replaceChildren(...shown.map(([name, value, className = ""]) =>
    element("div", { className }, element("dt", {}, name), element("dd", {}, String(value)))));
}

// Of the pipeline that is chosen, by the version and protocol that answered most.
function median(series, names) {
  const model = byId("pipeline").value;
  const [most] = series.filter(each => each.pipeline === model).sort((one, other) => other.answered - one.answered);
  return [model ? `median of ${names(model)}` : "median", most?.p50_ms ? ms(most.p50_ms) : "–"];
}

const WIDTH = 720, HEIGHT = 110;

function throughput({ series, over_time: { refused, busy, failed }, slot_s: seconds }) {
  const all = failed.map((_, slot) => series.reduce((sum, each) => sum + each.throughput[slot], 0));
  // One above the other: what failed is lowest.
  const heaps = [["refused", refused, busy, failed], ["away", busy, failed], ["fault", failed]]
    .map(([kind, ...counts]) => [kind, failed.map((_, slot) => counts.reduce((sum, each) => sum + each[slot], 0) / seconds)]);
  const most = roundUp(Math.max(...all, ...heaps[0][1]));
  const total = counts => counts.reduce((sum, each) => sum + each, 0);
  const points = line(all, most);
  plot("throughput", most, [
    shape("path", { class: "area", d: `M0,${HEIGHT} L${points.join(" ")} ${WIDTH},${HEIGHT} Z` }),
    shape("path", { class: "edge", d: `M${points.join(" ")}` }),
    ...heaps.flatMap(([kind, values]) => bars(kind, values, most)),
  ], `Answers a second over 15 minutes: at most ${Math.max(...all).toFixed(1)}, ${total(refused)} refused, ${total(busy)} sent away as busy, ${total(failed)} failed`);
}

function latency(over) {
  const lines = ["p50", "p95", "p99"].map(name => [name, over[`${name}_ms`]]);
  const most = roundUp(Math.max(...lines.flatMap(([, values]) => values)));
  plot("latency", most, lines.map(([name, values]) => shape("path", { class: `edge ${name}`, d: broken(values, most) })),
    `Latency over 15 minutes: p50 at most ${ms(Math.max(...over.p50_ms))}`, value => ms(value));
}

// With its y-axis: nothing, half and most.
function plot(id, most, shapes, words, written = value => String(value)) {
  const figure = byId(id), picture = figure.querySelector("svg");
  figure.hidden = !most;
  if (!most) return;
  picture.setAttribute("aria-label", words);
  picture.replaceChildren(...[0, 0.5, 1].map(share => shape("path", { class: "grid-line", d: `M0,${y(share)} H${WIDTH}` })), ...shapes);
  figure.querySelector(".ticks").replaceChildren(...[most, most / 2, 0].map(value => element("span", {}, value ? written(value) : "0")));
}

const y = share => (HEIGHT - 4 - (HEIGHT - 10) * share).toFixed(1);
const x = (slot, values) => ((WIDTH * slot) / (values.length - 1)).toFixed(1);
const line = (values, most) => values.map((value, slot) => `${x(slot, values)},${y(most ? value / most : 0)}`);

// Where nothing is known, the line is interrupted.
const broken = (values, most) => values.map((value, slot) => value === null ? ""
  : `${values[slot - 1] == null ? "M" : "L"}${x(slot, values)},${y(value / most)}${values[slot - 1] == null ? "h1" : ""}`).join("");

const bars = (kind, values, most) => values.flatMap((value, slot) =>
  value ? [shape("path", { class: kind, d: `M${x(slot, values)},${y(0)} V${y(value / most)}` })] : []);

// To 1, 2 or 5 times a power of ten.
function roundUp(value) {
  if (!(value > 0)) return 0;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find(each => each * power >= value) * power;
}

function table(asked, names, list) {
  const idle = { protocol: "–", per_second: 0, refused: 0, busy: 0, failed: 0 };
  const of = model => asked.filter(each => each.pipeline === model);
  const series = [...list.flatMap(model => of(model).length ? of(model) : [{ ...idle, pipeline: model }]),
    ...asked.filter(each => !list.includes(each.pipeline))];
  byId("series").hidden = !series.length;
  const heads = [...byId("series").tHead.rows[0].cells];
  byId("series").tBodies[0].replaceChildren(...series.map(each => {
    const cells = [
      [each.pipeline ? names(each.pipeline) : "any"], [each.version || "–"], [each.protocol],
      [rate(each.per_second), "n"],
      ...["p50_ms", "p95_ms", "p99_ms"].map(name => each[name] ? [ms(each[name]), "n"]
        : ["–", "n few"]),
      [String(each.refused), "n"], [String(each.busy), "n"], [String(each.failed), each.failed ? "n bad" : "n"],
    ];
    // On a telephone, where the heads are not seen, each figure has its own.
    return element("tr", { role: "row" }, ...cells.map(([text, className = ""], at) =>
      element("td", { role: "cell", className, "data-name": heads[at].innerText }, text)));
  }));
}

// How far each version's answers have moved, and which classes did.
function drift(versions) {
  const whole = versions.filter(each => "class" in each.index);
  byId("drift").hidden = !whole.length;
  byId("drift").querySelector(".two").replaceChildren(...whole.map(each => element("div", {},
    element("p", { className: "facts" }, `${each.model}, version ${each.version}: ${reading(each.index.class)} in classes, `
      + `${reading(each.index.confidence)} in confidence, since ${new Date(1000 * each.taken).toLocaleDateString()}`
      + right(each.accuracy) + weakest(each.classes)),
    element("ol", { className: "moved" }, ...each.moved.slice(0, 5).map(moved)))));
}

// An estimate, where labelled data was asked about.
const right = told => told?.labelled === undefined ? "" : `; right by its confidence: about ${percent(told.estimated)}, `
  + `at most ${percent(told["at most"])}; of labelled data ${percent(told.labelled)}`;

// Of what is called a class, as far as it can be told.
const weakest = classes => classes?.length ? `; least of what it calls ${classes.slice(0, 3).map(each =>
  `${each.class}: ${percent(each["at least"])} to ${percent(each["at most"])}`).join(", ")}` : "";

const reading = index =>
  `${index > 0.25 ? "a shift" : index < 0.1 ? "stable" : "some change"} (${index.toFixed(2)})`;

const percent = share => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

function moved(each) {
  const bars = [["then", each.then], ["now", each.now]].map(([kind, share]) => {
    const filled = element("i", { className: kind });
    filled.style.width = `${100 * share}%`;
    return element("span", { className: "bar" }, filled);
  });
  return element("li", {}, element("span", { className: "name" }, each.class),
    element("span", { className: "share" }, `${percent(each.then)} → ${percent(each.now)}`), ...bars);
}

const became = ({ what, how }) =>
  UNSEEN.includes(how) ? { begins: "trial began", stayed: "tried unseen" }[what] : BECAME[what] ?? what;

function events(history, names) {
  const all = Object.entries(history).flatMap(([pipeline, list]) =>
    list.map(each => ({ ...each, pipeline })));
  all.sort((one, other) => (one.time < other.time ? 1 : -1));
  const several = Object.keys(history).length > 1;
  if (!all.length) return [element("li", { className: "empty" }, "Not known here.")];
  return all.slice(0, MOST_EVENTS).map(each => {
    const which = `${several ? `${names(each.pipeline)} ` : ""}version ${each.version}`;
    return event(new Date(each.time), `${which} ${became(each)} (${each.how})`, each.note);
  });
}

function event(at, text, note = "") {
  const today = new Date().toDateString() === at.toDateString();
  const shown = today
    ? at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })
    : at.toLocaleDateString([], { day: "numeric", month: "short" });
  return element("li", {}, element("time", { dateTime: at.toISOString() }, shown), text,
    ...(note ? [element("span", { className: "why" }, note)] : []));
}
