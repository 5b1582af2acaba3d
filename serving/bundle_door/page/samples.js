// Two drawn pictures, for those who have none at hand.
import { byId, element } from "./elements.js";

const WIDTH = 640, HEIGHT = 480;

export function offer(taken) {
  for (const [name, draw] of [["mug", mug], ["fish", fish]]) {
    const canvas = element("canvas", { width: WIDTH, height: HEIGHT });
    draw(canvas.getContext("2d"));
    const button = element("button", { type: "button", title: `A drawn ${name}`, "aria-label": `Ask about a drawn ${name}` }, canvas);
    button.addEventListener("click", () => canvas.toBlob(
      blob => taken([new File([blob], `${name}.jpg`, { type: "image/jpeg" })]), "image/jpeg", 0.92));
    byId("samples").append(button);
  }
}

function fill(pen, colour, draw) {
  pen.beginPath();
  draw();
  pen.fillStyle = colour;
  pen.fill();
}

function shades(pen, from, to, ...colours) {
  const made = pen.createLinearGradient(...from, ...to);
  colours.forEach((colour, at) => made.addColorStop(at / (colours.length - 1), colour));
  return made;
}

function mug(pen) {
  fill(pen, "#cec6ba", () => pen.rect(0, 0, WIDTH, HEIGHT));
  fill(pen, "#7e583c", () => pen.rect(0, 326, WIDTH, HEIGHT));
  pen.filter = "blur(12px)";
  fill(pen, "#1e140c80", () => pen.ellipse(360, 375, 160, 30, 0, 0, 7));
  pen.filter = "none";
  for (const [width, colour] of [[24, "#b0b0ac"], [14, "#d6d6d2"]]) {
    pen.beginPath();
    pen.ellipse(424, 235, 46, 64, 0, 0, 7);
    pen.lineWidth = width;
    pen.strokeStyle = colour;
    pen.stroke();
  }
  fill(pen, shades(pen, [210, 0], [410, 0], "#c4c4c0", "#f0f0ec", "#d8d8d4", "#80807c"), () => {
    pen.rect(210, 110, 200, 250);
    pen.ellipse(310, 360, 100, 26, 0, 0, 7);
  });
  fill(pen, "#ecece8", () => pen.ellipse(310, 110, 100, 26, 0, 0, 7));
  fill(pen, "#3a2214", () => pen.ellipse(310, 113, 90, 18, 0, 0, 7));
}

function fish(pen) {
  fill(pen, shades(pen, [0, 0], [0, HEIGHT], "#bfe3ee", "#2f7f9f"), () => pen.rect(0, 0, WIDTH, HEIGHT));
  const orange = shades(pen, [0, 130], [0, 350], "#ffb347", "#f2691b", "#ffd9a0");
  fill(pen, "#f08a2c", () => { // tail and fins
    pen.moveTo(430, 240);
    pen.quadraticCurveTo(520, 130, 580, 150);
    pen.quadraticCurveTo(540, 240, 585, 340);
    pen.quadraticCurveTo(510, 340, 430, 245);
    pen.moveTo(240, 160);
    pen.quadraticCurveTo(310, 60, 390, 170);
    pen.moveTo(290, 310);
    pen.quadraticCurveTo(330, 400, 370, 310);
  });
  fill(pen, orange, () => pen.ellipse(290, 240, 170, 100, 0, 0, 7));
  pen.strokeStyle = "#d9541180";
  pen.lineWidth = 3;
  for (let row = 0; row < 5; row++)
    for (let at = 0; at < 6; at++) {
      pen.beginPath();
      pen.arc(250 + 30 * at - 8 * Math.abs(row - 2), 180 + 30 * row, 17, -1.2, 1.2);
      pen.stroke();
    }
  fill(pen, "#fff", () => pen.arc(175, 215, 20, 0, 7));
  fill(pen, "#111", () => pen.arc(171, 215, 11, 0, 7));
  fill(pen, "#ffffffb0", () => {
    for (const [x, y, size] of [[90, 150, 14], [70, 100, 9], [105, 70, 6]]) {
      pen.moveTo(x + size, y);
      pen.arc(x, y, size, 0, 7);
    }
  });
}
