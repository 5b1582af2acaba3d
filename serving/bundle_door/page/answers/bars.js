// A label with its probability as a bar.
import { element } from "../elements.js";

// The page warns of untrained weights once; and "__background__" is Pascal VOC's.
export const plain = label => (label ?? "").replace(/ \(untrained weights\)$/, "").replace(/^__background__$/, "background");

// Less likely than all else together.
export const isUnsure = each => each?.probability < 0.5;

const percent = share => share > 0 && share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`;

export function bar(each) {
  const fill = element("i");
  fill.style.width = `${100 * each.probability}%`;
  return element("li", { className: isUnsure(each) ? "unsure" : "" },
    element("span", { className: "name" }, plain(each.label) || `class ${each.index}`),
    element("span", { className: "share" }, percent(each.probability)),
    element("span", { className: "bar", "aria-hidden": "true" }, fill));
}
