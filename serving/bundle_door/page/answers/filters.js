// What of an answer is shown: classes that are switched off and on, and the least score.
import { element } from "../elements.js";

export function chips(names, changed) {
  const off = new Set();
  const made = element("div", { className: "chips", role: "group", "aria-label": "Classes shown" },
    ...names.map(([name, text, colour]) => {
      const mark = element("i", { className: "mark", "aria-hidden": "true" });
      mark.style.background = colour;
      const chip = element("button", { type: "button", "aria-pressed": "true" }, mark, text);
      chip.addEventListener("click", () => {
        const on = off.has(name);
        if (on) off.delete(name);
        else off.add(name);
        chip.setAttribute("aria-pressed", String(on));
        changed(off);
      });
      return chip;
    }));
  return made;
}

export function least(score, changed) {
  const shown = element("output", {}, percent(score));
  const slider = element("input", { type: "range", min: "0", max: "1", step: "0.01", value: String(score) });
  slider.addEventListener("input", () => {
    shown.textContent = percent(slider.value);
    changed(Number(slider.value));
  });
  return element("label", { className: "least" }, "Score at least ", slider, shown);
}

export const noneOf = score => `Nothing scores ${percent(score).replace(" ", "\u00a0")} or more`;

const percent = share => `${Math.round(100 * share)} %`;
