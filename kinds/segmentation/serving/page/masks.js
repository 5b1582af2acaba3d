// What each pixel belongs to: the picture with its classes coloured, and what the colours mean.
import { bar, plain } from "../answers/bars.js";
import { chips } from "../answers/filters.js";
import { CARDS } from "../cards.js";
import { element } from "../elements.js";

CARDS.masks = {
  titles: { segmentation: "Segmentation" }, title: "What's each part of your picture?",
  found: ["areas", "label", "share"], query: { mask: 1 },
  show: (found, { file }) => coloured(found, file),
  isScene: true, after: "Areas",
};

// What belongs to no class stays as it is.
const NOTHING = /^__background__/;

function coloured({ mask, labels: areas }, file) {
  const picture = element("img", { alt: "", src: URL.createObjectURL(file) });
  const list = element("ol", { className: "labels" }, ...areas.map(listed));
  const canvas = element("canvas", { width: mask.width, height: mask.height });
  const classes = inflated(mask.classes);
  const show = async off => paint(canvas, await classes, areas, off);
  show(new Set());
  const named = areas.filter(each => !NOTHING.test(each.label));
  const filter = element("div", { className: "filters" },
    chips(named.map(each => [each.index, colourOf(each)]),
      index => plain(named.find(each => each.index === index).label), show).group);
  return [...(named.length ? [filter] : []), element("div", { className: "beside" },
    element("div", { className: "scene", "aria-hidden": "true" }, picture, canvas), element("div", {}, list))];
}

// Apart from those of the classes before and after it: by the golden angle.
const colourOf = each => NOTHING.test(each.label) ? "transparent" : `hsl(${(each.index * 137.508) % 360} 85% ${each.index % 2 ? 50 : 35}%)`;

async function inflated(text) {
  const packed = new Blob([Uint8Array.from(atob(text), each => each.charCodeAt(0))]);
  return new Response(packed.stream().pipeThrough(new DecompressionStream("deflate"))).bytes();
}

function paint(canvas, classes, areas, off) {
  const { width, height } = canvas;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const colours = new Map(areas.map(each => [each.index, levels(context, off.has(each.index) ? "transparent" : colourOf(each))]));
  const image = context.createImageData(width, height);
  for (const [place, index] of classes.entries()) image.data.set(colours.get(index), 4 * place);
  context.putImageData(image, 0, 0);
}

function levels(context, colour) {
  context.clearRect(0, 0, 1, 1);
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return context.getImageData(0, 0, 1, 1).data;
}

function listed(each) {
  const entry = bar(each);
  const mark = element("i", { className: "mark", "aria-hidden": "true" }, "\u00a0");
  mark.style.background = colourOf(each);
  entry.querySelector(".name").prepend(mark);
  return entry;
}
