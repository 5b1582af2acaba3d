// Rows of numbers, as people paste them from a file or a spreadsheet; and a table of their answers.
import { programs, quoted } from "../answers/snippets.js";
import { infer, readLabel } from "../asking/questions.js";
import { CARDS } from "../cards.js";
import { element } from "../elements.js";
import { json, Refusal } from "../server.js";

CARDS.rows = {
  medium: {
    title: "What do your rows say?", say: "Rows of numbers as CSV, with a header or without; or drop a file",
    example: "0.5, -1, 1.5", most: 5_000_000, empty: "Type a row first.", name: "the rows", files: true,
  },
  ask, show: tabled,
  programs: ({ model }, question, { example } = {}) => example ? ofRows(model, example) : {},
};

const MISSING = ["", "na", "nan", "null", "none"];
// As spreadsheets write them: unless a comma is between cells, it may be the decimal point.
const BETWEEN = ["\t", ";", ","];
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i; // Number takes 0x1F and Infinity, too
const DECIMAL = /^[+-]?\d*,\d+$/, EITHER = /^[+-]?[1-9]\d{0,2},\d{3}$/; // in 52,500 it may also be between thousands

async function ask(pipeline, { text, signal }) {
  const { input: [input], output: [output], parameters, max_batch_size: most } = await json(`v2/models/${pipeline.model}/config`);
  const [width, values] = [input, output].map(each => Number(each.dims[0]));
  const rows = numbers(text, JSON.parse(parameters.columns.string_value), width);
  const classes = output.label_filename ? { outputs: [{ name: output.name, parameters: { classification: values } }] } : {};
  const answers = [];
  for (let from = 0; from < rows.length; from += most) { // as many as the model takes at once
    const part = rows.slice(from, from + most);
    const sent = Float32Array.from(part.flat());
    const [{ data }] = await infer(pipeline, "FP32", [part.length, width], sent, sent.byteLength, signal, classes);
    answers.push(...part.map((_, at) => data.slice(values * at, values * (at + 1))));
  }
  const example = rows.find(row => !row.some(Number.isNaN));
  const table = output.label_filename ? named(answers) : unnamed(answers, values);
  return {
    ...table, told: `${rows.length} ${rows.length === 1 ? "answer" : "answers"}`,
    gist: JSON.stringify(table.rows.map(row => row[0])),
    example: example && { inputs: [{ name: pipeline.input, datatype: "FP32", shape: [1, width], data: example }], ...classes },
  };
}

// As make ask reads them: a header says which column is which, if the model knows their names.
function numbers(text, columns, width) {
  const between = BETWEEN.find(each => text.includes(each)) ?? ",";
  const lines = text.split(/\r?\n/).map((line, at) => ({ at: at + 1, cells: cellsOf(line, between) }))
    .filter(({ cells }) => cells.length > 1 || cells[0]);
  let places = [...Array(width).keys()], most = width;
  if (lines.length && isHeader(lines[0].cells, columns, between)) {
    const { cells: header } = lines.shift();
    if (columns.length) [places, most] = [columns.map(name => placeOf(name, header, columns)), header.length];
  }
  if (!lines.length) throw new Refusal("There are no rows", "Give one row per line.");
  const isDecimal = lines.some(({ cells }) => cells.some(each => DECIMAL.test(each) && !EITHER.test(each)));
  return lines.map(({ at, cells }) => {
    if (cells.length !== most) throw new Refusal(`Line ${at}: ${cells.length} cells`, `Give ${most} in each line.`);
    return places.map(place => cells[place]).map(each => {
      if (!isNumber(each, between)) throw new Refusal(`Line ${at}: “${each}” is not a number`, "Give numbers alone.");
      if (between !== "," && EITHER.test(each) && !isDecimal) {
        throw new Refusal(`Line ${at}: “${each}” may be ${each.replace(",", "")} or ${Number(each.replace(",", "."))}`, "Write it without the comma, or with a point.");
      }
      const number = numberOf(each, between);
      if (Math.abs(Math.fround(number)) === Infinity) throw new Refusal(`Line ${at}: “${each}” is beyond float32`, "Give none beyond 3.4e38.");
      return number;
    });
  });
}

// Columns of pandas are called by numbers, if nobody gives them names. Where the model knows no names, a word beside figures
// is a mistake in a row.
function isHeader(cells, columns, between) {
  const words = cells.filter(each => !isNumber(each, between)).length;
  if (columns.length) return words || columns.every(name => cells.includes(name));
  return words && cells.every(each => !isNumber(each, between) || isMissing(each));
}

function placeOf(name, header, columns) {
  if (!header.includes(name)) throw new Refusal(`There is no column ${name}`, `The model's are: ${columns.join(", ")}`);
  return header.indexOf(name);
}

// What is between quotes is one cell; a quote inside another is one of its letters.
const cellsOf = (line, between) =>
  [...`${between}${line}`.matchAll(new RegExp(`${between}( *"(?:[^"]|"")*" *(?=${between}|$)|[^${between}]*)`, "g"))]
    .map(([, cell]) => cell.trim().replace(/^"(.*)"$/, "$1").trim());
const isMissing = cell => MISSING.includes(cell.toLowerCase());
const withPoint = (cell, between) => between === "," ? cell : cell.replace(",", ".");
const numberOf = (cell, between) => isMissing(cell) ? NaN : Number(withPoint(cell, between));
const isNumber = (cell, between) => isMissing(cell) || NUMBER.test(withPoint(cell, between));

function tabled({ names, rows }) {
  const heads = ["Row", ...names].map((name, place) => element("th", { scope: "col", className: place ? "n" : "" }, name));
  const body = rows.map((cells, at) => element("tr", {}, element("th", { scope: "row" }, String(at + 1)),
    ...cells.map(cell => element("td", { className: "n" }, cell))));
  return [element("div", { className: "scroll long", tabIndex: 0, role: "group", "aria-label": "Answers to the rows" },
    element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...body)))];
}

function named(answers) {
  const found = answers.map(each => each.map(readLabel));
  const classes = [...found[0]].sort((one, other) => one.index - other.index);
  const share = (labels, index) => `${(100 * labels.find(each => each.index === index).probability).toFixed(1)} %`;
  return {
    names: ["label", ...classes.map(each => each.label)],
    rows: found.map(labels => [labels[0].label, ...classes.map(({ index }) => share(labels, index))]),
  };
}

const unnamed = (answers, values) => ({
  names: values > 1 ? answers[0].map((_, at) => `value ${at + 1}`) : ["value"],
  rows: answers.map(each => each.map(value => Number(value.toPrecision(6)).toString())),
});

function ofRows(model, example) {
  const body = JSON.stringify(example);
  return programs(`v2/models/${encodeURIComponent(model)}/infer`, {
    curl: ["", `--data ${quoted(body)}`], python: `json.dumps(${body}).encode()`, script: `JSON.stringify(${body})`,
  }, { python: 'print(answer["outputs"][0]["data"])', script: "outputs" });
}
