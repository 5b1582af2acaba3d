// A photo by the machine's camera, where it has one and the browser may use it.
import { byId } from "./elements.js";

export async function prepare(taken) {
  const button = byId("photograph"), dialog = byId("camera"), video = dialog.querySelector("video");
  const fault = dialog.querySelector(".error");
  const devices = (await navigator.mediaDevices?.enumerateDevices?.()) ?? [];
  button.hidden = !devices.some(device => device.kind === "videoinput");
  let stream;

  button.addEventListener("click", async () => {
    fault.hidden = true;
    dialog.showModal();
    try {
      stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
      video.srcObject = stream;
    } catch {
      fault.textContent = "The browser does not give this page the camera. Allow it, or choose a file.";
      fault.hidden = false;
    }
  });
  byId("shoot").addEventListener("click", () => {
    if (!video.videoWidth) return;
    const canvas = document.createElement("canvas");
    canvas.width = video.videoWidth;
    canvas.height = video.videoHeight;
    canvas.getContext("2d").drawImage(video, 0, 0);
    canvas.toBlob(blob => taken([new File([blob], "photo.jpg", { type: "image/jpeg" })]), "image/jpeg", 0.92);
    dialog.close();
  });
  byId("camera-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => {
    stream?.getTracks().forEach(track => track.stop());
    stream = video.srcObject = null;
  });
}
