// Many pictures at once: a grid of small ones with their labels, how far it is, and all of it as a file.
import { byId, element } from "../elements.js";
import { plain } from "./bars.js";
import { marksOf, titleOf } from "./answers.js";
import { least, noneOf } from "./filters.js";

// From so many on: each as a card of its own would be a page of 200 screens.
export const MANY = 9;
const PLACES = ["left", "top", "right", "bottom"];
const MOST_COUNTED = 4;
// Of more, the grid scrolls by itself.
const MOST_WHOLE = 60;

export class Many {
  // `ask` asks about some of its tiles, until `stop`.
  constructor(questions, pipelines, ask, stop) {
    this.pipelines = pipelines;
    this.alike = [0, 0]; // of two versions: differs, same
    this.least = 0; // score of a box
    this.tiles = questions.map(question => this.tile(question));
    this.far = element("p", { className: "far", role: "status" });
    this.counts = element("ul", { className: "facts" });
    this.stop = button("Stop", () => {
      stop();
      this.stopped = true;
      this.tiles.forEach(each => this.say(each));
      this.end("stopped");
    });
    this.again = button("", () => this.begin(ask));
    this.again.className = "again";
    const exports = [["CSV", "text/csv", csv], ["JSON", "application/json", json]];
    this.files = exports.map(([name, type, write]) =>
      button(name, () => save(`${nameOf(pipelines)}.${name.toLowerCase()}`, type, write(this.answers()))));
    this.grid = element("ul", { className: questions.length > MOST_WHOLE ? "grid long" : "grid", tabIndex: 0, "aria-label": "Answers" }, ...this.tiles.map(each => each.made));
    this.made = element("section", { className: "many" },
      element("div", { className: "many-head" }, this.far, this.stop, ...this.files), ...this.slider(), this.counts,
      this.again, this.grid); // not where Stop is, lest a second click asks again
    this.begin(ask);
  }

  // Which boxes count, of all of the pictures.
  slider() {
    if (!this.pipelines.some(each => each.kind === "boxes")) return [];
    return [element("div", { className: "filters" }, least(this.least, score => {
      this.least = score;
      this.tiles.forEach(each => this.say(each));
      this.count();
    }))];
  }

  // Those that have not been asked, and those where to ask again may help.
  begin(ask) {
    const tiles = this.tiles.filter(each => this.lacks(each));
    for (const tile of tiles) {
      for (const [pipeline, { fault }] of tile.got) if (fault?.passing) tile.got.delete(pipeline);
      tile.said.classList.toggle("bad", [...tile.got.values()].some(each => each.fault));
    }
    this.stopped = false;
    this.stop.hidden = false;
    this.began = performance.now();
    this.before = this.answered;
    tiles.forEach(each => this.say(each));
    this.show();
    ask(this, tiles);
  }

  lacks(tile) {
    return tile.got.size < this.pipelines.length || [...tile.got.values()].some(each => each.fault?.passing);
  }

  get answered() {
    return this.tiles.reduce((sum, each) => sum + each.got.size, 0);
  }

  tile(question) {
    const picture = element("img", { alt: "", loading: "lazy", decoding: "async", src: URL.createObjectURL(question.file) });
    picture.addEventListener("error", () => picture.replaceWith(element("span", { className: "broken" }, "no picture")));
    const said = element("span", { className: "said" }, "…");
    const open = element("button", { type: "button", title: question.file.name },
      picture, element("span", { className: "file" }, question.file.name), said);
    return { question, got: new Map(), said, open, made: element("li", {}, open) };
  }

  compare(alike) {
    this.alike[Number(alike)] += 1;
    this.count();
  }

  // What one of the pipelines says of it, or why it says nothing; and what shows all of that.
  add(tile, pipeline, got, show) {
    tile.open.onclick = () => show(tile);
    tile.got.set(pipeline, got);
    if (got.fault) tile.said.classList.add("bad");
    this.say(tile);
    this.show();
  }

  say(tile) {
    const got = this.pipelines.map(pipeline => tile.got.get(pipeline));
    tile.said.textContent = got.map(each => each ? this.spoken(each) : this.stopped ? "not asked" : "…").join(" · ");
  }

  // In the order of the files, with those that have none.
  answers() {
    return this.tiles.flatMap(tile => this.pipelines.map(pipeline => ({
      file: tile.question.file.name, pipeline: pipeline.title, model: pipeline.model, version: pipeline.version,
      ...(tile.got.has(pipeline) ? this.written(tile.got.get(pipeline)) : { error: this.stopped ? "not asked" : "no answer yet" }),
    })));
  }

