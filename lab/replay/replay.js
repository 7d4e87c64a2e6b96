// This is the script of a page that replays a history of the simulator. replay.go puts it into the script of the
// machine, whose functions it uses.

// ---- The replay of a history ----

const rowHeight = 34;
const longestGap = 2000; // milliseconds: an idle time on the axis is cut to this
const laneHeight = 26;

// Replay shows the history that the simulator has written. Its time axis leaves out most of the idle time.
class Replay {
  at = 0; // the index of the current step in shown
  zoom = 1;
  timer = 0;
  withLog = false;
  sought = "";

  constructor(recorded) {
    this.title = recorded.title;
    this.lanes = recorded.lanes;
    this.steps = recorded.steps.sort((a, b) => timeOf(a) - timeOf(b));
    this.began = Date.parse(recorded.began) || timeOf(this.steps[0] || { at: 0 });
    this.faults = this.steps.filter((step) => step.point === "fault");
    this.broken = this.steps.filter((step) => step.point === "broken");
    this.linkAll();
    this.shrinkTime();
    this.build();
    this.filter();
  }

  linkAll() {
    const perLane = this.lanes.map(() => new Links());
    this.steps.forEach((step, index) => {
      step.index = index;
      perLane[step.lane]?.link(step);
    });
  }

  // shrinkTime gives each step a place on the axis.
  shrinkTime() {
    let place = 0;
    this.steps.forEach((step, index) => {
      const gap = index ? timeOf(step) - timeOf(this.steps[index - 1]) : 0;
      place += Math.min(gap, longestGap);
      step.place = place;
    });
    this.length = Math.max(place, 1);
  }

  // placeOfTime finds the place of a moment at which nothing needs to have happened.
  placeOfTime(ms) {
    const next = this.firstIndex(this.steps, (step) => timeOf(step) >= ms);
    if (next >= this.steps.length) return this.length;
    const ahead = Math.min(timeOf(this.steps[next]) - ms, longestGap);
    return Math.max(this.steps[next].place - ahead, this.steps[next - 1]?.place ?? 0);
  }

