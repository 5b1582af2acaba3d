// The page: what is served, a question, its answers; and how the server is doing.
import { button, byId, element } from "./elements.js";
import { askForKey, hasKey, json } from "./server.js";
import { answerOf, canAsk } from "./asking/questions.js";
import { answered, card, compared, isDrawn, refused, titleOf, told, waiting } from "./answers/answers.js";
import { describe, offerFiles } from "./answers/export.js";
import { plain } from "./answers/bars.js";
import { CARDS, cardOf, PICTURES } from "./cards.js";
import { Clip, isClip } from "./answers/clips.js";
import { filesOf } from "./asking/files.js";
import { MANY, Many } from "./answers/many.js";
import { offer } from "./asking/samples.js";
import { areAlike, count, forget as forgetTally } from "./answers/tally.js";
import { enqueue, withdraw } from "./asking/turns.js";
import * as camera from "./asking/camera.js";
import { lookSoon, watch } from "./live.js";

// What the bundle brings; every other pipeline is the user's own.
const IMAGENET = "ensemble_python_resnet50", IMAGENET_CLASSES = 1000;
const TITLES = Object.assign({ [IMAGENET]: "ImageNet", video: "Video", cascade: "Cascade" }, ...Object.values(CARDS).map(each => each.titles));
const ICON = byId("icon").getAttribute("d");
const mediumOf = pipeline => cardOf(pipeline).medium;
const CANDIDATE = /_candidate$/;
const nameOf = model => CANDIDATE.test(model) ? `${nameOf(model.replace(CANDIDATE, ""))} (candidate)` : TITLES[model] ?? model.replace(/_ensemble$/, "").replaceAll("_", " ");
const MOST_LETTERS = 1_000_000; // of a text whose card says no `most`
const MOST_LOOKS = 5, LOOKS_MS = 700; // at what is served, for what has answered
const isOwn = pipeline => !(pipeline.of in TITLES);

let pipelines = [];
let models = []; // with those that this page cannot ask
let limits = { body_bytes: Infinity };
const chosen = () => pipelines.find(each => each.model === byId("pipeline").value);
const beside = () => pipelines.find(each => each.model === byId("beside").value);

// What is served

async function served() {
  const answer = await json("page/served.json");
  limits = answer.limits;
  TITLES[IMAGENET] = titleOfMain(answer.pipelines.find(each => each.model === IMAGENET));
  pipelines = answer.pipelines.filter(canAsk).map(each => ({ ...each, title: nameOf(each.of) }))
    .sort((one, other) => other.main - one.main || isOwn(other) - isOwn(one));
  models = [...new Set([...pipelines, ...answer.pipelines].filter(each => !each.candidate).map(each => each.model))];
  const kept = byId("pipeline").length ? null : new URLSearchParams(location.hash.slice(1));
  byId("pipeline").disabled = !pipelines.length;
  fill(byId("pipeline"), pipelines.filter(each => !each.candidate), kept?.get("pipeline") ?? byId("pipeline").value);
  offerBeside(byId("beside").value, kept?.get("beside"));
}

// Its network may be another than ImageNet's.
function titleOfMain(main) {
  if (!main?.classes.count || main.classes.count === IMAGENET_CLASSES) return "ImageNet";
  return isDrawn(main) ? "Drawings" : "Pictures";
}

// In the address, so that a reload and a link lead to what was chosen.
function keep(...names) {
  const entries = names.map(name => [name, byId(name).value]);
  history.replaceState(null, "", `#${new URLSearchParams(entries)}`);
}

function fill(select, list, value, first = []) {
  const options = [...first, ...list.map(each => new Option(
    [titleOf(each), marksOfChoice(each, list)].filter(Boolean).join(" "), each.model))];
  const described = list => JSON.stringify(list.map(each => [each.value, each.text]));
  // Not under the reader's hand, where nothing has changed.
  if (described([...select.options]) === described(options)) {
    if (options.some(each => each.value === value)) select.value = value;
    return;
  }
  select.replaceChildren(...options);
  if (options.some(each => each.value === value)) select.value = value;
}

function marksOfChoice(each, { length }) {
  const marks = [each.candidate ? "candidate" : each.main && length > 1 ? "main" : "", each.untrained ? "untrained" : ""];
  return marks.some(Boolean) ? `(${marks.filter(Boolean).join(", ")})` : "";
}

