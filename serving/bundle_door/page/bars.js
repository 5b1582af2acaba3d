// A label with its probability as a bar.
import { element } from "./elements.js";

export function bar(each) {
  const fill = element("i");
  fill.style.width = `${100 * each.probability}%`;
  return element("li", {},
    element("span", { className: "name" }, each.label || `class ${each.index}`),
    element("span", { className: "share" }, `${(100 * each.probability).toFixed(1)} %`),
    element("span", { className: "bar", "aria-hidden": "true" }, fill));
}
