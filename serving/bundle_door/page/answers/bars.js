// A label with its probability as a bar.
import { element } from "../elements.js";

// The page warns of untrained weights once; and "__background__" is Pascal VOC's.
export const plain = label => (label ?? "").replace(/ \(untrained weights\)$/, "").replace(/^__background__$/, "background");

export function bar(each) {
  const fill = element("i");
  fill.style.width = `${100 * each.probability}%`;
  return element("li", {},
    element("span", { className: "name" }, plain(each.label) || `class ${each.index}`),
    element("span", { className: "share" }, `${(100 * each.probability).toFixed(1)} %`),
    element("span", { className: "bar", "aria-hidden": "true" }, fill));
}