// A candidate is shown side by side as soon as there is one, unless something else is chosen by the
// address; another pipeline when it is chosen.
function offerBeside(value = "", kept = null) {
  const now = chosen();
  const others = now ? pipelines.filter(each => each !== now && mediumOf(each) === mediumOf(now)) : [];
  const candidate = others.find(each => each.candidate && each.of === now.model);
  const known = [...byId("beside").options].some(option => option.value === candidate?.model);
  fill(byId("beside"), others, kept ?? (candidate && !known ? candidate.model : value), [new Option("nothing", "")]);
  byId("beside-label").hidden = !others.length;
  askWith(mediumOf(now), cardOf(now).title);
  byId("classes").textContent = now ? [knownBy(now), calledInApi(now)].filter(Boolean).join(" · ") : "";
  // A candidate is named as such, unless the same is true of both.
  const warn = each => warningOf(each.candidate && warningOf(each) !== warningOf(now) ? { ...each, title: `the candidate of ${each.title}` } : each);
  const warnings = [...new Set([now, beside()].filter(Boolean).map(warn).filter(Boolean))];
  byId("untrained").hidden = !warnings.length;
  byId("untrained").textContent = warnings.join(" ");
}

function warningOf({ title, untrained, ...more }) {
  if (untrained) return `Untrained weights: the answers of ${title} mean nothing. The weights were never trained, or were trained for another task.`;
  if (!isDrawn(more)) return "";
  const [made, real] = cardOf(more).made;
  return `Trained on ${made} alone: the answers of ${title} show that everything works, not what is in a ${real}.`;
}

function knownBy({ classes: { count: classes, first } }) {
  return classes && `${classes.toLocaleString()} classes: ${first.map(plain).join(", ")}${classes > first.length ? " …" : ""}`;
}

const calledInApi = ({ title, model }) => title.toLowerCase().replaceAll(" ", "_") === model ? "" : `in the API: ${model}`;

function askWith(medium, question = medium.title) {
  byId("ask-title").textContent = question;
  const typed = Boolean(medium.example);
  byId("text").hidden = !typed;
  byId("files").hidden = typed;
  if (typed) {
    byId("words-say").textContent = medium.say;
    byId("words").placeholder = medium.example;
    byId("words").maxLength = medium.most ?? MOST_LETTERS;
    return;
  }
  byId("files").classList.toggle("pictures", medium === PICTURES);
  byId("icon").setAttribute("d", medium.icon ?? ICON);
  byId("drop-say").textContent = medium.say;
  byId("choose").textContent = medium.choose;
  byId("file").accept = medium.accept;
}

// Questions

// Of what is asked now; Clear ends it.
let asking = new AbortController();

// What is on the page: in cards, by their places, what was answered there last; and grids.
let singles = new Map(), grids = [];

// What was asked last, to be asked of another pipeline.
let last = null;

function askAll(questions) {
  if (!questions.length) return;
  begin();
  last = { questions, medium: mediumOf(chosen()) };
  const asked = [chosen(), beside()].filter(Boolean);
  if (questions.length >= MANY && last.medium === PICTURES) askMany(questions, asked);
  else byId("answers").prepend(...questions.map(each => askOne(each, asked, last.medium)));
  // On a telephone what is asked fills the screen.
  if (matchMedia("(max-width: 40rem)").matches) byId("answers-title").scrollIntoView();
}

const taken = () => [...[...singles.values()].filter(Boolean), ...grids.flatMap(each => each.answers())];

function begin() {
  document.querySelector("#answers > .empty")?.remove();
  byId("forget").hidden = false;
  say();
}

function askClip(file) {
  begin();
  const clip = new Clip(file, chosen()), pipeline = chosen(), { signal } = asking;
  byId("answers").prepend(clip.made);
  clip.watch(async picture => {
    const found = await answerOf(pipeline, { file: picture, signal }, limits.body_bytes);
    return { found, by: await answererOf(pipeline, found) };
  }, signal);
}