  // firstIndex searches a sorted list for the first step of which a condition holds.
  firstIndex(steps, holds) {
    let low = 0;
    let high = steps.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (holds(steps[middle])) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  build() {
    this.shortcuts = {};
    const rates = [2, 10, 60, 300].map((rate) => el("option", { value: rate }, `${rate} steps a second`));
    this.pace = el("select", {}, ...rates);
    this.slider = el("input", { type: "range", min: 0, "aria-label": "Step" });
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
    this.overview = new LaneCanvas(this);
    this.closeUp = new LaneCanvas(this);
    this.position = el("p", { class: "pace" });
    this.rows = el("div", { class: "rows" });
    this.list = el("div", { class: "history" }, this.rows);
    this.list.addEventListener("scroll", () => this.drawRows());
    this.list.addEventListener("keydown", (event) => this.moveByKey(event));
    byId("replay").append(this.summary(), this.buttons(), this.filters(), this.legend(),
      this.overview.element, this.slider, this.closeUp.element, this.position, this.header(), this.list);
    new ResizeObserver(() => this.draw()).observe(byId("replay"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.readColours());
    new MutationObserver(() => this.readColours()).observe(document.documentElement, { attributes: true });
    this.readColours();
    onKey(this.shortcuts, () => byId("keys-on").checked);
  }

  summary() {
    const counts = [plural(this.steps.length, "step"), plural(this.faults.length, "fault"),
      plural(this.broken.length, "broken rule")];
    const [name, ...how] = this.title.split(": ");
    return el("p", { class: "lead" }, el("b", {}, name), `: ${counts.join(", ")}. The lines leave out idle time. `,
      el("code", {}, how.join(": ")));
  }

  buttons() {
    const make = (text, key, click) => {
      this.shortcuts[key.toLowerCase()] = click;
      return button("plain", click, span("", `${text} `), el("kbd", {}, key));
    };
    this.playButton = make("Play", "P", () => this.toggle());
    return el("div", { class: "controls" }, this.playButton, el("label", { class: "field" }, "Pace ", this.pace),
      make("Back", "B", () => this.go(this.at - 1)), make("Next", "N", () => this.go(this.at + 1)),
      make("Next fault", "F", () => this.jump("fault")), make("Next broken rule", "R", () => this.jump("broken")),
      make("Closer", "C", () => this.setZoom(4)), make("Wider", "W", () => this.setZoom(1 / 4)));
  }

  filters() {
    const find = (event) => {
      this.sought = event.target.value.trim().toLowerCase();
      this.filter();
    };
    const showLog = (event) => {
      this.withLog = event.target.checked;
      this.filter();
    };
    const text = el("input", { type: "search", placeholder: "such as web-0", input: find });
    const tick = el("input", { type: "checkbox", change: showLog });
    return el("div", { class: "controls" }, el("label", { class: "field" }, "Find ", text),
      el("label", { class: "tick" }, tick, " Log lines"), byId("keys-on").parentElement);
  }

  legend() {
    return el("p", { class: "legend" }, "Bars: the more steps, the higher. ",
      el("b", { "data-tone": "warn" }, "▲ a fault, and how long it lasts. "),
      el("b", { "data-tone": "bad" }, "✗ a broken rule. "),
      "In the rows: △ a fault strikes a request, ◇ a change as in any cluster, § another part of the seed.");
  }

  header() {
    const names = this.lanes.map((lane) => span("", lane));
    const row = el("div", { class: "history-row history-head" }, span("", "time"), ...names);
    row.style.setProperty("--lanes", this.lanes.length);
    return row;
  }

  // readColours asks the style for the colours, because a canvas knows no variables.
  readColours() {
    this.colours = {};
    for (const name of ["text", "line", "accent", "warn", "bad"]) {
      this.position.style.color = `var(--${name})`;
      this.colours[name] = getComputedStyle(this.position).color;
    }
    this.position.style.color = "";
    if (this.shown) this.draw();
  }

  filter() {
    const current = this.shown?.[this.at];
    const isFound = (step) => `${read(step).word} ${textOf(step)}`.toLowerCase().includes(this.sought);
    this.shown = this.steps.filter((step) => (this.withLog || step.point !== "log") &&
      (!this.sought || isFound(step)));
    this.slider.max = Math.max(0, this.shown.length - 1);
    this.rows.style.height = `${this.shown.length * rowHeight}px`;
    this.at = current ? this.firstIndex(this.shown, (step) => step.index >= current.index) : 0;
    this.go(this.at);
  }

  // go makes a step the current one.
  go(index) {
    this.at = Math.max(0, Math.min(index, this.shown.length - 1));
    this.slider.value = this.at;
    this.list.scrollTop = this.at * rowHeight - this.list.clientHeight / 3;
    this.draw();
  }

  jump(point) {
    const next = this.shown.findIndex((step, index) => index > this.at && step.point === point);
    if (next >= 0) return this.go(next);
    this.position.textContent = point === "fault" ? "No fault follows." : "No broken rule follows.";
  }

  toggle() {
    const isPlaying = this.timer !== 0;
    clearInterval(this.timer);
    this.timer = 0;
    this.playButton.firstChild.textContent = isPlaying ? "Play " : "Pause ";
    if (isPlaying) return;
    let last = performance.now();
    let owed = 0;
    this.timer = setInterval(() => {
      const now = performance.now();
      owed += (now - last) / 1000 * Number(this.pace.value);
      last = now;
      if (owed < 1) return;
      this.go(this.at + Math.floor(owed));
      owed %= 1;
      if (this.at >= this.shown.length - 1) this.toggle();
    }, 33);
  }

  setZoom(factor) {
    this.zoom = Math.max(1, Math.min(this.zoom * factor, 4 ** 7));
    this.draw();
  }

  // view is the part of the axis that the close-up shows. It moves in halves, so that it stands still most of the time.
  view() {
    const width = this.length / this.zoom / 8;
    const place = this.shown[this.at]?.place || 0;
    const from = Math.max(0, Math.min(Math.floor(place / width * 2 - 1) * width / 2, this.length - width));
    return [from, from + width];
  }

  draw() {
    const step = this.shown[this.at];
    const [from, to] = this.view();
    this.overview.draw(0, this.length, [from, to]);
    this.closeUp.draw(from, to);
    this.overview.point(step?.place);
    this.closeUp.point(step?.place);
    this.position.textContent = step ? this.sayPosition(step) : "No step has this text.";
    this.drawRows();
  }

  sayPosition(step) {
    const after = durationOfNanoseconds((timeOf(step) - this.began) * 1e6);
    const number = (this.at + 1).toLocaleString("en");
    return `Step ${number} of ${this.shown.length.toLocaleString("en")}, ${after} after the beginning.`;
  }

  // drawRows makes only the rows that can be seen.
  drawRows() {
    const first = Math.max(0, Math.floor(this.list.scrollTop / rowHeight) - 4);
    const drawn = [first, this.at, this.sought, this.withLog, this.list.clientHeight].join();
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const rows = this.shown.slice(first, first + Math.ceil(this.list.clientHeight / rowHeight) + 8);
    const hadFocus = this.rows.contains(document.activeElement);
    this.rows.replaceChildren(...rows.map((step, i) => this.row(step, first + i)));
    if (hadFocus) this.rows.querySelector("[aria-current]")?.focus({ preventScroll: true });
  }

  row(step, index) {
    const look = read(step);
    const chip = span("history-chip",
      symbolOf(look), span("lane-name", `${this.lanes[step.lane]}: `), `${look.word} `, el("b", {}, look.label));
    chip.style.setProperty("--lane", step.lane + 2);
    const row = button("history-row", () => this.choose(index), span("when", clock(timeOf(step))), chip);
    const isCurrent = index === this.at;
    row.tabIndex = isCurrent ? 0 : -1;
    if (isCurrent) row.setAttribute("aria-current", "step");
    row.style.setProperty("--lanes", this.lanes.length);
    row.style.transform = `translateY(${index * rowHeight}px)`;
    return row;
  }

  choose(index) {
    const top = this.list.scrollTop;
    this.go(index);
    this.list.scrollTop = top;
    this.drawRows();
    this.rows.querySelector("[aria-current]")?.focus({ preventScroll: true });
    showDetails(this.shown[index]);
  }

  moveByKey(event) {
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };
    const move = moves[event.key];
    if (move === undefined) return;
    event.preventDefault();
    this.go(this.at + move);
    this.drawRows();
    this.rows.querySelector("[aria-current]")?.focus({ preventScroll: true });
  }
}

// LaneCanvas draws the lanes over time. It draws again only if what it shows has changed.
class LaneCanvas {
  constructor(replay) {
    this.replay = replay;
    this.canvas = el("canvas", {});
    this.needle = el("i", { class: "needle" });
    this.names = el("div", { class: "names" }, ...replay.lanes.map((lane) => span("", lane)));
    this.timeline = el("div", { class: "timeline", click: (event) => this.pick(event) }, this.canvas, this.needle);
    this.element = el("div", { class: "lane-canvas", "aria-hidden": "true" }, this.names, this.timeline);
  }

