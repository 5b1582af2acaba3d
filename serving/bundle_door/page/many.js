// Many pictures at once: a grid of small ones with their labels, how far it is, and all of it as a file.
import { byId, element } from "./elements.js";
import { plain } from "./bars.js";

// From so many on: each as a card of its own would be a page of 200 screens.
export const MANY = 9;
const MOST_COUNTED = 4;

export class Many {
  constructor(questions, pipelines, stop) {
    this.began = performance.now();
    this.pipelines = pipelines;
    this.results = new Map();
    this.alike = [0, 0]; // of two pipelines: differs, same
    this.tiles = questions.map(question => this.tile(question));
    this.far = element("p", { className: "far", role: "status" });
    this.counts = element("p", { className: "facts" });
    this.stop = button("Stop", () => { stop(); this.end("stopped"); });
    const exports = [["CSV", "text/csv", csv], ["JSON", "application/json", json]];
    this.files = exports.map(([name, type, write]) =>
      button(name, () => save(`answers.${name.toLowerCase()}`, type, write([...this.results.values()]))));
    this.grid = element("ul", { className: "grid", tabIndex: 0, "aria-label": "Answers" }, ...this.tiles.map(each => each.made));
    this.made = element("section", { className: "many" },
      element("div", { className: "many-head" }, this.far, this.stop, ...this.files), this.counts, this.grid);
    this.show();
  }

  tile(question) {
    const picture = element("img", { alt: "", loading: "lazy", decoding: "async", src: URL.createObjectURL(question.file) });
    picture.addEventListener("error", () => picture.replaceWith(element("span", { className: "broken" }, "no picture")));
    const said = element("span", { className: "said" }, "…");
    const open = element("button", { type: "button", title: question.file.name, "aria-label": question.file.name }, picture, said);
    return { question, said, open, made: element("li", {}, open) };
  }

  compare(alike) {
    this.alike[Number(alike)] += 1;
    this.count();
  }

  // What one of the pipelines says of it, or why it says nothing.
  add(tile, pipeline, { found, fault }, show) {
    const labels = found?.boxes ?? found?.areas ?? found?.labels ?? [];
    const [best] = labels;
    tile.open.onclick = () => show(tile.question);
    const { name } = tile.question.file;
    this.results.set(`${this.tiles.indexOf(tile)} ${pipeline.model}`, {
      file: name, model: pipeline.model, version: pipeline.version,
      ...(fault ? { error: fault.message } : { labels: labels.map(each => ({ label: plain(each.label), probability: each.probability })) }),
    });
    const said = fault ? "refused" : best ? `${plain(best.label)} ${(100 * best.probability).toFixed(0)} %` : "nothing found";
    tile.said.classList.toggle("bad", Boolean(fault));
    tile.said.textContent = tile.said.textContent === "…" ? said : `${tile.said.textContent} · ${said}`;
    tile.open.setAttribute("aria-label", `${name}: ${tile.said.textContent}`);
    this.show();
  }

  show() {
    const all = this.tiles.length * this.pipelines.length, done = this.results.size;
    if (done === all) return this.end("");
    const rate = done / ((performance.now() - this.began) / 1000);
    this.far.textContent = `${done} of ${all}${done ? ` · ${rate.toFixed(1)}/s` : ""}`;
    this.count();
  }

  end(how) {
    this.stop.hidden = true;
    const seconds = (performance.now() - this.began) / 1000;
    const all = this.tiles.length * this.pipelines.length;
    this.far.textContent = [`${this.results.size} of ${all}`, how || `${(all / seconds).toFixed(1)}/s`].join(" · ");
    this.count();
    byId("spoken").textContent = `${this.far.textContent}. ${this.counts.textContent}`;
  }

  // Which labels there are, the most frequent first.
  count() {
    const counts = new Map();
    for (const { labels, error } of this.results.values()) {
      const name = error ? "refused" : labels[0]?.label ?? "nothing found";
      counts.set(name, (counts.get(name) ?? 0) + 1);
    }
    const sorted = [...counts].sort((one, other) => other[1] - one[1]);
    const rest = sorted.slice(MOST_COUNTED).reduce((sum, [, count]) => sum + count, 0);
    this.counts.textContent = [...sorted.slice(0, MOST_COUNTED).map(([name, count]) => `${count} ${name}`),
      ...(rest ? [`${rest} others`] : [])].join(", ")
      + (this.alike.some(Boolean) ? ` · same ${this.alike[1]}, differs ${this.alike[0]}` : "");
  }
}

function button(name, act) {
  const made = element("button", { type: "button" }, name);
  made.addEventListener("click", act);
  return made;
}

const json = results => `${JSON.stringify(results, null, 1)}\n`;

function csv(results) {
  const lines = results.flatMap(({ file, model, version, labels, error }) => error
    ? [[file, model, version, "", "", error]]
    : labels.map(({ label, probability }) => [file, model, version, label, probability, ""]));
  return [["file", "model", "version", "label", "probability", "error"], ...lines].map(line => `${line.map(cell).join(",")}\n`).join("");
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
