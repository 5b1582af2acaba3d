// Two drawn pictures, for those who have none at hand. The server has them, for programs too.
import { button, byId, element } from "../elements.js";

export async function offer(taken) {
  byId("samples").append(...await Promise.all(["mug", "fish"].map(name => offered(name, taken))));
}

async function offered(name, taken) {
  const address = `page/asking/${name}.jpg`;
  const picture = await (await fetch(address)).blob();
  const file = Object.assign(new File([picture], `${name}.jpg`, { type: "image/jpeg" }), { address });
  return button(() => taken([file]), { title: `A drawn ${name}`, "aria-label": `Ask about a drawn ${name}` },
    element("img", { alt: "", src: URL.createObjectURL(file) }));
}
