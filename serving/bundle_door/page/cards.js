// What each kind of pipeline has of its own on the page. A kind's card is in kinds/KIND/serving/page/, is fetched from
// page/cards/, with its styles, and adds itself to CARDS before main.js runs. What it leaves out is as in USUAL: as of
// pictures that get labels.
//   titles         what its own pipelines are called
//   medium         how people ask, one object for all that are asked alike: with files (`choose`, `accept`, `icon`, and `seen`,
//                  which shows them), or with a text, of which it has an `example` (`empty`: what is said without one,
//                  `most`: how many letters it may have, `name`: what it is called, `files`: whether files may have it)
//   title          the question, where it is another than its medium's
//   made           what the bundle's own small networks have learned from, and what they know nothing of
//   offers         whether the page can ask a pipeline
//   ask            a pipeline and a question -> {labels: [{label, probability, index}], timings}; or, without labels, {told,
//                  gist}: in words, and to be compared. Where it is left out, /classify is asked, with `query`, for the list
//                  `found`: the name of it, and in each entry those of the label, its share, and where it is
//   show           an answer and its question -> elements
//   over           labels and a size -> elements over what a camera shows
//   isScene        whether an answer shows the picture itself, and says all of its labels, not the first alone
//   isScored       whether people choose from which score on labels count
//   before, after  the steps before and after the network
//   programs       a pipeline, a question and its answer -> programs that ask the same
import { element } from "./elements.js";
import { bar } from "./answers/bars.js";

export const PICTURES = {
  title: "What's in your picture?", say: "Drop pictures or a video here, or paste one", choose: "Choose pictures",
  accept: "image/*,video/*", file: "photo.jpg",
};

const USUAL = {
  titles: {}, medium: PICTURES, made: ["drawings", "photo"], offers: () => true,
  found: ["labels", "label", "probability"], query: {},
  show: ({ labels }) => [element("ol", { className: "labels" }, ...labels.map(bar))],
  over: () => [],
  before: "Decode, resize", after: "Labels",
};

export const CARDS = { pictures: USUAL };
export const cardOf = pipeline => ({ ...USUAL, ...CARDS[pipeline?.kind] });