// A card with what each pipeline says.
function askOne(question, asked, medium) {
  const { made, columns } = card(question, medium);
  const places = asked.map(waiting);
  columns.append(...places);
  places.forEach(place => singles.set(place, null)); // in the order of the files
  const { signal } = asking;
  enqueue(made, async () => {
    // One after the other, so that neither slows the other down.
    const answers = [];
    for (const [number, pipeline] of asked.entries())
      if (!signal.aborted) answers.push(await showAnswer(places[number], pipeline, { ...question, signal }));
    if (answers.length < 2 || !answers.every(Boolean)) return;
    const alike = areAlike(asked, answers);
    if (alike !== null) count(alike);
    compared(places, asked, answers, alike);
  });
  return made;
}

async function showAnswer(place, pipeline, question) {
  const called = question.file?.name ?? question.name ?? "the text";
  const got = await getAnswer(pipeline, question);
  const { found, fault } = got;
  if (fault?.name === "AbortError") return null;
  showGot(place, pipeline, got, question);
  if (fault || found.labels) {
    singles.set(place, describe(question, pipeline, got));
    byId("saved").hidden = false;
  }
  byId("spoken").textContent = `${called}: ${fault ? fault.message : told(pipeline, found)}`;
  return found;
}

// The answer found and what gave it, or the fault for which there is none.
async function getAnswer(pipeline, question) {
  try {
    const found = await answerOf(pipeline, question, limits.body_bytes);
    return { found, by: await answererOf(pipeline, found) };
  } catch (fault) {
    return { fault };
  } finally {
    lookSoon();
  }
}

// Another version may be live since the pipeline was asked; the door tells so in a few seconds.
async function answererOf(pipeline, { timings }) {
  const gave = ({ steps }) => !timings?.spans.some(({ name, version }) => (steps[name] ?? version) !== version);
  const now = () => pipelines.find(each => each.model === pipeline.model) ?? pipeline;
  if (gave(pipeline)) return pipeline;
  for (let looks = 0; looks < MOST_LOOKS && !gave(now()); looks++) {
    if (looks) await new Promise(done => setTimeout(done, LOOKS_MS));
    await served().catch(() => {});
  }
  return now();
}

function showGot(place, pipeline, { found, fault, by }, question) {
  if (found) return answered(place, by, found, question);
  refused(place, pipeline, fault, () => {
    place.replaceChildren(...waiting(pipeline).children);
    showAnswer(place, pipeline, question);
  });
}

function askMany(questions, asked) {
  let stopped = new AbortController();
  const many = new Many(questions, asked, ask, stop);
  asking.signal.addEventListener("abort", stop, { once: true });
  byId("answers").prepend(many.made);
  grids.push(many);
  byId("saved").hidden = false;

  function stop() {
    withdraw(many.tiles.map(each => each.made));
    stopped.abort();
  }

  function ask(many, tiles) {
    stopped = new AbortController();
    tiles.forEach(tile => enqueue(tile.made, () => askTile(many, tile, asked, stopped.signal)));
  }
}

async function askTile(many, tile, asked, signal) {
  for (const pipeline of asked.filter(each => !tile.got.has(each))) {
    const got = await getAnswer(pipeline, { ...tile.question, signal });
    if (got.fault?.name === "AbortError") return;
    many.add(tile, pipeline, got, () => showWhole(tile, asked, many.least));
  }
  const answers = asked.map(each => tile.got.get(each).found).filter(Boolean);
  const alike = answers.length > 1 ? areAlike(asked, answers) : null;
  if (alike === null) return;
  count(alike);
  many.compare(alike);
}

// One of many, as a card over the page: what has been answered.
function showWhole({ question, got }, asked, least) {
  const { made, columns } = card(question, PICTURES);
  const pipelines = asked.filter(each => got.has(each)), places = pipelines.map(waiting);
  columns.append(...places);
  byId("whole-card").replaceChildren(made);
  pipelines.forEach((pipeline, at) => showGot(places[at], pipeline, got.get(pipeline), { ...question, least }));
  const answers = pipelines.map(each => got.get(each).found);
  if (answers.length > 1 && answers.every(Boolean)) compared(places, pipelines, answers, areAlike(pipelines, answers));
  byId("whole").showModal();
}

function say(...parts) {
  byId("note").replaceChildren(...parts);
}

// Whoever chooses another pipeline may mean the picture that is there.
function offerLast() {
  if (!last || last.medium !== mediumOf(chosen())) return say();
  const { questions } = last, [{ file, name }] = questions;
  const what = questions.length > 1 ? `these ${questions.length}` : file ? file.name || "the pasted picture" : name ?? "this text";
  say(button(() => askAll(questions), {}, `Ask ${chosen().title} about ${what}`));
}

