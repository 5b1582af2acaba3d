// The API's description, openapi.json, as people read it.
import { element } from "./elements.js";

const api = await (await fetch("openapi.json")).json();
document.getElementById("about").textContent = api.info.description;
for (const [path, methods] of Object.entries(api.paths)) {
  for (const [method, call] of Object.entries(methods)) {
    if (method === "parameters") continue;
    document.getElementById("paths").append(
      element("details", {},
        element("summary", {}, element("b", {}, method.toUpperCase()), element("code", {}, path)),
        element("p", {}, call.description ?? call.summary),
        ...(call.parameters ?? []).map(given =>
          element("p", {}, `${given.name} (${given.in}): ${given.description}`)),
        ...(call["x-example"] ? [element("pre", { tabIndex: 0 }, call["x-example"])] : []),
        ...Object.entries(call.responses).map(([status, answer]) =>
          element("p", {}, `${status}: ${answer.description ?? ""}`))));
  }
}
