// A text, and whether it is positive or negative.
import { programs, quoted } from "../answers/snippets.js";
import { post } from "../asking/questions.js";
import { CARDS } from "../cards.js";

CARDS.text = {
  titles: { sentiment_ensemble: "Sentiment" },
  medium: { title: "Positive or negative?", say: "A text", example: "What a day!", most: 20_000, empty: "Type a sentence first." },
  offers: ({ model }) => model === "sentiment_ensemble",
  before: "Tokenise",

  async ask(pipeline, { text, signal }) {
    const found = await post("sentiment?timings=1", text, signal);
    return { ...found, labels: [{ label: found.label, probability: found.score }] };
  },

  programs: (pipeline, { text }) => programs("sentiment", {
    curl: ["", `--data-raw ${quoted(text)}`], python: `${JSON.stringify(text)}.encode()`, script: JSON.stringify(text),
  }, { python: 'print(answer["label"], answer["score"])', script: "label, score" }),
};
