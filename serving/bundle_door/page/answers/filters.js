// What of an answer is shown: classes that are switched off and on, and the least score.
import { button, element } from "../elements.js";

// `textOf`: what is written on it now; nothing where there is none to switch.
export function chips(names, textOf, changed) {
  const off = new Set();
  const made = [];
  const write = () => made.forEach(({ name, chip, text }) => {
    text.data = textOf(name);
    chip.hidden = !text.data;
  });
  const group = element("div", { className: "chips", role: "group", "aria-label": "Classes shown" },
    ...names.map(([name, colour]) => {
      const mark = element("i", { className: "mark", "aria-hidden": "true" });
      mark.style.background = colour;
      const text = document.createTextNode("");
      const chip = button(() => {
        const on = off.has(name);
        if (on) off.delete(name);
        else off.add(name);
        chip.setAttribute("aria-pressed", String(on));
        changed(off);
      }, { "aria-pressed": "true" }, mark, text);
      made.push({ name, chip, text });
      return chip;
    }));
  write();
  return { group, write };
}

// Chosen once, it holds for what is asked next.
let chosen = 0;
export const chosenLeast = () => chosen;

export function least(score, changed) {
  const shown = element("output", {}, percent(score));
  const slider = element("input", { type: "range", min: "0", max: "1", step: "0.01", value: String(score) });
  slider.addEventListener("input", () => {
    chosen = Number(slider.value);
    shown.textContent = percent(chosen);
    changed(chosen);
  });
  return element("label", { className: "least" }, "Score at least ", slider, shown);
}

export const noneOf = score => `Nothing scores ${percent(score).replace(" ", "\u00a0")} or more`;

const percent = share => `${Math.round(100 * share)} %`;
