// The API's description, openapi.json, as people read it.
import { element } from "./elements.js";
import { json } from "./server.js";
import { snippets } from "./answers/snippets.js";
import { cardOf } from "./cards.js";

const api = await (await fetch("openapi.json")).json();
// None, where a key is wanted that this tab has not.
const { pipelines } = await json("page/served.json", { quiet: true }).catch(() => ({ pipelines: null }));
const isLoaded = call => !pipelines || !call["x-kind"] || pipelines.some(each => each.kind === call["x-kind"]);
// A part that stands elsewhere in it: {"$ref": "#/components/responses/Busy"}.
const whole = part => part.$ref ? part.$ref.split("/").slice(1).reduce((found, name) => found[name], api) : part;
const main = pipelines?.find(each => each.main)?.model ?? "{model}";
const here = text => text.replace("{model}", main).replace(/(https?:\/\/)?localhost:8000/g, location.protocol === "https:" ? location.origin : location.host);

document.getElementById("about").textContent = api.info.description;

// How each pipeline here is asked; where that takes more than a file or a text, by KServe's protocol.
const examplesOf = pipeline => {
  const { example, file } = cardOf(pipeline).medium;
  return snippets(pipeline, { text: example, file: { name: file } });
};
document.getElementById("loaded").append(...(pipelines ?? []).map(each => {
  const { curl = `POST ${location.origin}/v2/models/${each.model}/infer`, Python } = examplesOf(each);
  return element("li", {}, element("b", {}, each.model), element("pre", { tabIndex: 0 }, curl),
    ...(Python ? [element("details", {}, element("summary", {}, "Python"), element("pre", { tabIndex: 0 }, Python))] : []));
}));
document.getElementById("loaded-title").hidden = !pipelines?.length;
for (const [path, methods] of Object.entries(api.paths)) {
  for (const [method, call] of Object.entries(methods)) {
    if (method === "parameters") continue;
    document.getElementById("paths").append(
      element("details", {},
        element("summary", {}, element("b", {}, method.toUpperCase()), element("code", {}, path), element("span", {}, call.summary, isLoaded(call) ? "" : " · not loaded")),
        ...(call.description ? [element("p", {}, call.description)] : []),
        ...[...(methods.parameters ?? []), ...(call.parameters ?? [])].map(whole).map(given =>
          element("p", {}, `${given.name} (${given.in})${given.description ? `: ${given.description}` : ""}`)),
        ...(call["x-example"] ? [element("pre", { tabIndex: 0 }, here(call["x-example"]))] : []),
        ...Object.entries(call.responses).map(([status, answer]) =>
          element("p", {}, `${status}: ${whole(answer).description}`))));
  }
}
