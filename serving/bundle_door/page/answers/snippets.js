// The same request for a program, which needs nothing but its language's own.
import { CARDS, cardOf } from "../cards.js";
import { hasKey } from "../server.js";

export function snippets(pipeline, question, found) {
  if (!(pipeline.kind in CARDS)) return {};
  return (cardOf(pipeline).programs ?? ofFile)(pipeline, question, found);
}

const base = () => location.href.replace(/[#?].*$/, "").replace(/\/(docs)?$/, "");
export const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;

// Of a sample, which nobody has as a file: from where it comes.
function ofFile(pipeline, { file: { name: called, address } }) {
  const name = called || "photo.jpg", sample = address && `${base()}/${address}`;
  const [list, ...fields] = cardOf(pipeline).found;
  return programs(`classify?model=${encodeURIComponent(pipeline.model)}`, {
    curl: [sample ? `curl -s ${quoted(sample)} | ` : "", `--data-binary @${sample ? "-" : quoted(name)}`],
    python: sample ? `urllib.request.urlopen(${JSON.stringify(sample)}).read()` : `open(${JSON.stringify(name)}, "rb").read()  # it lies beside this program`,
    script: sample ? `await (await fetch(${JSON.stringify(sample)})).blob()` : 'document.querySelector("input[type=file]").files[0]',
  }, {
    python: `for found in answer["${list}"]:\n    print(${fields.map(each => `found["${each}"]`).join(", ")})`,
    script: list,
  });
}

// `sent`: what is sent; `told`: what is made of the answer.
export function programs(path, sent, told) {
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
