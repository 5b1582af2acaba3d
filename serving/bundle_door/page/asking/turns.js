// Questions that wait for their turn: those on screen first, else in their order.
const AT_ONCE = 4;

const waiting = new Map(); // the element that shows the answer -> what asks
const seen = new Set();
let running = 0;

const observer = new IntersectionObserver(entries => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) seen.add(target);
    else seen.delete(target);
  }
}, { rootMargin: "100px" });

export function enqueue(place, ask) {
  waiting.set(place, ask);
  observer.observe(place);
  setTimeout(work, 50); // by then it is known which are on screen
}

export function withdraw(places) {
  for (const place of places) take(place);
}

function work() {
  while (running < AT_ONCE && waiting.size) {
    const ask = take(next());
    running += 1;
    ask().finally(() => { running -= 1; work(); });
  }
}

function next() {
  for (const place of waiting.keys()) if (seen.has(place)) return place;
  return waiting.keys().next().value;
}

function take(place) {
  const ask = waiting.get(place);
  waiting.delete(place);
  seen.delete(place);
  observer.unobserve(place);
  return ask;
}
