// A picture that the browser decodes, as the pipeline takes pixels.
import { infer, readLabel } from "../asking/questions.js";
import { CARDS } from "../cards.js";

// Longer than any network here looks at; a larger one would only be sent and shrunk.
const MOST_PIXELS = 640;

CARDS.pixels = {
  titles: { places_ensemble: "Places" }, title: "Where was your picture taken?",
  programs: () => ({}),

  async ask(pipeline, { file, signal }) {
    const { width, height, values } = await pixelsOf(file);
    const [found] = await infer(pipeline, "FP32", [1, height, width, 3], values, values.byteLength, signal);
    return { labels: found.data.map(readLabel) };
  },
};

async function pixelsOf(file) {
  const picture = await createImageBitmap(file);
  const scale = Math.min(1, MOST_PIXELS / Math.max(picture.width, picture.height));
  const width = Math.max(1, Math.round(picture.width * scale));
  const height = Math.max(1, Math.round(picture.height * scale));
  const canvas = new OffscreenCanvas(width, height).getContext("2d");
  canvas.drawImage(picture, 0, 0, width, height);
  const { data } = canvas.getImageData(0, 0, width, height);
  const values = new Float32Array(width * height * 3);
  for (let from = 0, to = 0; from < data.length; from += 4)
    for (let channel = 0; channel < 3; channel++) values[to++] = data[from + channel];
  return { width, height, values };
}
