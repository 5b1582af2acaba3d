// What people drop or paste: files, and those in folders.
import { Refusal } from "../server.js";

export async function filesOf(transfer) {
  // Folders are known only until the event has ended: all are asked for at once.
  const entries = [...transfer.items].filter(each => each.kind === "file").map(each => [each.webkitGetAsEntry?.(), each.getAsFile()]);
  const found = await Promise.all(entries.map(([entry, file]) => entry?.isDirectory ? below(entry) : [file]));
  return found.flat().filter(Boolean);
}

async function below(folder) {
  const reader = folder.createReader(), entries = [];
  for (;;) {
    const some = await new Promise((done, failed) => reader.readEntries(done, failed)); // a hundred at a time
    if (!some.length) break;
    entries.push(...some);
  }
  entries.sort((one, other) => one.name.localeCompare(other.name));
  const found = await Promise.all(entries.map(each => each.isDirectory ? below(each)
    : new Promise((done, failed) => each.file(done, failed))));
  return found.flat();
}

// The server takes so much; and what is no file, a browser says only when it is sent.
export async function requireReadable(file, most) {
  if (file.size > most)
    throw new Refusal(`It has ${megabytes(file.size)}, and this server takes ${megabytes(most)} at once`, "Send a smaller file, or start it with a larger MAX_BODY_MB=.");
  try {
    await file.slice(0, 1).arrayBuffer();
  } catch {
    throw new Refusal("It cannot be read", "It is gone, or no file; drop it again.");
  }
}

const megabytes = bytes => `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;