  pick(event) {
    const place = this.from + event.offsetX / this.timeline.clientWidth * (this.to - this.from);
    this.replay.go(this.replay.firstIndex(this.replay.shown, (step) => step.place >= place));
  }

  point(place) {
    this.needle.hidden = place === undefined;
    this.needle.style.transform = `translateX(${Math.round(this.x(place || 0))}px)`;
  }

  x(place) {
    return (place - this.from) / (this.to - this.from) * this.timeline.clientWidth;
  }

  draw(from, to, frame) {
    const width = this.timeline.clientWidth;
    const height = this.replay.lanes.length * laneHeight;
    const { shown, sought, colours } = this.replay;
    const drawn = [from, to, frame, width, shown.length, sought, colours.text].join();
    if (drawn === this.drawn || width === 0) return;
    Object.assign(this, { drawn, from, to });
    const ratio = devicePixelRatio || 1;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    this.drawLanes(pen, width);
    if (frame) this.drawFrame(pen, frame, height);
  }

  drawLanes(pen, width) {
    const { shown, firstIndex, colours, faults, broken } = this.replay;
    const start = firstIndex(shown, (step) => step.place >= this.from);
    const end = firstIndex(shown, (step) => step.place > this.to);
    const counts = this.replay.lanes.map(() => new Uint32Array(width / 3 + 2));
    for (let i = start; i < end; i++) counts[shown[i].lane][Math.floor(this.x(shown[i].place) / 3)]++;
    pen.fillStyle = colours.line;
    counts.forEach((_, lane) => pen.fillRect(0, (lane + 1) * laneHeight - 1, width, 1));
    this.drawFaults(pen, faults);
    pen.fillStyle = colours.accent;
    counts.forEach((row, lane) => row.forEach((count, column) => {
      const height = count && Math.min(laneHeight - 6, 4 + Math.log2(count) * 4);
      if (count) pen.fillRect(column * 3, (lane + 1) * laneHeight - 2 - height, 2, height);
    }));
    this.drawBroken(pen, broken);
  }

