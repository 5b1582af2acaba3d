// What each pixel belongs to: the picture with its classes coloured, and what the colours mean.
import { element } from "./elements.js";
import { bar } from "./bars.js";

// What belongs to no class stays as it is.
const NOTHING = /^__background__/;

export function coloured({ mask, areas }, file) {
  const picture = element("img", { alt: "", src: URL.createObjectURL(file) });
  const list = element("ol", { className: "labels" }, ...areas.map(listed));
  return [element("div", { className: "scene", "aria-hidden": "true" }, picture, over(mask, areas)), list];
}

// Apart from those of the classes before and after it: by the golden angle.
const colourOf = each => NOTHING.test(each.label) ? "transparent" : `hsl(${(each.index * 137.508) % 360} 85% ${each.index % 2 ? 50 : 35}%)`;

function over({ width, height, classes }, areas) {
  const canvas = element("canvas", { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const colours = new Map(areas.map(each => [each.index, levels(context, colourOf(each))]));
  const image = context.createImageData(width, height);
  for (const [place, index] of classes.entries()) image.data.set(colours.get(index), 4 * place);
  context.putImageData(image, 0, 0);
  return canvas;
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
