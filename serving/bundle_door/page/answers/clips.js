// A video: pictures of it are asked about, one after the other, and a timeline shows their labels.
import { button, element } from "../elements.js";
import { labelOf } from "./bars.js";
import { answerersOf, marksOf, titleOf } from "./answers.js";
import { pictureOf } from "../asking/camera.js";
import { Refusal } from "../server.js";

// Pictures a second; of a long video, so many in all.
const A_SECOND = 2, MOST = 120;
// Labels with a line of their own.
const MOST_LINES = 6;

export const isClip = file => file.type.startsWith("video/");

export class Clip {
  constructor(file, pipeline) {
    this.file = file;
    this.seen = []; // {by, from, to, label, probability}
    this.head = element("h3", {}, ...named(pipeline));
    this.player = element("video", { controls: true, muted: true, playsInline: true, src: URL.createObjectURL(file), "aria-label": file.name });
    this.far = element("p", { className: "facts", role: "status" }, "reading …");
    this.lines = element("ol", { className: "timeline" });
    this.made = element("article", { className: "card wide clip", "aria-label": file.name },
      element("div", { className: "beside" }, element("div", { className: "stage" }, this.player),
        element("section", { className: "answer" }, this.head, this.far, this.lines)));
  }

  // Until the signal ends it.
  async watch(ask, signal) {
    const video = element("video", { muted: true, preload: "auto", src: this.player.src });
    try {
      const seconds = await lengthOf(video);
      const count = Math.max(1, Math.min(MOST, Math.ceil(seconds * A_SECOND)));
      for (let at = 0; at < count && !signal.aborted; at++) {
        await seek(video, (seconds * (at + 0.5)) / count);
        const { found, by } = await ask(await pictureOf(video, this.file.name), signal);
        const [best] = found.labels;
        this.seen.push({ by, from: (seconds * at) / count, to: (seconds * (at + 1)) / count, label: best ? labelOf(best) : "nothing found", probability: best?.probability ?? 0 });
        this.show(seconds, `${at + 1} of ${count} pictures`);
      }
    } catch (fault) {
      if (fault.name !== "AbortError") this.far.textContent = `${fault.message}. ${fault.remedy ?? ""}`;
    }
  }

  // A line per label, the most frequent first; on it, when it was seen.
  show(seconds, far) {
    this.head.replaceChildren(...answerersOf(this.seen).flatMap(by => [element("br"), ...named(by)]).slice(1));
    this.far.textContent = `${far} · ${clock(seconds)}`;
    const runs = [];
    for (const each of this.seen) {
      const last = runs.at(-1);
      if (last?.label === each.label) last.to = each.to;
      else runs.push({ ...each });
    }
    const spent = new Map();
    for (const { label, from, to } of runs) spent.set(label, (spent.get(label) ?? 0) + to - from);
    const names = [...spent].sort((one, other) => other[1] - one[1]).map(([name]) => name);
    this.lines.replaceChildren(...names.slice(0, MOST_LINES).map(name => this.line(name, runs.filter(each => each.label === name), seconds)));
    const rest = names.length - MOST_LINES;
    if (rest > 0) this.lines.append(element("li", { className: "facts" }, `and ${rest} more labels`));
  }

  line(name, runs, seconds) {
    const track = element("span", { className: "track" }, ...runs.map(({ from, to }) => {
      const words = `${name}, ${clock(from)} to ${clock(to)}`;
      const part = button(() => { this.player.currentTime = from; }, { title: words, "aria-label": words });
      part.style.left = `${(100 * from) / seconds}%`;
      part.style.width = `${(100 * (to - from)) / seconds}%`;
      return part;
    }));
    return element("li", {}, element("span", { className: "name" }, name), track);
  }
}

const named = by => [titleOf(by), " ", ...marksOf(by)];

const clock = seconds => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;

async function lengthOf(video) {
  await once(video, "loadeddata");
  if (!Number.isFinite(video.duration)) { // as of what a browser has recorded
    await seek(video, 1e7);
    await seek(video, 0);
  }
  return Number.isFinite(video.duration) ? video.duration : video.seekable.end(0);
}

function seek(video, seconds) {
  const there = once(video, "seeked");
  video.currentTime = seconds;
  return there;
}

const once = (video, event) => new Promise((done, failed) => {
  video.addEventListener(event, done, { once: true });
  video.addEventListener("error", () => failed(new Refusal("The browser cannot read this video", "Convert it to MP4 or WebM.")), { once: true });
});
