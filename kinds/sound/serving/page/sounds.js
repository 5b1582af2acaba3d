// A sound as people see it: its loudness over time, to be played.
import { CARDS } from "../cards.js";
import { element, shape } from "../elements.js";

CARDS.sounds = {
  titles: { sounds: "Sounds" },
  medium: {
    title: "What's to be heard?", say: "Drop WAV files here", choose: "Choose sounds", accept: ".wav,audio/wav",
    file: "sound.wav", icon: "M6 20v8M15 13v22M24 6v36M33 15v18M42 20v8", seen: heard,
  },
  made: ["made-up sounds", "recording"], before: "Decode, bands",
};

const BARS = 160, HEIGHT = 64;
// The wave is drawn of so few samples a second.
const RATE = 8000;

function heard(file) {
  const wave = shape("svg", { class: "wave", viewBox: `0 0 ${BARS} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  const player = element("audio", { controls: true, src: URL.createObjectURL(file), "aria-label": `Play ${file.name || "the sound"}` });
  const silent = () => {
    URL.revokeObjectURL(player.src);
    wave.replaceWith(element("p", { className: "broken" }, "no sound"));
    player.remove();
  };
  draw(wave, file).catch(silent);
  return [wave, player];
}

async function draw(wave, file) {
  const sound = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(await file.arrayBuffer());
  const path = peaks(sound.getChannelData(0))
    .map((peak, bar) => `M${bar + 0.5} ${HEIGHT / 2 * (1 - peak)}V${HEIGHT / 2 * (1 + peak)}`).join("");
  wave.append(shape("path", { d: path }));
}

// Of each part of the sound, the largest sample; in a quiet one too, something is seen.
function peaks(samples) {
  const found = Array.from({ length: BARS }, (_, bar) => {
    const part = samples.subarray(Math.floor(bar * samples.length / BARS), Math.ceil((bar + 1) * samples.length / BARS));
    return part.reduce((most, each) => Math.max(most, Math.abs(each)), 0);
  });
  const loudest = Math.max(...found, 1e-6);
  return found.map(peak => Math.max(peak / loudest, 0.02));
}
