// The same request for a program.
import { hasKey } from "../server.js";

export function snippets(pipeline, question) {
  if (pipeline.kind === "rows") return ofRows(pipeline);
  return question.file ? ofFile(pipeline, question.file) : ofText(question.text);
}

const base = () => location.href.replace(/[#?].*$/, "").replace(/\/$/, "");
const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;
const curlKey = () => (hasKey() ? ` -H "Authorization: Bearer $KEY"` : "");
const scriptKey = () => (hasKey() ? "\n  headers: { authorization: `Bearer ${key}` }," : "");

const client = (more = "") =>
  `with Client(${JSON.stringify(base())}${hasKey() ? ", api_key=key" : ""}${more}) as client:`;

// Of a sample, which nobody has as a file: from where it comes.
function ofFile(pipeline, { name: called, address }) {
  if (pipeline.kind === "pixels") return {};
  const name = called || "photo.jpg", sample = address && `${base()}/${address}`;
  const source = JSON.stringify(sample ?? name);
  const words = `${source}, ${JSON.stringify(pipeline.model)}`;
  const asked = {
    boxes: [client(), `    for box in client.detect(${words}).boxes:`,
      "        print(box.label, box.score, box.left, box.top, box.right, box.bottom)"],
    masks: [client(), `    for area in client.segment(${words}).areas:`, "        print(area.label, area.share)"],
    sounds: [client(), `    for label in client.hear(${source}, model=${JSON.stringify(pipeline.model)}).labels:`,
      "        print(label.label, label.probability)"],
    pictures: [client(`, model=${JSON.stringify(pipeline.model)}`), `    for label in client.classify(${source}).labels:`,
      "        print(label.label, label.probability)"],
  }[pipeline.kind];
  const python = ["from bundle_client import Client  # pip install ./client", "", ...asked, ""].join("\n");
  if (!["pictures", "sounds"].includes(pipeline.kind)) return { Python: python };
  const url = `${base()}/classify?model=${encodeURIComponent(pipeline.model)}`;
  return {
    curl: `${sample ? `curl -s ${quoted(sample)} | ` : ""}curl${curlKey()} --data-binary @${sample ? "-" : quoted(name)} ${quoted(url)}`,
    Python: python,
    JavaScript: `${sample ? `const file = await (await fetch(${JSON.stringify(sample)})).blob();\n` : ""}const answer = await fetch(${JSON.stringify(url)}, {\n  method: "POST", body: file,${scriptKey()}\n});\nconst { labels } = await answer.json();\n`,
  };
}

const ofRows = ({ model }) => ({ "make ask": `make ask MODEL=${model} IN=rows.csv` });

function ofText(text) {
  const url = `${base()}/sentiment`;
  const header = hasKey() ? ", headers={\"Authorization\": f\"Bearer {key}\"}" : "";
  return {
    curl: `curl${curlKey()} --data-binary ${quoted(text)} ${quoted(url)}`,
    Python: `import json, urllib.request\n\nrequest = urllib.request.Request(${JSON.stringify(url)}, ${JSON.stringify(text)}.encode()${header})\nprint(json.load(urllib.request.urlopen(request)))\n`,
    JavaScript: `const answer = await fetch(${JSON.stringify(url)}, {\n  method: "POST", body: ${JSON.stringify(text)},${scriptKey()}\n});\nconst { label, score } = await answer.json();\n`,
  };
}
