// The page: what is served, a question, its answers; and how the server is doing.
import { byId, element } from "./elements.js";
import { askForKey, hasKey, json } from "./server.js";
import { answerOf, canAsk } from "./questions.js";
import { answered, card, refused, titleOf, waiting } from "./answers.js";
import { told } from "./boxes.js";
import * as camera from "./camera.js";
import { watch } from "./live.js";

// Pictures that are on their way at the same time.
const AT_ONCE = 4;
const TITLES = {
  ensemble_python_resnet50: "ImageNet", places_ensemble: "Places",
  cascade: "Cascade", detection: "Detection", segmentation: "Segmentation", sounds: "Sounds", sentiment_ensemble: "Sentiment",
};
// What people ask with, by the pipeline's kind; all others take pictures.
const PICTURES = { title: "What is on your picture?", say: "Drop pictures here, or paste one", choose: "Choose pictures", accept: "image/*" };
const MEDIA = {
  text: { title: "How is your text meant?", say: "A text", example: "What a day!", most: 20_000 },
  rows: { title: "What do your rows stand for?", say: "Rows of numbers as CSV, with a header or without; or drop a file", example: "0.5, -1, 1.5", most: 5_000_000 },
  sounds: { title: "What is your sound of?", say: "Drop WAV files here", choose: "Choose sounds", accept: ".wav,audio/wav" },
};
const mediumOf = pipeline => MEDIA[pipeline?.kind] ?? PICTURES;
const CANDIDATE = /_candidate$/;
const nameOf = model => CANDIDATE.test(model) ? `${nameOf(model.replace(CANDIDATE, ""))} (candidate)` : TITLES[model] ?? model.replace(/_ensemble$/, "").replaceAll("_", " ");

let pipelines = [];
const chosen = () => pipelines.find(each => each.model === byId("pipeline").value);
const beside = () => pipelines.find(each => each.model === byId("beside").value);

// What is served

async function served() {
  const answer = await json("page/served.json");
  pipelines = answer.pipelines.filter(canAsk).map(each => ({ ...each, title: nameOf(each.of) }));
  const before = [byId("pipeline").value, byId("beside").value];
  byId("pipeline").disabled = !pipelines.length;
  fill(byId("pipeline"), pipelines.filter(each => !each.candidate), before[0]);
  offerBeside(before[1]);
}

function fill(select, list, value, first = []) {
  const options = [...first, ...list.map(each => new Option(
    each.candidate ? `${titleOf(each)} (candidate)` : titleOf(each), each.model))];
  const described = list => JSON.stringify(list.map(each => [each.value, each.text]));
  // Not under the reader's hand, where nothing has changed.
  if (described([...select.options]) === described(options)) {
    if (options.some(each => each.value === value)) select.value = value;
    return;
  }
  select.replaceChildren(...options);
  if (options.some(each => each.value === value)) select.value = value;
}

// A candidate is shown side by side as soon as there is one; another pipeline when it is chosen.
function offerBeside(value = "") {
  const now = chosen();
  const others = now ? pipelines.filter(each => each !== now && mediumOf(each) === mediumOf(now)) : [];
  const candidate = others.find(each => each.candidate && each.of === now.model);
  const known = [...byId("beside").options].some(option => option.value === candidate?.model);
  fill(byId("beside"), others, candidate && !known ? candidate.model : value, [new Option("nothing", "")]);
  byId("beside-label").hidden = !others.length;
  askWith(mediumOf(now));
  const untrained = [now, beside()].filter(each => each?.untrained).map(each => each.title);
  byId("untrained").hidden = !untrained.length;
  byId("untrained").textContent =
    `Untrained weights: the answers of ${untrained.join(" and ")} mean nothing. It was started with WEIGHTS=random.`;
}

function askWith(medium) {
  byId("ask-title").textContent = medium.title;
  const typed = Boolean(medium.example);
  byId("text").hidden = !typed;
  byId("files").hidden = typed;
  if (typed) {
    byId("words-say").textContent = medium.say;
    byId("words").placeholder = medium.example;
    byId("words").maxLength = medium.most;
    return;
  }
  byId("files").classList.toggle("sounds", medium === MEDIA.sounds);
  byId("drop-say").textContent = medium.say;
  byId("choose").textContent = medium.choose;
  byId("file").accept = medium.accept;
}

// Questions

const queue = [];
let running = 0;

function askAll(questions) {
  document.querySelector("#answers > .empty")?.remove();
  byId("forget").hidden = false;
  for (const question of questions) {
    const asked = [chosen(), beside()].filter(Boolean);
    const { made, columns } = card(question, mediumOf(chosen()) === MEDIA.sounds);
    const places = asked.map(waiting);
    columns.append(...places);
    byId("answers").prepend(made);
    queue.push(async () => {
      // One after the other, so that neither slows the other down.
      for (const [number, pipeline] of asked.entries()) await askOne(places[number], pipeline, question);
    });
  }
  work();
}

async function work() {
  while (running < AT_ONCE && queue.length) {
    running += 1;
    queue.shift()().finally(() => { running -= 1; work(); });
  }
}

async function askOne(place, pipeline, question) {
  const called = question.file?.name ?? question.name ?? "the text";
  try {
    const found = await answerOf(pipeline, question);
    answered(place, pipeline, found, question);
    const said = found.table ? `${found.table.rows.length} answers` : told(found.boxes ?? found.areas ?? found.labels.slice(0, 1));
    byId("spoken").textContent = `${called}: ${said}`;
  } catch (fault) {
    refused(place, pipeline, fault);
    byId("spoken").textContent = `${called}: ${fault.message}`;
  }
}

async function given(files) {
  if (chosen()?.kind === "rows")
    askAll(await Promise.all([...files].map(async file => ({ text: await file.text(), name: file.name }))));
  else if (chosen() && chosen().kind !== "text") askAll([...files].map(file => ({ file })));
}

byId("choose").addEventListener("click", () => byId("file").click());
byId("file").addEventListener("change", event => {
  given(event.target.files);
  event.target.value = "";
});
byId("text").addEventListener("submit", event => {
  event.preventDefault();
  const text = byId("words").value.trim();
  if (text) askAll([chosen().kind === "rows" ? { text, name: "the rows" } : { text }]);
});
byId("forget").addEventListener("click", () => {
  for (const seen of document.querySelectorAll("#answers :is(img, audio)")) URL.revokeObjectURL(seen.src);
  byId("answers").replaceChildren(element("p", { className: "empty" }, "Nothing asked yet."));
  byId("forget").hidden = true;
});
byId("pipeline").addEventListener("change", () => offerBeside());
byId("beside").addEventListener("change", () => offerBeside(byId("beside").value));
byId("key-change").addEventListener("click", () => askForKey());

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
  if (event.dataTransfer.files.length) given(event.dataTransfer.files);
});
document.addEventListener("paste", event => {
  if (event.clipboardData.files.length) given(event.clipboardData.files);
});

// From the start on

byId("key-change").hidden = !hasKey();
camera.prepare(given).catch(() => {});
for (let first = true; ; first = false) {
  try {
    await served();
  } catch (fault) {
    byId("health").className = "health bad";
    byId("health").textContent = fault.message;
  }
  if (first) watch(nameOf);
  await new Promise(done => setTimeout(done, 5000));
}
