// The API's description, openapi.json, as people read it.
import { element } from "./elements.js";

const api = await (await fetch("openapi.json")).json();
// A part that stands elsewhere in it: {"$ref": "#/components/responses/Busy"}.
const whole = part => part.$ref ? part.$ref.split("/").slice(1).reduce((found, name) => found[name], api) : part;
const here = text => text.replace(/(https?:\/\/)?localhost:8000/g, location.protocol === "https:" ? location.origin : location.host);

document.getElementById("about").textContent = api.info.description;
for (const [path, methods] of Object.entries(api.paths)) {
  for (const [method, call] of Object.entries(methods)) {
    if (method === "parameters") continue;
    document.getElementById("paths").append(
      element("details", {},
        element("summary", {}, element("b", {}, method.toUpperCase()), element("code", {}, path), element("span", {}, call.summary)),
        ...(call.description ? [element("p", {}, call.description)] : []),
        ...[...(methods.parameters ?? []), ...(call.parameters ?? [])].map(whole).map(given =>
          element("p", {}, `${given.name} (${given.in})${given.description ? `: ${given.description}` : ""}`)),
        ...(call["x-example"] ? [element("pre", { tabIndex: 0 }, here(call["x-example"]))] : []),
        ...Object.entries(call.responses).map(([status, answer]) =>
          element("p", {}, `${status}: ${whole(answer).description}`))));
  }
}
