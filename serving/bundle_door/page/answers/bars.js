// A label with its probability as a bar.
import { element } from "../elements.js";

// The page warns of untrained weights once; and "__background__" is Pascal VOC's.
export const plain = label => (label ?? "").replace(/ \(untrained weights\)$/, "").replace(/^__background__$/, "background");

// Less likely than all else together.
export const isUnsure = each => each?.probability < 0.5;

const percent = share => share > 0 && share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`;

// What a model gives without classes may be any number, and is shown as it is.
const isShare = each => each.probability >= 0 && each.probability <= 1;
export const labelOf = each => plain(each.label) || `${isShare(each) ? "class" : "value"} ${each.index}`;
export const amountOf = (each, sign) => isShare(each) ? `${(100 * each.probability).toFixed(0)}${sign}` : String(each.probability);

export function bar(each) {
  const fill = element("i");
  fill.style.width = `${100 * each.probability}%`;
  return element("li", { className: isUnsure(each) ? "unsure" : "" },
    element("span", { className: "name" }, labelOf(each)),
    element("span", { className: "share" }, isShare(each) ? percent(each.probability) : String(each.probability)),
    ...(isShare(each) ? [element("span", { className: "bar", "aria-hidden": "true" }, fill)] : []));
}
