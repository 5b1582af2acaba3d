// Rows of numbers, as people paste them from a file or a spreadsheet; and a table of their answers.
import { element } from "../elements.js";
import { Refusal } from "../server.js";

const MISSING = ["", "na", "nan", "null", "none"];
// As spreadsheets write them: unless a comma is between cells, it may be the decimal point.
const BETWEEN = ["\t", ";", ","];

// As make ask reads them: a header says which column is which, if the model knows their names.
export function numbers(text, columns, width) {
  const between = BETWEEN.find(each => text.includes(each)) ?? ",";
  const lines = text.split(/\r?\n/).map((line, at) => ({ at: at + 1, cells: cellsOf(line, between) }))
    .filter(({ cells }) => cells.some(Boolean));
  let places = null;
  if (lines.length && !lines[0].cells.every(each => isNumber(each, between))) {
    const { cells: header } = lines.shift();
    if (columns.length) places = columns.map(name => placeOf(name, header, columns));
  }
  if (!lines.length) throw new Refusal("There are no rows", "Give one row per line.");
  return lines.map(({ at, cells }) => {
    if (places ? Math.max(...places) >= cells.length : cells.length !== width)
      throw new Refusal(`Line ${at}: ${cells.length} numbers`, `Give ${places?.length ?? width} in each line.`);
    return (places ? places.map(place => cells[place]) : cells).map(each => {
      if (!isNumber(each, between)) throw new Refusal(`Line ${at}: “${each}” is not a number`, "Give numbers alone.");
      return numberOf(each, between);
    });
  });
}

function placeOf(name, header, columns) {
  if (!header.includes(name)) throw new Refusal(`There is no column ${name}`, `The model's are: ${columns.join(", ")}`);
  return header.indexOf(name);
}

const cellsOf = (line, between) => line.split(between).map(cell => cell.trim().replace(/^"(.*)"$/, "$1").trim());
const numberOf = (cell, between) =>
  MISSING.includes(cell.toLowerCase()) ? NaN : Number(between === "," ? cell : cell.replace(",", "."));
const isNumber = (cell, between) => MISSING.includes(cell.toLowerCase()) || !Number.isNaN(numberOf(cell, between));

export function tabled({ names, rows }) {
  const heads = ["Row", ...names].map((name, place) => element("th", { scope: "col", className: place ? "n" : "" }, name));
  const body = rows.map((cells, at) => element("tr", {}, element("th", { scope: "row" }, String(at + 1)),
    ...cells.map(cell => element("td", { className: "n" }, cell))));
  return [element("div", { className: "scroll long", tabIndex: 0, role: "group", "aria-label": "Answers to the rows" },
    element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...body)))];
}
