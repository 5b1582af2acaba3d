// Many pictures at once: a grid of small ones with their labels, and how far it is.
import { button, byId, element } from "../elements.js";
import { amountOf, isUnsure, labelOf } from "./bars.js";
import { answerersOf, marksOf, titleOf } from "./answers.js";
import { cardOf } from "../cards.js";
import { describe } from "./export.js";
import { chosenLeast, least, noneOf } from "./filters.js";

// From so many on: each as a card of its own would be a page of 200 screens.
export const MANY = 9;
const MOST_COUNTED = 4;
// Of more, the grid scrolls by itself.
const MOST_WHOLE = 60;

export class Many {
  // `ask` asks about some of its tiles, until `stop`.
  constructor(questions, pipelines, ask, stop) {
    this.pipelines = pipelines;
    this.alike = [0, 0]; // of two versions: differs, same
    this.least = chosenLeast();
    this.tiles = questions.map(question => this.tile(question));
    this.far = element("p", { className: "far", role: "status" });
    this.counts = element("ul", { className: "facts" });
    this.faults = element("ul", { className: "faults" });
    this.stop = button(() => {
      stop();
      this.stopped = true;
      this.tiles.forEach(each => this.say(each));
      this.end("stopped");
    }, {}, "Stop");
    this.again = button(() => this.begin(ask), { className: "again" });
    this.grid = element("ul", { className: questions.length > MOST_WHOLE ? "grid long" : "grid", tabIndex: 0, "aria-label": "Answers" }, ...this.tiles.map(each => each.made));
    this.made = element("section", { className: "many" },
      element("div", { className: "many-head" }, this.far, this.stop), ...this.slider(), this.counts, this.faults,
      this.again, this.grid); // not where Stop is, lest a second click asks again
    this.begin(ask);
  }

  // From which score on it counts, in all of the pictures.
  slider() {
    if (!this.pipelines.some(each => cardOf(each).isScored)) return [];
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

  get refused() {
    return this.tiles.flatMap(each => [...each.got.values()]).filter(each => each.fault);
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
    tile.said.textContent = got.map((each, at) => each ? this.spoken(this.pipelines[at], each) : this.stopped ? "not asked" : "…").join(" · ");
    tile.said.classList.toggle("unsure", got.every((each, at) => each?.found && isUnsure(this.labelsOf(this.pipelines[at], each)[0])));
  }

  // In the order of the files, with those that have none.
  answers() {
    const none = { fault: { message: this.stopped ? "not asked" : "no answer yet" } };
    return this.tiles.flatMap(tile => this.pipelines.map(pipeline => {
      const got = tile.got.get(pipeline) ?? none;
      return describe(tile.question, pipeline, got, got.found && this.labelsOf(pipeline, got));
    }));
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
    const refused = this.refused.length;
    this.far.textContent = `${this.answered - refused} of ${all}${how ? "" : " answered"}${refused ? `, ${refused} not` : ""} · ${how || this.rate()}`;
    this.count();
    byId("spoken").textContent = `${[this.far, ...this.counts.children, ...this.faults.children].map(each => each.textContent).join(". ")}`;
  }

  // Which labels each version of a pipeline gave, the most frequent first.
  count() {
    const lines = this.pipelines.flatMap(pipeline => {
      const got = this.tiles.map(tile => tile.got.get(pipeline)).filter(each => each?.found);
      return (got.length ? answerersOf(got) : [pipeline]).map(by => [...marksOf(by),
        [titleOf(by), this.countOf(by, got.filter(each => each.by.version === by.version))].filter(Boolean).join(": ")]);
    });
    if (this.alike.some(Boolean)) lines.push([`same ${this.alike[1]}, differs ${this.alike[0]}`]);
    this.counts.replaceChildren(...lines.map(each => element("li", {}, ...each)));
    const faults = tallied(this.refused.map(each => each.fault.message));
    this.faults.replaceChildren(...faults.map(([message, count]) => element("li", {}, `${count} without an answer: ${message}`)));
  }

  countOf(pipeline, answers) {
    const sorted = tallied(answers.map(got => this.labelsOf(pipeline, got).slice(0, 1).map(labelOf)[0] ?? "nothing found"));
    const most = sorted.length > MOST_COUNTED + 1 ? MOST_COUNTED : sorted.length; // not "1 other" for one name
    const rest = sorted.slice(most).reduce((sum, [, count]) => sum + count, 0);
    return [...sorted.slice(0, most).map(([name, count]) => `${count} ${name}`), ...(rest ? [`${rest} others`] : [])].join(", ");
  }

  labelsOf(pipeline, { found: { labels } }) {
    return cardOf(pipeline).isScored ? labels.filter(each => each.probability >= this.least) : labels;
  }

  spoken(pipeline, got) {
    if (got.fault) return got.fault.message;
    const [best] = this.labelsOf(pipeline, got);
    if (best) return `${labelOf(best)} ${amountOf(best, "\u00a0%")}`;
    return this.least ? noneOf(this.least) : "nothing found";
  }
}

// How often each is there, the most frequent first.
function tallied(names) {
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].sort((one, other) => other[1] - one[1]);
}
