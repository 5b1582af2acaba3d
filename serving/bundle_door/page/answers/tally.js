// How often two versions said the same, of all that was asked of both.
import { saidFirst } from "./answers.js";
import { byId } from "../elements.js";

let same = 0, asked = 0;

// Whether they say the same; null of answers that never could, as their classes are others.
export function areAlike(pipelines, answers) {
  const [one, other] = pipelines;
  return one.of === other.of || sameClasses(one.classes, other.classes) ? gistOf(one, answers[0]) === gistOf(other, answers[1]) : null;
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

const gistOf = (pipeline, found) => found.gist
  ?? [...new Set(saidFirst(pipeline, found).map(each => each.label))].sort().join();