  drawFaults(pen, faults) {
    for (const fault of faults) {
      const x = this.x(fault.place);
      const end = fault.until ? this.x(this.replay.placeOfTime(Date.parse(fault.until))) : x;
      if (end < 0 || x > this.timeline.clientWidth) continue;
      const top = fault.lane * laneHeight;
      pen.fillStyle = this.replay.colours.warn;
      pen.globalAlpha = 0.25;
      pen.fillRect(x, top + 4, Math.max(end - x, 2), laneHeight - 7);
      pen.globalAlpha = 1;
      pen.font = "10px sans-serif";
      pen.fillText("▲", x - 4, top + 12);
    }
  }

  drawBroken(pen, broken) {
    pen.fillStyle = this.replay.colours.bad;
    for (const step of broken) {
      const x = this.x(step.place);
      pen.fillRect(x - 1, 0, 2, this.replay.lanes.length * laneHeight);
      pen.font = "bold 14px sans-serif";
      pen.fillText("✗", x + 3, 13);
    }
  }

  // drawFrame shows on the overview which part the close-up shows.
  drawFrame(pen, [from, to], height) {
    pen.strokeStyle = this.replay.colours.text;
    pen.lineWidth = 2;
    pen.strokeRect(this.x(from) + 1, 1, Math.max(this.x(to) - this.x(from) - 2, 2), height - 2);
  }
}

// preventLive keeps a page from becoming live, and from showing another view. There is no podcount to connect to.
function preventLive(title) {
  startLive = () => {};
  page.connect = page.check = page.lose = () => {};
  document.documentElement.classList.add("is-replay");
  page.show("machine");
  page.show = () => {};
  byId("live").hidden = true;
  section.querySelector("h2").textContent = title;
}

function startReplay(recorded) {
  byId("replay").hidden = false;
  const replay = new Replay(recorded);
  nearby = (step) => replay.steps.slice(Math.max(0, step.index - 1500), step.index + 1500)
    .filter((other) => other.lane === step.lane);
}

// What the simulator's own steps mean.
Object.assign(POINTS, {
  stored: ["server", (s) => [
    { created: "+", deleted: "−" }[s.type] || "~", s.type, "plain", subject(s) + (s.text ? `: ${s.text}` : ""),
    "The API server has stored this. podcount has yet to hear of it."]],
  fault: ["server", (s) => ["▲", s.type || "fault", "warn", s.text, "The simulator disturbs the cluster here."]],
  struck: ["server", (s) => ["△", s.type || "struck", "warn", s.text, "A fault strikes a request of this process."]],
  life: ["server", (s) => ["◇", s.type, "plain", s.text, "This also happens in a healthy cluster."]],
  phase: ["server", (s) => ["§", s.type || "phase", "plain", s.text, "Another part of the simulation begins."]],
  starts: ["server", (s) => ["▷", "starts", "good", s.text || s.key, "A process starts."]],
  ends: ["server", (s) => ["□", `ends: ${s.type}`, "warn", s.text || s.key, "A process ends."]],
  gap: ["server", (s) => ["…", "left out", "warn", s.text, "There was too much for a page, so a part was left out."]],
  broken: ["server", (s) => ["✗", "rule broken", "bad", s.text,
    "A rule that always has to hold did not hold. This is what the simulator looks for."]],
});
