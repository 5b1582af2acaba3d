// What is where: the picture with its boxes, and the same as a list. Both number them alike; whoever
// points at one, or reaches it with the keyboard, sees the other.
import { bar, plain } from "../answers/bars.js";
import { chips, chosenLeast, least, noneOf } from "../answers/filters.js";
import { CARDS } from "../cards.js";
import { element } from "../elements.js";

CARDS.boxes = {
  titles: { detection: "Detection" }, title: "What's where in your picture?",
  found: ["boxes", "label", "score", "left", "top", "right", "bottom"],
  show: ({ labels }, { file, least }) => drawn(labels, file, least), over: frames,
  isScene: true, isScored: true, after: "Boxes",
};

// White text is legible on each.
const COLOURS = ["#0f766e", "#b3261e", "#1d4ed8", "#8a4b00", "#7c3aed", "#be185d", "#3f6212", "#334155"];

// Of more, the names would hide the picture: numbers stand for them.
const MOST_NAMES = 6;

// Rows of the list, until all are wanted.
const MOST_ROWS = 10;

// `from`: the least score at first.
function drawn(boxes, file, from = chosenLeast()) {
  if (!boxes.length) return [element("p", { className: "empty" }, "Nothing found.")];
  const picture = element("img", { alt: "", src: URL.createObjectURL(file) });
  const scene = element("div", { className: boxes.length > MOST_NAMES ? "scene crowded" : "scene", "aria-hidden": "true" }, picture);
  const colours = coloursOf(boxes);
  const list = element("ol", { className: "labels found" });
  const pairs = boxes.map((each, number) => {
    const frame = framed(number + 1, each, colours.get(each.label));
    const entry = listed(number + 1, each, colours.get(each.label));
    const both = on => [frame, entry].forEach(one => one.classList.toggle("pointed", on));
    for (const [event, on] of [["pointerenter", true], ["pointerleave", false], ["focusin", true], ["focusout", false]])
      for (const one of [frame, entry]) one.addEventListener(event, () => both(on));
    list.append(entry);
    return { each, frame, entry };
  });
  scene.append(...pairs.map(each => each.frame).reverse()); // the best on top
  // Corners are in the picture's own pixels, which are known once it is there.
  picture.addEventListener("load", () => {
    for (const { each, frame } of pairs) place(frame, each, picture.naturalWidth, picture.naturalHeight);
  });
  const all = element("button", { type: "button" });
  const none = element("p", { className: "empty", role: "status" });
  return [filters(pairs, colours, all, none, from), element("div", { className: "beside" }, scene, element("div", {}, none, list, all))];
}

function filters(pairs, colours, all, none, from) {
  const lowest = Math.floor(100 * Math.min(...pairs.map(({ each }) => each.probability))) / 100;
  let score = Math.max(lowest, from), off = new Set(), most = MOST_ROWS;
  const show = () => {
    let count = 0;
    for (const { each, frame, entry } of pairs) {
      frame.hidden = each.probability < score || off.has(each.label);
      if (!frame.hidden) count += 1;
      entry.hidden = frame.hidden || count > most;
    }
    none.textContent = count ? "" : pairs.some(({ each }) => each.probability >= score) ? "All of its classes are switched off." : `${noneOf(score)}.`;
    all.hidden = count <= most;
    all.textContent = `Show all ${count}`;
  };
  all.addEventListener("click", () => {
    const next = pairs.find(({ frame, entry }) => entry.hidden && !frame.hidden);
    most = Infinity;
    show();
    next.entry.focus(); // as the button is gone
  });
  show();
  const count = name => pairs.filter(({ each }) => each.label === name && each.probability >= score).length;
  const classes = chips([...colours], name => count(name) ? `${plain(name)} ${count(name)}` : "", found => { off = found; show(); });
  return element("div", { className: "filters" }, least(score, value => { score = value; show(); classes.write(); }), classes.group);
}

// The boxes alone, over what shows a picture of that size.
function frames(boxes, width, height) {
  const colours = coloursOf(boxes);
  return boxes.map((each, number) => {
    const frame = framed(number + 1, each, colours.get(each.label));
    place(frame, each, width, height);
    return frame;
  }).reverse();
}

function coloursOf(boxes) {
  const names = [...new Set(boxes.map(each => each.label))];
  return new Map(names.map((name, at) => [name, COLOURS[at % COLOURS.length]]));
}

function framed(number, each, colour) {
  const name = element("span", {}, String(number), element("b", {}, ` ${plain(each.label)}`));
  const frame = element("div", { className: "frame" }, name);
  frame.style.borderColor = name.style.background = colour;
  return frame;
}

function place(frame, each, width, height) {
  frame.style.left = `${(100 * each.left) / width}%`;
  frame.style.top = `${(100 * each.top) / height}%`;
  frame.style.width = `${(100 * (each.right - each.left)) / width}%`;
  frame.style.height = `${(100 * (each.bottom - each.top)) / height}%`;
}

function listed(number, each, colour) {
  const entry = bar(each);
  const mark = element("i", { className: "mark", "aria-hidden": "true" }, String(number));
  mark.style.background = colour;
  const [left, top, right, bottom] = [each.left, each.top, each.right, each.bottom].map(Math.round);
  entry.querySelector(".name").prepend(mark);
  entry.append(element("span", { className: "where-it-is" },
    `left ${left}, top ${top}, right ${right}, bottom ${bottom}`));
  entry.tabIndex = 0;
  return entry;
}
