// The same request for a program, which needs nothing but its language's own.
import { hasKey } from "../server.js";

// What an answer has of each kind of pipeline, and of each of those what is printed.
const FOUND = {
  pictures: ["labels", "label", "probability"], sounds: ["labels", "label", "probability"],
  boxes: ["boxes", "label", "score", "left", "top", "right", "bottom"], masks: ["areas", "label", "share"],
};

export function snippets(pipeline, question, found = {}) {
  if (pipeline.kind === "rows") return found.example ? ofRows(pipeline, found.example) : {};
  if (pipeline.kind === "text") return ofText(question.text);
  return pipeline.kind in FOUND ? ofFile(pipeline, question.file) : {};
}

const base = () => location.href.replace(/[#?].*$/, "").replace(/\/(docs)?$/, "");
const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;

// Of a sample, which nobody has as a file: from where it comes.
function ofFile(pipeline, { name: called, address }) {
  const name = called || "photo.jpg", sample = address && `${base()}/${address}`;
  const [list, ...fields] = FOUND[pipeline.kind];
  return programs(`classify?model=${encodeURIComponent(pipeline.model)}`, {
    curl: [sample ? `curl -s ${quoted(sample)} | ` : "", `--data-binary @${sample ? "-" : quoted(name)}`],
    python: sample ? `urllib.request.urlopen(${JSON.stringify(sample)}).read()` : `open(${JSON.stringify(name)}, "rb").read()  # it lies beside this program`,
    script: sample ? `await (await fetch(${JSON.stringify(sample)})).blob()` : 'document.querySelector("input[type=file]").files[0]',
  }, {
    python: `for found in answer["${list}"]:\n    print(${fields.map(each => `found["${each}"]`).join(", ")})`,
    script: list,
  });
}

function ofRows({ model }, example) {
  const body = JSON.stringify(example);
  return programs(`v2/models/${encodeURIComponent(model)}/infer`, {
    curl: ["", `--data ${quoted(body)}`], python: `json.dumps(${body}).encode()`, script: `JSON.stringify(${body})`,
  }, { python: 'print(answer["outputs"][0]["data"])', script: "outputs" });
}

const ofText = text => programs("sentiment", {
  curl: ["", `--data-binary ${quoted(text)}`], python: `${JSON.stringify(text)}.encode()`, script: JSON.stringify(text),
}, { python: 'print(answer["label"], answer["score"])', script: "label, score" });

// `sent`: what is sent; `told`: what is made of the answer.
function programs(path, sent, told) {
  const url = `${base()}/${path}`, key = hasKey(), [before, body] = sent.curl;
  const given = key ? 'key = "…"  # yours\n' : "";
  return {
    curl: `${before}curl${key ? ' -H "Authorization: Bearer $KEY"' : ""} ${body} ${quoted(url)}`,
    Python: `import json\nimport urllib.error\nimport urllib.request\n\n${given}sent = ${sent.python}\n`
      + `request = urllib.request.Request(${JSON.stringify(url)}, sent${key ? ', {"Authorization": f"Bearer {key}"}' : ""})\n`
      + `try:\n    with urllib.request.urlopen(request) as response:\n        answer = json.load(response)\n`
      + `except urllib.error.HTTPError as refusal:  # with the cause, and what to do\n    raise SystemExit(refusal.read().decode())\n${told.python}\n`,
    JavaScript: `const sent = ${sent.script};\nconst answer = await fetch(${JSON.stringify(url)}, {\n  method: "POST", body: sent,`
      + `${key ? "\n  headers: { authorization: `Bearer ${key}` }," : ""}\n});\nif (!answer.ok) throw new Error(await answer.text());\nconst { ${told.script} } = await answer.json();\nconsole.log(${told.script});\n`,
  };
}
