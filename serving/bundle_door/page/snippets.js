// The same request for a program.
import { hasKey } from "./server.js";

export function snippets(pipeline, question) {
  return question.file ? ofPicture(pipeline, question.file.name || "photo.jpg") : ofText(question.text);
}

const base = () => location.href.replace(/[#?].*$/, "").replace(/\/$/, "");
const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;
const curlKey = () => (hasKey() ? ` -H "Authorization: Bearer $KEY"` : "");
const scriptKey = () => (hasKey() ? "\n  headers: { authorization: `Bearer ${key}` }," : "");

const client = (more = "") =>
  `with Client(${JSON.stringify(base())}${hasKey() ? ", api_key=key" : ""}${more}) as client:`;

function ofPicture(pipeline, name) {
  if (pipeline.kind === "pixels") return {};
  const words = `${JSON.stringify(name)}, ${JSON.stringify(pipeline.model)}`;
  const asked = {
    boxes: [client(), `    for box in client.detect(${words}).boxes:`,
      "        print(box.label, box.score, box.left, box.top, box.right, box.bottom)"],
    masks: [client(), `    for area in client.segment(${words}).areas:`, "        print(area.label, area.share)"],
    pictures: [client(`, model=${JSON.stringify(pipeline.model)}`), `    for label in client.classify(${JSON.stringify(name)}).labels:`,
      "        print(label.label, label.probability)"],
  }[pipeline.kind];
  const python = ["from bundle_client import Client  # pip install ./client", "", ...asked, ""].join("\n");
  if (pipeline.kind !== "pictures") return { Python: python };
  const url = `${base()}/classify?model=${encodeURIComponent(pipeline.model)}`;
  return {
    curl: `curl${curlKey()} --data-binary @${quoted(name)} ${quoted(url)}`,
    Python: python,
    JavaScript: `const answer = await fetch(${JSON.stringify(url)}, {\n  method: "POST", body: file,${scriptKey()}\n});\nconst { labels } = await answer.json();\n`,
  };
}

function ofText(text) {
  const url = `${base()}/sentiment`;
  const header = hasKey() ? ", headers={\"Authorization\": f\"Bearer {key}\"}" : "";
  return {
    curl: `curl${curlKey()} --data-binary ${quoted(text)} ${quoted(url)}`,
    Python: `import json, urllib.request\n\nrequest = urllib.request.Request(${JSON.stringify(url)}, ${JSON.stringify(text)}.encode()${header})\nprint(json.load(urllib.request.urlopen(request)))\n`,
    JavaScript: `const answer = await fetch(${JSON.stringify(url)}, {\n  method: "POST", body: ${JSON.stringify(text)},${scriptKey()}\n});\nconst { label, score } = await answer.json();\n`,
  };
}
