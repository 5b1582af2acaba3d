// The machine's camera, where it has one and the browser may use it: a photo, or one picture after the other.
import { byId, element } from "../elements.js";
import { bar } from "../answers/bars.js";
import { cardOf } from "../cards.js";

// Over which frames a second are counted.
const COUNTED_MS = 3000;

// `taken` gets a photo; `ask` answers a picture, by the pipeline that is chosen then.
export async function prepare(taken, chosen, ask) {
  const dialog = byId("camera"), video = dialog.querySelector("video"), live = byId("live");
  const devices = (await navigator.mediaDevices?.enumerateDevices?.()) ?? [];
  byId("photograph").hidden = !devices.some(device => device.kind === "videoinput");
  let stream, watching = false;

  byId("photograph").addEventListener("click", async () => {
    fail("");
    dialog.showModal();
    try {
      const given = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
      // Who has closed the dialog meanwhile, or opened it again, is not to be filmed by this one.
      if (!dialog.open || stream) return end(given);
      video.srcObject = stream = given;
    } catch {
      fail("The browser does not give this page the camera. Allow it, or choose a file.");
    }
  });
  byId("shoot").addEventListener("click", async () => {
    if (!video.videoWidth) return;
    taken([await pictureOf(video)]);
    dialog.close();
  });
  live.addEventListener("click", async () => {
    const on = live.getAttribute("aria-pressed") !== "true";
    live.setAttribute("aria-pressed", String(on));
    if (!on || watching) return; // one that waits for an answer goes on with this
    watching = true;
    await watch(video, chosen, ask, () => live.getAttribute("aria-pressed") === "true");
    watching = false;
  });
  byId("camera-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => {
    live.setAttribute("aria-pressed", "false");
    end(stream);
    stream = video.srcObject = null;
  });
}

const end = stream => stream?.getTracks().forEach(track => track.stop());

// One picture at a time, each as it is once the one before is answered.
async function watch(video, chosen, ask, goesOn) {
  const answered = [];
  while (goesOn()) {
    if (!video.videoWidth) {
      await new Promise(done => setTimeout(done, 50));
      continue;
    }
    try {
      const pipeline = chosen(), found = await ask(pipeline, await pictureOf(video));
      const now = performance.now();
      answered.push(now);
      while (answered[0] < now - COUNTED_MS) answered.shift();
      show(video, cardOf(pipeline), found, answered.length > 1 ? (1000 * (answered.length - 1)) / (now - answered[0]) : 0);
    } catch (fault) {
      fail(`${fault.message}. ${fault.remedy ?? ""}`);
      break;
    }
  }
  byId("live").setAttribute("aria-pressed", "false");
  byId("frames").textContent = "";
  byId("seen-live").replaceChildren();
  video.parentElement.replaceChildren(video);
}

function show(video, { over }, found, rate) {
  byId("frames").textContent = `${rate.toFixed(1)} frames/s · ${Math.round(found.browser_ms)} ms each`;
  byId("seen-live").replaceChildren(element("ol", { className: "labels" }, ...found.labels.slice(0, 3).map(bar)));
  video.parentElement.replaceChildren(video, ...over(found.labels, video.videoWidth, video.videoHeight));
}

function fail(text) {
  const fault = byId("camera").querySelector(".error");
  fault.textContent = text;
  fault.hidden = !text;
}

// What a video shows now, as a file.
export async function pictureOf(video, name = "photo.jpg") {
  const canvas = element("canvas", { width: video.videoWidth, height: video.videoHeight });
  canvas.getContext("2d").drawImage(video, 0, 0);
  const blob = await new Promise(done => canvas.toBlob(done, "image/jpeg", 0.92));
  return new File([blob], name, { type: "image/jpeg" });
}
