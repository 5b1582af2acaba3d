// Elements without markup in strings, so that no text of anyone's becomes markup.
const SVG = "http://www.w3.org/2000/svg";

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-")) made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

export function button(act, properties, ...children) {
  const made = element("button", { type: "button", ...properties }, ...children);
  made.addEventListener("click", act);
  return made;
}

export function shape(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

export const byId = id => document.getElementById(id);
