// How often two versions said the same, of all that was asked of both.
import { byId } from "../elements.js";

let same = 0, asked = 0;

// Whether they say the same; null of answers that never could, as their classes are others.
export function areAlike(pipelines, answers) {
  const [one, other] = pipelines;
  return one.of === other.of || sameClasses(one.classes, other.classes) ? best(answers[0]) === best(answers[1]) : null;
}

const sameClasses = (one, other) => one.count > 0 && JSON.stringify(one) === JSON.stringify(other);

export function count(alike) {
  asked += 1;
  same += alike;
  show();
}

export function forget() {
  same = asked = 0;
  show();
}

function show() {
  byId("tally").textContent = asked ? `same ${same} · differs ${asked - same}` : "";
}

// What an answer says first; of boxes and areas, all of their names.
function best({ labels, boxes, areas, table }) {
  if (labels) return labels[0].label;
  if (table) return JSON.stringify(table.rows.map(row => row[0]));
  return [...new Set((boxes ?? areas).map(each => each.label))].sort().join();
}