async function given(files) {
  const medium = mediumOf(chosen());
  if (medium.files)
    askAll(await Promise.all(files.map(async file => ({ text: await file.text(), name: file.name }))));
  else if (medium.example) say(`${chosen().title} takes a text. For files, choose another pipeline.`);
  else if (chosen()) {
    const clips = medium === PICTURES ? files.filter(isClip) : [];
    clips.forEach(askClip);
    askAll(files.filter(each => !clips.includes(each)).map(file => ({ file })));
  }
}

async function dropped(transfer) {
  const address = transfer.getData("text/uri-list") || (/^https?:/.test(transfer.getData("text/plain")) && transfer.getData("text/plain"));
  let files;
  try {
    files = await filesOf(transfer);
  } catch {
    return say("The folder cannot be read.");
  }
  if (files.length) return given(files);
  if (address) return say("The server fetches nothing from other places: save the picture first, and drop the file.");
  if (transfer.items.length) say("There is no file in it.");
}

byId("files").addEventListener("click", event => {
  if (event.target.closest("button")?.id !== "choose" && event.target.closest("button, input")) return;
  byId("file").click();
});
byId("file").addEventListener("change", event => {
  given([...event.target.files]);
  event.target.value = "";
});
byId("text").addEventListener("submit", event => {
  event.preventDefault();
  const text = byId("words").value.trim(), { empty, name } = mediumOf(chosen());
  if (!text) return say(empty);
  askAll([{ text, name }]);
});
byId("words").addEventListener("input", ({ target: { value, maxLength } }) =>
  say(value.length < maxLength ? "" : `It ends after ${maxLength.toLocaleString()} letters, the most that are taken.`));
byId("words").addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("text").requestSubmit();
});
byId("forget").addEventListener("click", () => {
  asking.abort();
  asking = new AbortController();
  withdraw([...document.querySelectorAll("#answers > *")]);
  for (const seen of document.querySelectorAll("#answers :is(img, audio, video)")) URL.revokeObjectURL(seen.src);
  byId("answers").replaceChildren(element("p", { className: "empty" }, "Nothing asked yet."));
  byId("forget").hidden = byId("saved").hidden = true;
  last = null;
  singles = new Map();
  grids = [];
  say();
  forgetTally();
});
byId("whole-close").addEventListener("click", () => byId("whole").close());
byId("whole").addEventListener("pointerdown", ({ target, clientX: x, clientY: y }) => {
  const { left, right, top, bottom } = target.getBoundingClientRect();
  if (target === byId("whole") && (x < left || x > right || y < top || y > bottom)) target.close();
});
byId("pipeline").addEventListener("change", () => { offerBeside(); offerLast(); keep("pipeline"); lookSoon(); });
byId("beside").addEventListener("change", () => { offerBeside(byId("beside").value); keep("pipeline", "beside"); });
byId("key-change").addEventListener("click", () => askForKey());

// The address keeps what is chosen.
for (const link of document.querySelectorAll("a[href^='#']"))
  link.addEventListener("click", event => {
    event.preventDefault();
    const to = document.querySelector(link.hash);
    to.scrollIntoView();
    to.focus({ preventScroll: true });
  });

document.addEventListener("dragover", event => {
  event.preventDefault();
  byId("files").classList.add("over");
});
for (const name of ["dragleave", "dragend"])
  document.addEventListener(name, event => {
    if (!event.relatedTarget) byId("files").classList.remove("over");
  });
document.addEventListener("drop", event => {
  event.preventDefault();
  byId("files").classList.remove("over");
  dropped(event.dataTransfer);
});
document.addEventListener("paste", event => {
  if (!event.target.closest("textarea, input")) dropped(event.clipboardData);
});

// From the start on

byId("key-change").hidden = !hasKey();
byId("saved").append(...offerFiles(taken));
offer(given).catch(() => {});
camera.prepare(given, chosen, (pipeline, file) => answerOf(pipeline, { file }, limits.body_bytes)).catch(() => {});
for (let first = true; ; first = false) {
  try {
    await served();
  } catch (fault) {
    byId("health").className = "health bad";
    byId("health").textContent = fault.message;
  }
  if (first) watch(nameOf, () => models);
  await new Promise(done => setTimeout(done, 5000));
}
