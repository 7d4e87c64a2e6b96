// This is the script of the guided tour. tour.go puts it into the script of the machine, whose functions it uses.

// ---- The guided tour ----

// isFrom reports whether a step is another one, or follows from it.
function isFrom(step, origin) {
  while (step && step !== origin) step = step.cause;
  return Boolean(step);
}

// rich shows `code`, **bold** and *italics* of a text.
function rich(text) {
  const tags = { "`": "code", "**": "b", "*": "i" };
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*|\*[^*]+\*)/).map((part) => {
    const [, mark, inside] = part.match(/^(`|\*\*|\*)(.+)\1$/) || [];
    return mark ? el(tags[mark], {}, inside) : part;
  });
}

const labelOf = (name) => cardOf(name).querySelector("button").textContent.trim();
const fold = (title, ...children) => el("details", {}, el("summary", {}, ...title), ...children);
const codeBlock = (text) => el("pre", { tabindex: 0 }, el("code", {}, text));
const codeOf = (functions) => [el("h4", {}, "The code"), ...functions.map(({ name, file, line, source }) =>
  fold([el("code", {}, name), span("note", ` ${file}:${line}`)], codeBlock(source)))];

// blocksShown shows the text of a step. It folds long code, and lists that were tables: their rows begin with code.
function blocksShown(blocks) {
  const shown = el("div", {});
  let last; // the newest block, which takes the next items of its list
  for (const { kind, text } of blocks) {
    const isItem = kind === "ul" || kind === "ol";
    if (!isItem || last?.localName !== kind) {
      last = kind === "pre" ? codeBlock(text) : el(kind, {}, ...(isItem ? [] : rich(text)));
      const isLong = isItem ? text.startsWith("`") : kind === "pre" && text.split("\n").length > 5;
      shown.append(isLong ? fold([isItem ? "The table" : "The lines"], last) : last);
    }
    if (isItem) last.append(el("li", {}, ...rich(text)));
  }
  return shown;
}

// Tour shows a page, which is a step or an exercise, or the list of all pages. Each page has an address.
class Tour {
  news = {}; // the newest report of each button of the playground
  origin = null; // the frame with which the reader's pod came
  reached = null; // the step of the trace that the page explains, when the display has come to it
  pausedAt = -1; // how many steps there were when the tour paused the display; -1 if it has not

  pages = [];

  // constructor shows the list as long as it will be, so that nothing moves when the pages come.
  constructor() {
    this.title = el("h3", { id: "tour-title", tabindex: -1 });
    this.ways = el("nav", { "aria-label": "Tour", class: "controls" });
    this.said = el("p", { "aria-live": "polite" });
    this.report = el("p", { "aria-live": "polite" });
    this.answer = el("div", { "aria-live": "polite" });
    this.hint = span("note");
    this.body = el("div", {});
    byId("live").before(this.place = el("section", { id: "tour", "aria-labelledby": "tour-title" },
      el("div", { class: "tour-head" }, this.title, this.ways), this.body));
    page.on("address", (address) => this.open(address));
    for (const event of ["step", "lost", "found"]) page.on(event, () => this.look());
    page.on("buttons", () => this.namePresses());
    page.on("report", (report) => this.hear(report));
    this.open("steps");
  }

  fill({ steps, exercises }) {
    this.pages = [
      ...steps.map((step, i) => ({ ...step, address: `step-${i + 1}`, title: `Step ${i + 1}: ${step.title}` })),
      ...exercises.filter(({ name }) => cardOf(name)).map((exercise) =>
        ({ address: exercise.name, ...exercise, buttons: [exercise.name], title: `Exercise: ${exercise.title}` })),
    ];
    this.open(location.hash.slice(1));
  }

  open(address) {
    const at = this.pages.findIndex((one) => one.address === address);
    if (at < 0 && address !== "machine" && byId(address)) return; // It is that of an element.
    const hasMoved = at >= 0 || this.shown;
    const shown = this.shown = this.pages[at];
    this.reached = null;
    this.next = this.pages[at + 1]?.address;
    this.place.classList.toggle("is-beside", at >= 0);
    this.place.scrollTop = 0;
    this.title.textContent = shown?.title || "Guided tour";
    const ways = { "Take the tour": !shown && "step-1", "Previous": this.pages[at - 1]?.address,
      "Next": shown && this.next, "All steps": shown && "steps" };
    this.ways.replaceChildren(...Object.entries(ways).filter(([, to]) => to).map(([text, to]) =>
      el("a", { class: shown ? "plain" : "plain is-main", href: `#${to}` }, text)));
    const parts = !shown ? this.list(address) : shown.guesses ? this.exercise(shown) : this.step(shown);
    this.body.replaceChildren(...parts);
    if (hasMoved) closeDetails();
    if (hasMoved) this.title.focus();
    this.turn();
    this.namePresses();
    this.showNews();
    this.look();
  }

  list(address) {
    const links = (title, isWanted) => fold([title], el("ul", {}, ...this.pages.filter(isWanted).map((one) =>
      el("li", {}, el("a", { href: `#${one.address}` }, one.title)))));
    const isUnknown = this.pages.length > 0 && !["", "machine", "steps"].includes(address);
    return [
      el("p", { class: "note" }, isUnknown ? `There is no step or exercise “${address}”. ` : "",
        "Follow a pod of your own through podcount, from the bytes on the wire to the label on a node. Then guess " +
        "what the playground's buttons do, and press them."),
      links("The steps", ({ guesses }) => !guesses), links("The exercises", ({ guesses }) => guesses)];
  }

  step({ buttons, blocks, invariant, functions }) {
    this.bytes = button("plain", () => showDetails(this.reached), "Look at it");
    return [
      el("div", { class: "tour-now" }, this.said, this.report,
        el("div", { class: "controls" }, this.bytes, ...this.presses(buttons))),
      el("p", { class: "note" }, "The text tells of a recorded run on another cluster, with a pod web-0, a node cp-1 " +
        "and podcount's usual times. The display shows your own cluster. There, pods also come and go by themselves, " +
        "and times differ: the playground has an interval of 3 s and a Lease of 90 s."),
      blocksShown(blocks),
      el("h4", {}, "What always holds"), el("p", { class: "invariant" }, ...rich(invariant)), ...codeOf(functions)];
  }

  exercise(shown) {
    const choose = (guess) => () => {
      shown.guess = guess;
      this.namePresses();
    };
    const guesses = shown.guesses.map((guess, i) => el("label", { class: "tick" },
      el("input", { type: "radio", name: "guess", checked: shown.guess === i, change: choose(i) }),
      el("span", {}, ...rich(guess))));
    return [el("fieldset", {}, el("legend", {}, ...rich(shown.question)), ...guesses),
      el("div", { class: "controls" }, ...this.presses(shown.buttons), this.hint), this.report, this.answer];
  }

  presses(names) {
    return names.filter(cardOf).map((name) =>
      el("button", { type: "button", class: "plain", "data-name": name, click: () => this.press(name) }));
  }

  // namePresses names the buttons as the playground names them now. If an exercise is about another name, it says so.
  namePresses() {
    const { isOfPod, guesses, guess, name, label, otherwise } = this.shown || {};
    this.isOther = Boolean(label) && labelOf(name) !== label;
    const needsGuess = Boolean(guesses) && guess === undefined && !this.isOther;
    this.hint.textContent = this.isOther ? otherwise : needsGuess ? "Choose a guess first." : "";
    for (const press of this.body.querySelectorAll("[data-name]")) {
      press.textContent = isOfPod ? "Make a pod" : `Press “${labelOf(press.dataset.name)}” and see`;
      press.disabled = needsGuess;
    }
  }

  // press presses a button. If the page explains a step of the trace, the display then waits for it.
  press(name) {
    const { shown } = this;
    if (shown.shows && page.isLost) return; // No step would come.
    Object.assign(shown, { pressed: name, bet: this.isOther ? undefined : shown.guess });
    if (shown.shows) {
      take(waiting.length); // what came before
      Object.assign(this, { origin: shown.isOfPod ? null : this.origin, reached: null, pausedAt: links.count });
      this.turn();
    }
    pressButton(name);
  }

  // turn lets the display show what the page explains: the reader's pod, or everything.
  turn() {
    if (this.pausedAt < 0) return;
    const { shows, isOfPod } = this.shown || {};
    if (isOfPod && this.origin) follow(this.origin);
    else showEverything();
    setSpeed(shows ? "paused" : "live");
    if (!shows) this.pausedAt = -1;
  }

  hear(report) {
    this.news[report.name] = report;
    this.showNews();
    this.look();
  }

  showNews() {
    const { pressed, guesses, bet, right, why, functions } = this.shown || {};
    const { state, text } = this.news[pressed] || {};
    const [symbol, word] = RUN_STATES[state] || [];
    this.report.replaceChildren(...(word ? [el("b", {}, `${symbol} ${word} `), text || ""] : []));
    const isRight = bet === right;
    this.answer.replaceChildren(...(bet !== undefined && state === "done" ? [
      el("p", {}, el("b", {}, isRight ? "✓ Your guess was right. " : "✗ Your guess was wrong. "),
        ...rich((isRight ? "" : `This is right: ${guesses[right].replace(/\.?$/, ".")} `) + why)),
      ...(this.next ? [el("a", { class: "plain", href: `#${this.next}` }, "Next")] : []),
      ...codeOf(functions)] : []));
  }

  // look lets the display go on to the step of the trace that the page explains, as far as steps have come.
  look() {
    const { shows, isOfPod } = this.shown || {};
    if (!this.shown?.blocks || this.reached) return;
    if (isOfPod) this.findPod();
    const fits = (step) => Object.entries(shows).every(([name, pattern]) => RegExp(pattern).test(step[name]));
    const isOwn = (step) => fits(step) && (isOfPod ? isFrom(step, this.origin) : step.id > this.pausedAt);
    if (shows && (isOfPod ? this.origin : this.pausedAt >= 0)) {
      this.reached = shownSteps.find(isOwn);
      while (!this.reached && speed === "paused" && nextStep()) this.reached = [shownSteps.at(-1)].find(isOwn);
      // The page does not see what a key follows from whose wait has ended late.
      const isDone = isOfPod && this.news["pod-more"]?.state === "done";
      if (isDone) this.reached ||= shownSteps.find((step) => fits(step) && step.id > this.origin.id);
    }
    if (this.reached) this.showReached(this.reached);
    this.say();
  }

  // findPod finds the pod that the display follows because a button has just made it.
  findPod() {
    if (speed === "paused") followReported();
    if (!followsReport || (this.origin && subject(this.origin) === only)) return;
    this.origin = [...shownSteps, ...waiting].findLast((step) => step.type === "ADDED" && subject(step) === only);
    this.pausedAt = links.count;
  }

  showReached(step) {
    if (!chips.has(step.chip)) showBatch([step]);
    markNow(step);
    flush();
    const focused = document.activeElement;
    if (!matchMedia("(min-width: 901px)").matches) return;
    showDetails(step);
    (focused === document.body ? this.title : focused).focus({ preventScroll: true });
  }

  say() {
    const text = this.sentence();
    if (this.said.textContent !== text) this.said.textContent = text;
    this.bytes.hidden = !this.reached;
  }

  // sentence says how far the display has come.
  sentence() {
    const { say, isOfPod } = this.shown;
    const { state } = this.news["pod-more"] || {};
    const { word, label } = this.reached ? read(this.reached) : {};
    if (page.isLost) return "The page has lost podcount. Wait until it is back, before you press a button.";
    if (word) return `The display has come to this: ${word} ${label}.`;
    if (!isOfPod) return say;
    if (!this.origin && state !== "running") return "This needs a pod of yours: make one. The display then follows it.";
    if (state !== "done") return "The display waits for this step of your pod.";
    return "podcount is done with your pod, and this step has not come. Make another pod.";
  }
}

// startTour fills the tour, or removes it if its content is not there. All addresses that name no element are its own.
async function startTour() {
  if (byId("live").hidden) return; // A film is shown instead.
  const tour = new Tour();
  const { viewAt } = page;
  page.viewAt = (address) => (byId(address) ? viewAt.call(page, address) : "machine");
  await loadPlayground();
  const answer = await fetch("tour.json");
  if (answer.ok) tour.fill(await answer.json());
  else byId("tour").remove();
}

startTour();
