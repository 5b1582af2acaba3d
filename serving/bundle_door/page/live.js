// How the server is doing, asked again every few seconds while the page is looked at.
import { byId, element, shape } from "./elements.js";
import { json } from "./server.js";
import { ms } from "./answers.js";

const EVERY_MS = 5000;
const BECAME = {
  published: "published", begins: "rollout began", serves: "live", stayed: "not switched to",
};

export async function watch(names) {
  for (;;) {
    if (!document.hidden) await show(names);
    await new Promise(done => setTimeout(done, EVERY_MS));
  }
}

async function show(names) {
  let state;
  try {
    state = await json("page/live.json", { quiet: true });
  } catch (fault) {
    health("bad", fault.message);
    return;
  }
  if (state.ready === false) health("bad", `Not ready: ${state.reason}`);
  else health("good", "Ready");
  tiles(state);
  chart(state.series);
  table(state.series, names);
  drift(state.drift);
  byId("history").replaceChildren(...events(state.history, names));
  byId("keeper").replaceChildren(...(state.keeper.length
    ? state.keeper.toReversed().map(each => event(new Date(each.at * 1000), each.did))
    : [element("li", { className: "empty" }, "Nothing had to be restored.")]));
}

const rate = value => value.toFixed(value && value < 1 ? 2 : 1);

function health(kind, text) {
  const place = byId("health");
  if (place.textContent === text) return;
  place.className = `health ${kind}`;
  place.textContent = text;
}

function tiles(state) {
  const sum = field => state.series.reduce((all, each) => all + each[field], 0);
  const slowest = state.series.reduce((most, each) => Math.max(most, each.p95_ms ?? 0), 0);
  const queued = Object.values(state.queued).reduce((all, count) => all + count, 0);
  const shown = [
    ["answers a second", rate(sum("per_second"))],
    ["p95, slowest pipeline", slowest ? ms(slowest) : "–"],
    ["being answered", Math.max(0, state.in_flight - 1)], // without this very request
    ["in the queues", queued],
    ["errors in a minute", sum("errors")],
  ];
  byId("tiles").replaceChildren(...shown.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, String(value)))));
}

function chart(series) {
  const all = (series[0]?.throughput ?? []).map((_, slot) =>
    series.reduce((sum, each) => sum + each.throughput[slot], 0));
  const most = Math.max(...all, 0);
  byId("throughput").hidden = !most;
  if (!most) return;
  const points = all.map((value, slot) =>
    `${((720 * slot) / (all.length - 1)).toFixed(1)},${(106 - (100 * value) / most).toFixed(1)}`);
  const picture = byId("throughput").querySelector("svg");
  picture.setAttribute("aria-label", `Answers a second over 15 minutes: at most ${most.toFixed(1)}`);
  picture.replaceChildren(
    shape("path", { class: "area", d: `M0,110 L${points.join(" ")} 720,110 Z` }),
    shape("path", { class: "edge", d: `M${points.join(" ")}` }));
  byId("most").textContent = `at most ${most.toFixed(1)}`;
}

function table(series, names) {
  byId("series").hidden = !series.length;
  const cell = (text, className = "") => element("td", { className }, text);
  byId("series").tBodies[0].replaceChildren(...series.map(each => element("tr", {},
    cell(each.pipeline ? names(each.pipeline) : "any"), cell(each.version || "–"), cell(each.protocol),
    cell(rate(each.per_second), "n"),
    ...["p50_ms", "p95_ms", "p99_ms"].map(name => cell(each[name] ? ms(each[name]) : "–", "n")),
    cell(String(each.errors), "n"))));
}

// How far each version's answers have moved, and which classes did.
function drift(versions) {
  const whole = versions.filter(each => "class" in each.index);
  byId("drift").hidden = !whole.length;
  byId("drift").querySelector(".two").replaceChildren(...whole.map(each => element("div", {},
    element("p", { className: "facts" }, `${each.model}, version ${each.version}: ${reading(each.index.class)} in classes, `
      + `${reading(each.index.confidence)} in confidence, since ${new Date(1000 * each.taken).toLocaleDateString()}`),
    element("ol", { className: "moved" }, ...each.moved.slice(0, 5).map(moved)))));
}

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

function events(history, names) {
  const all = Object.entries(history).flatMap(([pipeline, list]) =>
    list.map(each => ({ ...each, pipeline })));
  all.sort((one, other) => (one.time < other.time ? 1 : -1));
  const several = Object.keys(history).length > 1;
  if (!all.length) return [element("li", { className: "empty" }, "Not known here.")];
  return all.slice(0, 6).map(each => {
    const which = `${several ? `${names(each.pipeline)} ` : ""}version ${each.version}`;
    return event(new Date(each.time), `${which} ${BECAME[each.what] ?? each.what} (${each.how})`, each.note);
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