  show() {
    const all = this.tiles.length * this.pipelines.length, done = this.answered;
    if (done === all) return this.end("");
    this.again.hidden = true;
    this.far.textContent = `${done} of ${all}${done > this.before ? ` · ${this.rate()}` : ""}`;
    this.count();
  }

  rate() {
    return `${((this.answered - this.before) / ((performance.now() - this.began) / 1000)).toFixed(1)}/s`;
  }

  end(how) {
    if (document.activeElement === this.stop) this.grid.focus({ preventScroll: true });
    this.stop.hidden = true;
    const lacking = this.tiles.filter(each => this.lacks(each)).length;
    this.again.hidden = !lacking;
    this.again.textContent = lacking < this.tiles.length ? `Ask the other ${lacking}` : "Ask again";
    const all = this.tiles.length * this.pipelines.length;
    this.far.textContent = `${this.answered} of ${all} · ${how || this.rate()}`;
    this.count();
    byId("spoken").textContent = `${[this.far, ...this.counts.children].map(each => each.textContent).join(". ")}`;
  }

  // Which labels each pipeline gave, the most frequent first.
  count() {
    const lines = this.pipelines.map(pipeline =>
      [...marksOf(pipeline), [titleOf(pipeline), this.countOf(pipeline)].filter(Boolean).join(": ")]);
    if (this.alike.some(Boolean)) lines.push([`same ${this.alike[1]}, differs ${this.alike[0]}`]);
    this.counts.replaceChildren(...lines.map(each => element("li", {}, ...each)));
  }

  countOf(pipeline) {
    const counts = new Map();
    for (const tile of this.tiles) {
      const got = tile.got.get(pipeline);
      if (!got) continue;
      const [best] = got.fault ? [] : this.labelsOf(got);
      const name = got.fault ? `“${got.fault.message}”` : best ? plain(best.label) : "nothing found";
      counts.set(name, (counts.get(name) ?? 0) + 1);
    }
    const sorted = [...counts].sort((one, other) => other[1] - one[1]);
    const rest = sorted.slice(MOST_COUNTED).reduce((sum, [, count]) => sum + count, 0);
    return [...sorted.slice(0, MOST_COUNTED).map(([name, count]) => `${count} ${name}`),
      ...(rest ? [`${rest} ${rest === 1 ? "other" : "others"}`] : [])].join(", ");
  }

  labelsOf({ found: { boxes, areas, labels } }) {
    return boxes?.filter(each => each.probability >= this.least) ?? areas ?? labels;
  }

  spoken(got) {
    if (got.fault) return got.fault.message;
    const [best] = this.labelsOf(got);
    if (best) return `${plain(best.label)} ${(100 * best.probability).toFixed(0)}\u00a0%`;
    return this.least ? noneOf(this.least) : "nothing found";
  }

  // What is shown; of a box its corners, of an area its share of the picture.
  written(got) {
    if (got.fault) return { error: got.fault.message };
    const labels = this.labelsOf(got).map(({ label, probability, index, share, ...where }) => ({
      label: plain(label), probability, index, share,
      box: got.found.boxes && Object.fromEntries(PLACES.map(each => [each, where[each]])),
    }));
    return { labels, ms: Number(got.found.browser_ms.toFixed(1)) };
  }
}


function button(name, act) {
  const made = element("button", { type: "button" }, name);
  made.addEventListener("click", act);
  return made;
}

// Of what answered, so that files of several pipelines lie beside one another.
const nameOf = pipelines => ["answers", ...new Set(pipelines.map(each => each.title.toLowerCase().replace(/[^\w-]+/g, "_")))].join("-");

const json = answers => `${JSON.stringify(answers, null, 1)}\n`;

// With the mark by which spreadsheets know UTF-8.
function csv(answers) {
  const lines = answers.flatMap(({ file, pipeline, model, version, labels = [], error = "", ms = "" }) => !labels.length
    ? [[file, pipeline, model, version, "", "", "", error, "", ms, "", "", "", "", ""]]
    : labels.map(({ label, probability, index = "", share = "", box }, at) =>
      [file, pipeline, model, version, at + 1, label, probability, "", index, ms, share, ...PLACES.map(each => box?.[each] ?? "")]));
  return "\ufeff" + [["file", "pipeline", "model", "version", "rank", "label", "probability", "error", "class", "ms", "share", ...PLACES], ...lines].map(line => `${line.map(cell).join(",")}\n`).join("");
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
