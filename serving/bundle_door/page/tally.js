// How often two pipelines said the same, of all that was asked of both.
import { byId } from "./elements.js";

let same = 0, asked = 0;

export function compare(one, other) {
  const alike = best(one) === best(other);
  asked += 1;
  same += alike;
  show();
  return alike;
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
