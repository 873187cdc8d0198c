// The charts and controls of a report. Reads the data element of the page and nothing else; loads nothing.
// Texts that come from runs are only ever set as text, never as HTML.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);

// -- elements ---------------------------------------------------------------------------------------------------------------------

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const html = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

let serial = 0;
const freshId = (prefix) => `${prefix}-${++serial}`;

// A few choices of which one is taken: radio buttons that look like one control.
function choice(label, options, value, onchange) {
  const name = freshId("choice");
  const inputs = options.map(([key, text]) => {
    const input = html("input", { type: "radio", name, value: key, onchange: () => onchange(key) });
    input.checked = key === value;
    return html("label", {}, input, html("span", {}, text));
  });
  return html("fieldset", { class: "choice" }, html("legend", {}, label), html("div", { class: "options" }, ...inputs));
}

function menu(label, options, value, onchange) {
  const select = html("select", { onchange: () => onchange(select.value) });
  select.append(...options.map(([key, text]) => html("option", { value: key }, text)));
  select.value = value;
  return html("label", { class: "menu" }, html("span", {}, label), select);
}

// A slider over a list; `show` says in words what an item is.
function slider(label, items, index, show, onchange) {
  const shown = html("output", {}, show(items[index]));
  const input = html("input", { type: "range", min: 0, max: items.length - 1, step: 1 });
  input.value = index;
  const say = () => {
    shown.textContent = show(items[input.value]);
    input.setAttribute("aria-valuetext", shown.textContent);
  };
  input.addEventListener("input", () => {
    say();
    onchange(items[input.value]);
  });
  say();
  return html("label", { class: "slider" }, html("span", {}, label), input, shown);
}

// -- numbers ----------------------------------------------------------------------------------------------------------------------

const fixed = (value, digits) => (value === null || value === undefined ? "–" : value.toFixed(digits));
const compact = (value) => (value === 0 ? "0" : Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3 ? value.toExponential(1) : String(+value.toPrecision(3)));

// Round numbers, about `count` of them and at least three, no closer than `least`.
function niceTicks(low, high, count, least = 0) {
  const rough = Math.max((high - low) / Math.max(count, 1), least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const steps = [0.5, 1, 2, 2.5, 5, 10].map((factor) => factor * power);
  const fitting = (step) => Math.floor(high / step + 1e-9) - Math.ceil(low / step - 1e-9) + 1;
  let at = steps.findIndex((step) => step >= rough * 0.999);
  while (at > 0 && fitting(steps[at]) < 3 && steps[at - 1] >= least) at--;
  const ticks = [];
  for (let index = Math.ceil(low / steps[at] - 1e-9); index * steps[at] <= high + steps[at] * 1e-9; index++) ticks.push(+(index * steps[at]).toPrecision(12));
  return ticks;
}

const wholeTicks = (low, high, count) => niceTicks(low, high, count, 1).filter(Number.isInteger);

function logTicks(low, high, count) {
  for (const digits of [[1], [1, 3], [1, 2, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9]]) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
      for (const digit of digits) {
        const tick = +(digit * 10 ** power).toPrecision(6);
        if (tick >= low * 0.9999 && tick <= high * 1.0001) ticks.push(tick);
      }
    if (ticks.length >= Math.min(3, count)) return ticks;
  }
  return niceTicks(low, high, count).filter((tick) => tick > 0);
}

// Remaining weights of which people know the sparsity.
function sparsityTicks(low, high, log, count) {
  if (!log) return niceTicks(100 - high, 100 - low, count).map((sparsity) => 100 - sparsity);
  const round = [100, 80, 50, 30, 20, 10, 5, 3, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01].filter((v) => v >= low * 0.999 && v <= high * 1.001);
  return round.length >= 2 ? round : niceTicks(low, high, count);
}

function makeScale([low, high], [from, to], log) {
  const t = log ? Math.log : (v) => v;
  const back = log ? Math.exp : (v) => v;
  const span = t(high) - t(low) || 1;
  const scale = (value) => from + ((t(value) - t(low)) / span) * (to - from);
  scale.invert = (pixel) => back(t(low) + ((pixel - from) / (to - from)) * span);
  return scale;
}

// -- series that can be switched on and off, in all charts at once ------------------------------------------------------------------

const shown = data.series.map((series) => series.shown);
const redraws = new Set();
const legends = new Set();
const MARKERS = ["M0-4A4 4 0 1 1 0 4A4 4 0 1 1 0-4Z", "M-3.6-3.6H3.6V3.6H-3.6Z", "M0-4.6L4.4 3.4H-4.4Z", "M0-5L5 0L0 5L-5 0Z", "M0 4.6L4.4-3.4H-4.4Z", "M-1.5-4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5V-1.5H-1.5Z"];
const DASHES = [null, "6 3", "2 3", "9 3 2 3"];
const look = (index) => ({ colour: `s${index % 8}`, dash: DASHES[Math.floor(index / 8) % 4], marker: MARKERS[(index + Math.floor(index / 8)) % 6] });

function setShown(change) {
  change();
  for (const refresh of [...legends, ...redraws]) refresh();
}

function legend(indices, aside) {
  const buttons = indices.map((index) => {
    const { colour, dash, marker } = look(index);
    const swatch = svg("svg", { width: 26, height: 12, viewBox: "-13 -6 26 12", "aria-hidden": "true", class: colour },
      svg("path", { d: "M-13 0H13", class: "line", "stroke-dasharray": dash }), svg("path", { d: marker, class: "marker" }));
    const toggle = () => setShown(() => (shown[index] = !shown[index]));
    return [index, html("button", { type: "button", class: "key", onclick: toggle }, swatch, data.series[index].label)];
  });
  const refresh = () => buttons.forEach(([index, button]) => button.setAttribute("aria-pressed", String(shown[index])));
  const set = (value) => () => setShown(() => indices.forEach((index) => (shown[index] = value)));
  const whole = indices.length < 3 ? [] : [
    html("button", { type: "button", class: "quiet", onclick: set(true) }, "all"),
    html("button", { type: "button", class: "quiet", onclick: set(false) }, "none"),
  ];
  refresh();
  legends.add(refresh);
  return html("div", { class: "legend", role: "group", "aria-label": "Methods shown" }, ...buttons.map(([, button]) => button), ...whole, aside);
}

// -- a chart ------------------------------------------------------------------------------------------------------------------------
//
// `build()` gives what is to be drawn now:
//   x, y     {label, log, zero, flip, ticks(low, high, count), format(value), values}   zero: the axis begins at 0
//   marks    {kind: "line" | "bars", label, look, points: [{x, y, low, high, text}], dots, faint, width, tint}
//   columns  whether what stands at the same x is read together

class Chart {
  constructor(host, { name, build, height, controls, zoom = true, labels = false, below }) {
    Object.assign(this, { host, name, build, height, labels });
    this.view = null;
    this.place = svg("svg", { tabindex: 0, role: "application", "aria-roledescription": "chart" });
    this.tip = html("div", { class: "tip", role: "status", hidden: true });
    const tools = zoom && html("div", { class: "tools", role: "group", "aria-label": "Zoom" },
      html("button", { type: "button", "aria-label": "Zoom in", title: "Zoom in (or draw a box)", onclick: () => this.zoom(0.6) }, "+"),
      html("button", { type: "button", "aria-label": "Zoom out", title: "Zoom out", onclick: () => this.zoom(1 / 0.6) }, "−"),
      (this.reset = html("button", { type: "button", "aria-label": "Whole chart", title: "Whole chart", onclick: () => this.whole() }, "whole")));
    this.numbers = html("details", { class: "numbers", ontoggle: () => this.writeNumbers() }, html("summary", {}, "Numbers"), html("div", { class: "scroll" }));
    if (controls || tools) host.append(html("div", { class: "controls" }, ...(controls || []), tools || null));
    host.append(html("div", { class: "plot" }, this.place, this.tip));
    if (below) host.append(below);
    host.append(this.numbers);
    this.listen(zoom);
    redraws.add(() => this.draw());
    new ResizeObserver(() => this.host.clientWidth !== this.width && this.draw()).observe(host);
  }

  draw() {
    this.width = this.host.clientWidth;
    if (!this.width) return;
    const model = (this.model = this.build());
    const points = model.marks.flatMap((mark) => mark.points.filter((p) => Number.isFinite(p.x) && Number.isFinite(p.y)));
    const height = this.height || Math.round(Math.min(Math.max(this.width * 0.62, 250), 400));
    this.place.replaceChildren();
    this.place.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    this.place.setAttribute("height", height);
    this.place.setAttribute("aria-label", `${this.name}. ${model.marks.length} series; arrow keys read the values.`);
    this.hideTip();
    if (!points.length) {
      this.place.append(svg("text", { x: this.width / 2, y: height / 2, "text-anchor": "middle", class: "empty" }, "Nothing is switched on here."));
      this.hits = [];
      return;
    }
    const full = { x: this.extent(points.map((p) => p.x), model.x), y: this.extent(points.flatMap((p) => [p.y, p.low ?? p.y, p.high ?? p.y]), model.y) };
    if (this.view && (this.view.logX !== !!model.x.log || this.view.logY !== !!model.y.log)) this.view = null;
    this.full = full;
    this.domain = this.view || full;
    if (this.reset) this.reset.disabled = !this.view;
    this.frame(model, height);
    this.drawMarks(model);
    if (this.numbers.open) this.writeNumbers();
  }

  extent(values, axis) {
    if (axis.domain) return axis.domain;
    const usable = values.filter((value) => Number.isFinite(value) && (!axis.log || value > 0));
    let [low, high] = [Math.min(...usable), Math.max(...usable)];
    if (axis.log) return low === high ? [low / 1.5, high * 1.5] : [low / (high / low) ** 0.05, high * (high / low) ** 0.05];
    const pad = (high - low || Math.abs(high) || 1) * 0.06;
    return [axis.zero && low >= 0 ? 0 : low - pad, high + pad];
  }

  frame(model, height) {
    const { x, y } = model;
    const [yLow, yHigh] = this.domain.y;
    const rows = Math.max(3, Math.floor(height / 62));
    const yTicks = y.ticks ? y.ticks(yLow, yHigh, rows) : (y.log ? logTicks : niceTicks)(yLow, yHigh, rows);
    const yTexts = yTicks.map((tick) => (y.format || compact)(tick));
    const named = this.labels && this.width > 460 && model.marks.length <= 8 ? this.labels : null;
    const longest = named ? Math.max(...model.marks.map((mark) => mark.label.length)) : 0;
    const left = 14 + Math.max(...yTexts.map((text) => text.length), 2) * 7;
    const right = named ? Math.min(20 + longest * 7.6, 150) : 16;
    const bottom = x.tilt ? 104 : 46;
    this.box = { left, right: this.width - right, top: 28, bottom: height - bottom, named };
    const { box } = this;
    this.x = makeScale(this.domain.x, x.flip ? [box.right, box.left] : [box.left, box.right], x.log);
    this.y = makeScale(this.domain.y, [box.bottom, box.top], y.log);
    const grid = svg("g", { class: "grid", "aria-hidden": "true" });
    yTicks.forEach((tick, index) => {
      const at = this.y(tick);
      grid.append(svg("path", { d: `M${box.left} ${at}H${box.right}` }), svg("text", { x: box.left - 8, y: at + 4, "text-anchor": "end" }, yTexts[index]));
    });
    const [xLow, xHigh] = this.domain.x;
    const across = Math.max(2, Math.floor((box.right - box.left) / 70));
    const xTicks = x.ticks ? x.ticks(xLow, xHigh, across) : (x.log ? logTicks : niceTicks)(xLow, xHigh, across);
    let last = -Infinity;
    for (const [tick, at] of xTicks.map((tick) => [tick, this.x(tick)]).sort((a, b) => a[1] - b[1])) {
      const text = (x.format || compact)(tick);
      const room = x.tilt ? 13 : text.length * 7 + 10;
      grid.append(svg("path", { class: "tick", d: `M${at} ${box.bottom}v5` }));
      if (at - last < room || at < box.left - 1 || at > box.right + 1) continue;
      last = at;
      const spot = x.tilt ? { transform: `translate(${at + 3} ${box.bottom + 14}) rotate(-48)`, "text-anchor": "end" } : { x: at, y: box.bottom + 19, "text-anchor": "middle" };
      grid.append(svg("text", spot, text));
    }
    grid.append(svg("path", { class: "axis", d: `M${box.left} ${box.bottom}H${box.right}` }));
    grid.append(svg("text", { class: "name", x: 2, y: 14 }, y.label));
    if (x.label) grid.append(svg("text", { class: "name", x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, x.label));
    this.place.append(grid);
  }

  drawMarks(model) {
    const { box } = this;
    const clip = freshId("clip");
    const clipBox = { x: box.left - 5, y: box.top - 5, width: box.right - box.left + 10, height: box.bottom - box.top + 10 };
    this.place.append(svg("clipPath", { id: clip }, svg("rect", clipBox)));
    const bands = svg("g", { "clip-path": `url(#${clip})` });
    const lines = svg("g", { "clip-path": `url(#${clip})` });
    this.hits = [];
    const ends = [];
    for (const mark of model.marks) {
      const usable = mark.points.filter((p) => Number.isFinite(p.x) && Number.isFinite(p.y) && (!model.y.log || p.y > 0) && (!model.x.log || p.x > 0));
      const pixels = usable.map((p) => ({ ...p, px: this.x(p.x), py: this.y(p.y), mark }));
      if (mark.kind === "bars") {
        const half = Math.abs(this.x(mark.width / 2) - this.x(0));
        for (const p of pixels) lines.append(svg("rect", { class: `bar ${mark.look.colour}${mark.tint ? " tint" : ""}`, x: p.px - half, width: 2 * half, y: p.py, height: Math.max(box.bottom - p.py, 0.5), rx: Math.min(2, half) }));
      } else if (mark.kind === "dots") {
        for (const p of pixels) lines.append(svg("circle", { class: `faint-dot ${mark.look.colour}`, cx: p.px, cy: p.py, r: 2.4 }));
      } else {
        const banded = pixels.filter((p) => Number.isFinite(p.low) && Number.isFinite(p.high));
        if (banded.length > 1) {
          const floor = (value) => this.y(model.y.log ? Math.max(value, this.domain.y[0] / 10) : value);
          const path = [...banded.map((p) => `${p.px} ${floor(p.high)}`), ...banded.reverse().map((p) => `${p.px} ${floor(p.low)}`)];
          bands.append(svg("path", { class: `band ${mark.look.colour}${model.marks.length > 3 ? " many" : ""}`, d: `M${path.join("L")}Z` }));
        }
        const line = svg("path", { class: `line ${mark.look.colour}${mark.faint ? " faint" : ""}`, d: `M${pixels.map((p) => `${p.px.toFixed(1)} ${p.py.toFixed(1)}`).join("L")}`, "stroke-dasharray": mark.look.dash });
        if (mark.share !== undefined) line.style.setProperty("--share", mark.share);
        if (pixels.length > 1) lines.append((mark.node = line));
        if (mark.dots || pixels.length === 1)
          for (const p of pixels) lines.append(svg("path", { class: `marker ${mark.look.colour}`, d: mark.look.marker, transform: `translate(${p.px.toFixed(1)} ${p.py.toFixed(1)})` }));
        const inside = pixels.filter((p) => this.inside(p)).sort((a, b) => a.px - b.px);
        if (box.named && inside.length) ends.push({ at: inside[inside.length - 1], mark });
      }
      this.hits.push(...pixels.filter((p) => this.inside(p)));
    }
    this.cursor = svg("path", { class: "cursor" });
    this.ring = svg("circle", { class: "ring", r: 8, visibility: "hidden" });
    this.brush = svg("rect", { class: "brush", visibility: "hidden" });
    this.place.append(bands, this.cursor, lines, this.ring, this.brush);
    this.nameEnds(ends);
  }

  inside(p) {
    return p.px >= this.box.left - 4 && p.px <= this.box.right + 4 && p.py >= this.box.top - 4 && p.py <= this.box.bottom + 4;
  }

  // Names at the lines' ends, moved apart where they would cover each other: all at the right, or each near its line.
  nameEnds(ends) {
    const shortened = (label) => (label.length > 18 ? `${label.slice(0, 17)}…` : label);
    if (this.box.named === "near") {
      const taken = [];
      for (const { at, mark } of ends.sort((a, b) => a.at.py - b.at.py)) {
        let y = at.py;
        while (taken.some((other) => Math.abs(other.y - y) < 14 && Math.abs(other.x - at.px) < 80)) y += 7;
        taken.push({ x: at.px, y });
        this.place.append(svg("text", { class: `end ${mark.look.colour}`, x: at.px + 10, y: y + 4 }, shortened(mark.label)));
      }
      return;
    }
    ends.sort((a, b) => a.at.py - b.at.py);
    ends.forEach((end, index) => (end.y = Math.max(end.at.py, index ? ends[index - 1].y + 15 : this.box.top)));
    let limit = this.box.bottom;
    for (const end of [...ends].reverse()) limit = (end.y = Math.min(end.y, limit)) - 15;
    for (const { at, mark, y } of ends) {
      this.place.append(svg("text", { class: `end ${mark.look.colour}`, x: this.box.right + 10, y: y + 4 }, shortened(mark.label)));
      if (at.px < this.box.right - 12 || Math.abs(at.py - y) > 6) this.place.append(svg("path", { class: `lead ${mark.look.colour}`, d: `M${at.px + 7} ${at.py}L${this.box.right + 6} ${y}` }));
    }
  }

  listen(zoom) {
    const where = (event) => {
      const box = this.place.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    let start = null;
    this.place.addEventListener("pointermove", (event) => {
      const [x, y] = where(event);
      if (start) this.showBrush(start, [x, y]);
      else this.point(x, y);
    });
    this.place.addEventListener("pointerleave", () => start || this.hideTip());
    this.place.addEventListener("blur", () => this.hideTip());
    this.place.addEventListener("keydown", (event) => this.key(event, zoom));
    if (!zoom) return;
    this.place.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse" || event.button || !this.hits.length) return;
      start = where(event);
      this.place.setPointerCapture(event.pointerId);
      this.hideTip();
    });
    const end = (event) => {
      if (!start) return;
      const [from, to] = [start, where(event)];
      start = null;
      this.brush.setAttribute("visibility", "hidden");
      if (event.type === "pointerup" && Math.abs(to[0] - from[0]) > 8) this.zoomTo(from, to);
    };
    this.place.addEventListener("pointerup", end);
    this.place.addEventListener("pointercancel", end);
    this.place.addEventListener("dblclick", () => this.whole());
  }

  showBrush([x0, y0], [x1, y1]) {
    const flat = Math.abs(y1 - y0) < 12;
    const [top, bottom] = flat ? [this.box.top, this.box.bottom] : [Math.min(y0, y1), Math.max(y0, y1)];
    for (const [name, value] of Object.entries({ x: Math.min(x0, x1), y: top, width: Math.abs(x1 - x0), height: bottom - top, visibility: "visible" })) this.brush.setAttribute(name, value);
  }

  zoomTo([x0, y0], [x1, y1]) {
    const sorted = (a, b) => (a < b ? [a, b] : [b, a]);
    const y = Math.abs(y1 - y0) < 12 ? this.domain.y : sorted(this.y.invert(y0), this.y.invert(y1));
    this.setView({ x: sorted(this.x.invert(x0), this.x.invert(x1)), y });
  }

  zoom(factor) {
    if (!this.hits) return;
    const around = (domain, log, full) => {
      const [t, back] = log ? [Math.log, Math.exp] : [(v) => v, (v) => v];
      const [low, high] = domain.map(t);
      const [middle, half] = [(low + high) / 2, ((high - low) / 2) * factor];
      return [Math.max(back(middle - half), full[0]), Math.min(back(middle + half), full[1])];
    };
    const view = { x: around(this.domain.x, this.model.x.log, this.full.x), y: around(this.domain.y, this.model.y.log, this.full.y) };
    const all = [0, 1].every((end) => view.x[end] === this.full.x[end] && view.y[end] === this.full.y[end]);
    if (all) this.whole();
    else this.setView(view);
  }

  setView(view) {
    this.view = { ...view, logX: !!this.model.x.log, logY: !!this.model.y.log };
    this.draw();
  }

  whole() {
    this.view = null;
    this.draw();
  }

  // Read what is nearest to a place; in columns, everything at the same x.
  point(x, y) {
    if (!this.hits || !this.hits.length) return;
    const columns = this.model.columns;
    const far = (p) => (columns ? Math.abs(p.px - x) + Math.abs(p.py - y) / 1000 : Math.hypot(p.px - x, p.py - y));
    this.read(this.hits.reduce((best, p) => (far(p) < far(best) ? p : best)));
  }

  key(event, zoom) {
    const zooms = { "+": 0.6, "=": 0.6, "-": 1 / 0.6 };
    if (zoom && event.key in zooms) this.zoom(zooms[event.key]);
    else if (zoom && event.key === "0") this.whole();
    else if (event.key === "Escape") this.hideTip();
    else if (event.key.startsWith("Arrow") && this.hits.length) this.step(event.key);
    else return;
    event.preventDefault();
  }

  step(key) {
    const order = [...this.hits].sort((a, b) => a.px - b.px || a.py - b.py);
    const forward = key === "ArrowRight" || key === "ArrowDown";
    if (!this.current) return this.read(order[forward ? 0 : order.length - 1]);
    const same = (p) => this.model.columns && Math.abs(p.px - this.current.px) < 2;
    const at = order.findIndex((p) => p.mark === this.current.mark && p.px === this.current.px && p.py === this.current.py);
    const rest = forward ? order.slice(at + 1) : order.slice(0, at).reverse();
    const next = rest.find((p) => !same(p));
    if (next) this.read(next);
  }

  read(nearest) {
    this.current = nearest;
    const together = this.model.columns ? this.hits.filter((p) => Math.abs(p.px - nearest.px) < 2) : [nearest];
    together.sort((a, b) => a.py - b.py);
    const rows = together.slice(0, 14).map((p) =>
      html("div", { class: p === nearest ? "row near" : "row" }, svg("svg", { width: 12, height: 12, viewBox: "-6 -6 12 12", "aria-hidden": "true", class: p.mark.look.colour },
        svg("path", { d: p.mark.look.marker || MARKERS[0], class: "marker" })), html("span", {}, p.mark.label), html("b", {}, p.text)));
    const heading = this.model.heading ? this.model.heading(nearest) : "";
    this.tip.replaceChildren(html("div", { class: "at" }, heading), ...rows);
    if (together.length > 14) this.tip.append(html("div", {}, `and ${together.length - 14} more`));
    this.tip.hidden = false;
    this.light(nearest.mark);
    this.cursor.setAttribute("d", this.model.columns ? `M${nearest.px} ${this.box.top}V${this.box.bottom}` : "");
    this.ring.setAttribute("visibility", this.model.columns ? "hidden" : "visible");
    this.ring.setAttribute("cx", nearest.px);
    this.ring.setAttribute("cy", nearest.py);
    const wide = this.tip.offsetWidth;
    const beside = nearest.px + 16 + wide > this.width ? nearest.px - 16 - wide : nearest.px + 16;
    this.tip.style.left = `${Math.max(0, Math.min(beside, this.width - wide))}px`;
    this.tip.style.top = `${Math.max(0, Math.min(nearest.py - 20, this.box.bottom - this.tip.offsetHeight))}px`;
  }

  light(mark) {
    if (this.lit && this.lit.node) this.lit.node.classList.remove("lit");
    if (mark && mark.node) mark.node.classList.add("lit");
    this.lit = mark;
  }

  hideTip() {
    this.current = null;
    this.light(null);
    this.tip.hidden = true;
    if (this.cursor) this.cursor.setAttribute("d", "");
    if (this.ring) this.ring.setAttribute("visibility", "hidden");
  }

  writeNumbers() {
    if (!this.numbers.open || !this.model) return;
    const { x, y, marks } = this.model;
    const rows = marks.filter((mark) => mark.kind !== "dots").flatMap((mark) => mark.points.map((p) =>
      html("tr", {}, html("th", { scope: "row" }, mark.label), html("td", {}, (x.exact || x.format || compact)(p.x)), html("td", {}, p.text))));
    const head = html("tr", {}, html("th", { scope: "col" }, "series"), html("th", { scope: "col" }, x.label || ""), html("th", { scope: "col" }, y.label));
    const cut = rows.length > 600 ? [html("p", {}, `The first 600 of ${rows.length}.`)] : [];
    this.numbers.lastElementChild.replaceChildren(html("table", {}, html("thead", {}, head), html("tbody", {}, ...rows.slice(0, 600))), ...cut);
  }
}

// -- a table of colours -------------------------------------------------------------------------------------------------------------
//
// `build()` gives {values: rows from the bottom up, x, y: {label, ticks: [[index, text]]}, format, log, marks(place) -> elements, name(row, column)}

class HeatMap {
  constructor(host, { name, build, controls }) {
    Object.assign(this, { host, name, build });
    this.place = svg("svg", { tabindex: 0, role: "application", "aria-roledescription": "heat map" });
    this.tip = html("div", { class: "tip", role: "status", hidden: true });
    this.ends = [html("span", {}), html("span", {})];
    const key = html("div", { class: "rampkey heat" }, this.ends[0], html("i", {}), this.ends[1]);
    host.append(html("div", { class: "controls" }, ...controls), html("div", { class: "plot" }, this.place, this.tip), key);
    const cellAt = (event) => event.target.dataset && event.target.dataset.cell;
    this.place.addEventListener("pointermove", (event) => (cellAt(event) ? this.read(...cellAt(event).split(",").map(Number)) : this.hide()));
    this.place.addEventListener("pointerleave", () => this.hide());
    this.place.addEventListener("blur", () => this.hide());
    this.place.addEventListener("keydown", (event) => this.key(event));
    redraws.add(() => this.draw());
    new ResizeObserver(() => this.host.clientWidth !== this.width && this.draw()).observe(host);
  }

  draw() {
    this.width = this.host.clientWidth;
    if (!this.width) return;
    const model = (this.model = this.build());
    this.at = null;
    this.tip.hidden = true;
    const [rows, columns] = [model.values.length, model.values[0].length];
    const [left, top, bottom] = [64, 12, 46];
    const size = Math.min((Math.min(this.width, 620) - left - 8) / columns, 480 / rows);
    const height = top + rows * size + bottom;
    const right = left + columns * size;
    this.place.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    this.place.setAttribute("height", height);
    this.place.setAttribute("aria-label", `${this.name}, ${rows} by ${columns}; arrow keys read the values.`);
    const usable = model.values.flat().filter((value) => value !== null && (!model.log || value > 0));
    const t = model.log ? Math.log : (value) => value;
    const [low, high] = model.domain || [Math.min(...usable), Math.max(...usable)];
    this.ends.forEach((end, index) => (end.textContent = model.format([low, high][index])));
    this.cells = model.values.map((line, row) => line.map((value, column) => {
      const known = value !== null && (!model.log || value > 0);
      const cell = svg("rect", { class: known ? "cell" : "cell none", "data-cell": `${row},${column}`, x: left + column * size, y: top + (rows - 1 - row) * size, width: size + 0.3, height: size + 0.3 });
      if (known) cell.style.setProperty("--share", (t(value) - t(low)) / (t(high) - t(low) || 1));
      return cell;
    }));
    const grid = svg("g", { class: "grid", "aria-hidden": "true" });
    let last = -Infinity;
    for (const [index, text] of model.x.ticks) {
      const at = left + (index + 0.5) * size;
      if (at - last < text.length * 7 + 8) continue;
      last = at;
      grid.append(svg("text", { x: at, y: top + rows * size + 17, "text-anchor": "middle" }, text));
    }
    last = Infinity;
    for (const [index, text] of model.y.ticks) {
      const at = top + (rows - 1 - index + 0.5) * size;
      if (last - at < 14) continue;
      last = at;
      grid.append(svg("text", { x: left - 8, y: at + 4, "text-anchor": "end" }, text));
    }
    grid.append(svg("text", { class: "name", x: (left + right) / 2, y: height - 8, "text-anchor": "middle" }, model.x.label));
    const place = ([column, row]) => [left + (column + 0.5) * size, top + (rows - 1 - row + 0.5) * size];
    const still = svg("g", { "pointer-events": "none" }, ...(model.marks ? model.marks(place) : []));
    this.place.replaceChildren(...this.cells.flat(), grid, still);
  }

  key(event) {
    const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowUp: [1, 0], ArrowDown: [-1, 0] };
    if (event.key === "Escape") this.hide();
    else if (event.key in moves) {
      const [down, across] = moves[event.key];
      const [row, column] = this.at ? [this.at[0] + down, this.at[1] + across] : [0, 0];
      if (this.cells[row] && this.cells[row][column]) this.read(row, column);
    } else return;
    event.preventDefault();
  }

  read(row, column) {
    this.hide();
    this.at = [row, column];
    const cell = this.cells[row][column];
    cell.classList.add("at");
    const value = this.model.values[row][column];
    this.tip.replaceChildren(html("div", { class: "at" }, this.model.name(row, column)), html("b", {}, value === null ? "not finite" : this.model.format(value)));
    this.tip.hidden = false;
    const beside = +cell.getAttribute("x") + +cell.getAttribute("width") + 10;
    this.tip.style.left = `${Math.max(0, Math.min(beside, this.width - this.tip.offsetWidth))}px`;
    this.tip.style.top = `${Math.max(0, +cell.getAttribute("y") - 20)}px`;
  }

  hide() {
    if (this.at) this.cells[this.at[0]][this.at[1]].classList.remove("at");
    this.at = null;
    this.tip.hidden = true;
  }
}

// -- the sections -------------------------------------------------------------------------------------------------------------------

const hosts = (name) => [...document.querySelectorAll(`[data-chart="${name}"]`)];
const metricNames = Object.keys(data.metrics);
const metricOptions = metricNames.map((name) => [name, data.metrics[name].label]);
const everyone = data.series.map((_, index) => index).filter((index) => data.series[index].points.length);
const visible = (indices) => indices.filter((index) => shown[index]);

// The axes of all curves against sparsity.
const axes = { logX: true, logY: false, particles: false, charts: [] };

function axesControls(host) {
  const set = (name, on) => (value) => {
    axes[name] = value === on;
    axes.charts.forEach((chart) => chart.draw());
  };
  const some = data.series.some((series) => series.points.some((point) => Object.values(point.metrics).some(({ members }) => members.flat().length)));
  host.append(
    choice("Sparsity axis", [["log", "log in what remains"], ["linear", "linear"]], "log", set("logX", "log")),
    choice("Value axis", [["linear", "linear"], ["log", "log"]], "linear", set("logY", "log")),
    ...(some ? [choice("Particles", [["off", "hide"], ["on", "show"]], "off", set("particles", "on"))] : []),
  );
}

function curves(host) {
  let metric = host.dataset.metric;
  const build = () => {
    const marks = [];
    for (const index of visible(everyone)) {
      const having = data.series[index].points.filter((point) => point.metrics[metric]);
      const points = having.map((point) => {
        const { mean, std } = point.metrics[metric];
        const [low, high] = std === null ? [null, null] : [mean - std, mean + std];
        return { x: 100 - point.sparsity, y: mean, low, high, text: point.metrics[metric].text };
      });
      if (axes.particles) {
        const dot = (point) => (value) => ({ x: 100 - point.sparsity, y: value, text: fixed(value, data.metrics[metric].digits) });
        const dots = having.flatMap((point) => point.metrics[metric].members.flat().map(dot(point)));
        marks.push({ kind: "dots", label: `${data.series[index].label}: a particle`, look: look(index), points: dots });
      }
      marks.push({ kind: "line", label: data.series[index].label, look: look(index), points, dots: true });
    }
    const ticks = (low, high, count) => sparsityTicks(low, high, axes.logX, count);
    const format = (remaining) => String(+(100 - remaining).toFixed(3));
    const exact = (remaining) => (100 - remaining).toFixed(2);
    return {
      columns: true,
      heading: (p) => `${exact(p.x)} % sparse`,
      x: { label: "sparsity of the prunable weights, %", log: axes.logX, flip: true, ticks, format, exact },
      y: { label: data.metrics[metric].label, log: axes.logY },
      marks,
    };
  };
  const change = (value) => {
    metric = value;
    chart.whole();
  };
  const chart = new Chart(host, { name: "Error against sparsity", build, controls: [menu("Metric", metricOptions, metric, change)], labels: "right" });
  axes.charts.push(chart);
  chart.draw();
}

function cost(host) {
  let [metric, kind] = [metricNames[0], "cost"];
  const kinds = {
    cost: ["the paper’s", "the paper’s cost so far"],
    training: ["all training", "all training so far"],
    macs: ["the network’s", "one example, forward"],
  };
  const build = () => {
    const indices = visible(everyone);
    const most = Math.max(...indices.flatMap((index) => data.series[index].points.map((point) => point[kind])), 1);
    const [unit, size] = [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["", 1]].find(([, factor]) => most >= factor);
    const points = (index) => data.series[index].points.filter((point) => point.metrics[metric]).map((point) => ({
      x: point[kind] / size,
      y: point.metrics[metric].mean,
      text: point.metrics[metric].text,
      note: `${point.sparsity.toFixed(2)} % sparse, ${compact(point[kind] / size)} ${unit}MACs`,
    }));
    return {
      columns: false,
      heading: (p) => p.note,
      x: { label: `${kinds[kind][1]}, ${unit}MACs`, log: true },
      y: { label: data.metrics[metric].label },
      marks: indices.map((index) => ({ kind: "line", label: data.series[index].label, look: look(index), dots: true, points: points(index) })),
    };
  };
  const controls = [
    menu("Metric", metricOptions, metric, (value) => { metric = value; chart.whole(); }),
    choice("Cost", Object.entries(kinds).map(([key, [label]]) => [key, label]), kind, (value) => { kind = value; chart.whole(); }),
  ];
  const chart = new Chart(host, { name: "Error against cost", build, controls, labels: "near" });
  chart.draw();
}

function particles(host) {
  const withMembers = everyone.filter((index) => data.series[index].points.some((point) => Object.values(point.metrics).some(({ members }) => members.some((m) => m.length))));
  let [metric, chosen] = [metricNames[0], withMembers.find((index) => data.series[index].label === "swamp") ?? withMembers[0]];
  const having = () => data.series[chosen].points.filter((point) => point.metrics[metric]?.members.some((m) => m.length));
  let point = having()[having().length - 1];
  const build = () => {
    const { digits, label } = data.metrics[metric];
    const { values, members } = point.metrics[metric];
    const [single, average, ticks] = [[], [], []];
    let x = 0;
    members.forEach((group, run) => {
      if (!group.length) return;
      const begin = x;
      group.forEach((value, particle) => single.push({ x: x++, y: value, text: fixed(value, digits), note: `particle ${particle}, seed ${data.series[chosen].seeds[run]}` }));
      average.push({ x: x, y: values[run], text: fixed(values[run], digits), note: `average, seed ${data.series[chosen].seeds[run]}` });
      ticks.push([(begin + x) / 2, `seed ${data.series[chosen].seeds[run]}`]);
      x += 2;
    });
    const names = new Map(ticks);
    return {
      columns: false,
      heading: (p) => p.note,
      x: { label: "", domain: [-1, x - 1], ticks: () => ticks.map(([at]) => at), format: (at) => names.get(at) ?? "", exact: (at) => [...single, ...average].find((p) => p.x === at).note },
      y: { label, zero: true },
      marks: [
        { kind: "bars", label: "a particle", look: look(chosen), points: single, width: 0.82, tint: true },
        { kind: "bars", label: "their average", look: look(chosen), points: average, width: 0.82 },
      ],
    };
  };
  const slot = html("div", { class: "slot" });
  const refreshSlider = () => {
    const items = having();
    point = items.find((item) => item.cycle === point.cycle) || items[items.length - 1];
    slot.replaceChildren(slider("Cycle", items, items.indexOf(point), (item) => `${item.cycle}: ${item.sparsity.toFixed(2)} % sparse`, (item) => { point = item; chart.draw(); }));
  };
  const controls = [
    withMembers.length > 1 ? menu("Method", withMembers.map((index) => [index, data.series[index].label]), chosen, (value) => { chosen = +value; refreshSlider(); chart.draw(); }) : null,
    menu("Metric", metricOptions, metric, (value) => { metric = value; refreshSlider(); chart.draw(); }),
    slot,
  ];
  const chart = new Chart(host, { name: "Particles and their average", build, controls, zoom: false, height: 300 });
  refreshSlider();
  chart.draw();
}

function training(host) {
  let run = data.training.find(({ series }) => data.series[series].label === "swamp") || data.training[0];
  let [stage, log] = [null, true];
  const stages = () => [...new Set(run.curves.map((curve) => curve.stage))];
  const marks = (values) => {
    const all = stages();
    return run.curves.filter((curve) => !stage || curve.stage === stage).map((curve) => ({
      kind: "line", label: curve.label, faint: !stage, share: all.length > 1 ? all.indexOf(curve.stage) / (all.length - 1) : 0, look: { colour: "ramp" },
      points: values(curve).map((value, index) => ({ x: index * data.epochStep + 1, y: value, text: value === null ? "–" : compact(value) })),
    }));
  };
  const build = () => ({
    columns: false, heading: (p) => `epoch ${p.x}`,
    x: { label: "epoch", ticks: wholeTicks }, y: { label: "training loss", log },
    marks: marks((curve) => curve.loss),
  });
  const buildRate = () => ({
    columns: false, heading: (p) => `epoch ${p.x}`,
    x: { label: "epoch", ticks: wholeTicks }, y: { label: "learning rate", zero: true },
    marks: marks((curve) => data.rates[curve.rate]),
  });
  const slot = html("div", { class: "slot" });
  const draw = () => { chart.whole(); rate.whole(); };
  const refreshSlider = () => {
    stage = null;
    slot.replaceChildren(slider("Training", [null, ...stages()], 0, (item) => item || `all ${stages().length}, first to last`, (item) => { stage = item; draw(); }));
  };
  const name = ({ series, seed }) => `${data.series[series].label}, seed ${seed}`;
  const controls = [
    data.training.length > 1 ? menu("Run", data.training.map((item, index) => [index, name(item)]), data.training.indexOf(run), (value) => { run = data.training[value]; refreshSlider(); draw(); }) : null,
    slot,
    choice("Loss axis", [["log", "log"], ["linear", "linear"]], "log", (value) => { log = value === "log"; draw(); }),
  ];
  const ramp = html("div", { class: "rampkey", "aria-hidden": "true" }, html("span", {}, "first"), html("i", {}), html("span", {}, "last training"));
  const second = html("div", { class: "chart" });
  const chart = new Chart(host, { name: "Training loss", build, controls, below: ramp });
  host.after(second);
  const rate = new Chart(second, { name: "Learning rate", build: buildRate, zoom: false, height: 190 });
  refreshSlider();
  draw();
}

function layers(host) {
  const recipes = [...new Set(everyone.map((index) => data.series[index].recipe))];
  let [recipe, log] = [recipes[0], true];
  const mine = () => everyone.filter((index) => data.series[index].recipe === recipe && data.series[index].layers.length);
  const cycles = () => [...new Set(mine().flatMap((index) => data.series[index].points.map((point) => point.cycle)))].sort((a, b) => a - b);
  let cycle = cycles().at(-1);
  const build = () => {
    const names = data.series[mine()[0]].layers;
    const short = (name) => name.replace(/\.weight$/, "");
    return {
      columns: true, heading: (p) => names[p.x] ?? "",
      x: { label: "", tilt: true, domain: [-0.5, names.length - 0.5], ticks: () => names.map((_, index) => index), format: (at) => (short(names[at] ?? "").length > 20 ? `…${short(names[at]).slice(-19)}` : short(names[at] ?? "")), exact: (at) => names[at] },
      y: { label: "density of the layer, %", log, zero: !log },
      marks: visible(mine()).flatMap((index) => data.series[index].points.filter((point) => point.cycle === cycle).map((point) => ({
        kind: "line", label: data.series[index].label, look: look(index), dots: names.length < 40,
        points: names.map((name, at) => ({ x: at, y: point.densities[data.series[index].layers.indexOf(name)] })).map((p) => ({ ...p, text: p.y === undefined ? "–" : `${+p.y.toPrecision(4)} %` })),
      }))),
    };
  };
  const sparsityOf = (at) => data.series[mine().find((index) => data.series[index].points.some((point) => point.cycle === at))].points.find((point) => point.cycle === at).sparsity;
  const slot = html("div", { class: "slot" });
  const refreshSlider = () => {
    const items = cycles();
    if (!items.includes(cycle)) cycle = items.at(-1);
    slot.replaceChildren(slider("Cycle", items, items.indexOf(cycle), (at) => `${at}: ${sparsityOf(at).toFixed(2)} % sparse`, (at) => { cycle = at; chart.draw(); }));
  };
  const controls = [
    recipes.length > 1 ? menu("Recipe", recipes.map((name) => [name, name]), recipe, (value) => { recipe = value; refreshSlider(); chart.draw(); }) : null,
    slot,
    choice("Density axis", [["log", "log"], ["linear", "linear"]], "log", (value) => { log = value === "log"; chart.draw(); }),
  ];
  const chart = new Chart(host, { name: "Density of each layer", build, controls, zoom: false, height: 380 });
  refreshSlider();
  chart.draw();
}

const runName = ({ series, seed }) => `${data.series[series].label}, seed ${seed}`;
const runMenu = (items, set) => (items.length > 1 ? menu("Run", items.map((item, index) => [index, runName(item)]), 0, (value) => set(items[value])) : html("div", {}, runName(items[0])));

function connectivity(host) {
  let run = data.connectivity[0];
  const kinds = () => [...new Set(run.paths.map((path) => path.kind))];
  let kind = kinds()[0];
  const measures = [...new Set(data.connectivity.flatMap(({ paths }) => paths.flatMap(({ values }) => Object.keys(values))))];
  let measure = measures[0];
  const build = () => {
    const paths = run.paths.filter((path) => path.kind === kind && path.values[measure]);
    const points = (path) => path.lambdas.map((x, index) => ({ x, y: path.values[measure][index], text: path.values[measure][index] === null ? "–" : compact(path.values[measure][index]) }));
    const mark = (path, index) => ({ kind: "line", label: path.label, share: paths.length > 1 ? index / (paths.length - 1) : 0.6, look: { colour: "ramp" }, points: points(path) });
    return { columns: false, heading: (p) => `λ = ${compact(p.x)}`, x: { label: "λ, from one solution to the other" }, y: { label: measure, zero: true }, marks: paths.map(mark) };
  };
  const slot = html("div", { class: "slot" });
  const refresh = () => {
    if (!kinds().includes(kind)) kind = kinds()[0];
    slot.replaceChildren(choice("Between", kinds().map((name) => [name, name]), kind, (value) => { kind = value; chart.whole(); }));
  };
  const controls = [
    runMenu(data.connectivity, (item) => { run = item; refresh(); chart.whole(); }),
    slot,
    choice("Measure", measures.map((name) => [name, name]), measure, (value) => { measure = value; chart.whole(); }),
  ];
  const chart = new Chart(host, { name: "Loss between solutions", build, controls });
  refresh();
  chart.draw();
}

function surface(host) {
  let plane = data.surfaces[0];
  const measures = Object.keys(plane.values);
  let [measure, log] = [measures[0], true];
  const build = () => {
    const at = (axis, value) => ((value - axis[0]) / (axis[axis.length - 1] - axis[0])) * (axis.length - 1);
    const ticks = (axis) => [0, 0.25, 0.5, 0.75, 1].map((share) => Math.round(share * (axis.length - 1))).map((index) => [index, axis[index].toFixed(1)]);
    const spot = ([x, y]) => [at(plane.x, x), at(plane.y, y)];
    return {
      values: plane.values[measure],
      log,
      x: { label: `distance in weight space; colour: ${measure}`, ticks: ticks(plane.x) },
      y: { ticks: ticks(plane.y) },
      format: compact,
      name: (row, column) => `${measure} at ${plane.x[column].toFixed(2)}, ${plane.y[row].toFixed(2)}`,
      marks: (place) => {
        const circle = (where, attributes, title) => { const [cx, cy] = place(spot(where)); return svg("circle", { cx, cy, ...attributes }, svg("title", {}, title)); };
        const [mx, my] = place(spot(plane.mean));
        return [
          ...plane.particles.map((where, index) => circle(where, { r: 6, class: "dot" }, `particle ${index}`)),
          svg("path", { class: "mark", d: `M${mx - 7} ${my}h14M${mx} ${my - 7}v14` }, svg("title", {}, "mean of the three")),
          ...(plane.average ? [circle(plane.average, { r: 9, class: "mark" }, "the average")] : []),
        ];
      },
    };
  };
  const options = data.surfaces.map((item, index) => [index, `${runName(item)}, ${(100 * item.sparsity).toFixed(2)} % sparse`]);
  const controls = [
    menu("Plane", options, 0, (value) => { plane = data.surfaces[value]; map.draw(); }),
    choice("Measure", measures.map((name) => [name, name]), measure, (value) => { measure = value; map.draw(); }),
    choice("Colours", [["log", "log"], ["linear", "linear"]], "log", (value) => { log = value === "log"; map.draw(); }),
  ];
  const map = new HeatMap(host, { name: "Plane through three particles", build, controls });
  map.draw();
}

const LIKENESS = [["iou", "intersection over union"], ["beyond", "beyond chance"]];

function masks(host) {
  let [run, kind] = [data.masks[0], "iou"];
  const build = () => {
    const ticks = run.rows.map((row, index) => [index, (100 * row.sparsity).toFixed(1)]);
    return {
      values: run[kind], domain: [0, 1], format: (value) => value.toFixed(3),
      x: { label: "sparsity of one mask and of the other, %", ticks }, y: { ticks },
      name: (row, column) => `cycles ${run.rows[row].cycle} and ${run.rows[column].cycle}`,
    };
  };
  const controls = [runMenu(data.masks, (item) => { run = item; map.draw(); }), choice("Likeness", LIKENESS, kind, (value) => { kind = value; map.draw(); })];
  const map = new HeatMap(host, { name: "Masks of a run’s cycles", build, controls });
  map.draw();
}

function pairs(host) {
  let kind = "iou";
  const names = [...new Set(data.pairs.map(({ runs }) => runs.join(" and ")))];
  const build = () => ({
    columns: false, heading: (p) => `${(100 - p.x).toFixed(2)} % sparse`,
    x: { label: "sparsity, %", log: true, flip: true, ticks: (low, high, count) => sparsityTicks(low, high, true, count), format: (v) => String(+(100 - v).toFixed(3)) },
    y: { label: LIKENESS.find(([key]) => key === kind)[1], zero: true },
    marks: names.map((name, index) => ({ kind: "line", label: name, dots: true, look: look(index), points: data.pairs.filter(({ runs }) => runs.join(" and ") === name).map((pair) => ({ x: 100 - 100 * pair.sparsity, y: pair[kind], text: pair[kind].toFixed(3) })) })),
  });
  const chart = new Chart(host, { name: "Masks of different runs", build, controls: [choice("Between runs", LIKENESS, kind, (value) => { kind = value; chart.whole(); })] });
  chart.draw();
}

// One table a metric: a choice of which is seen.
function tables(host) {
  const panels = [...host.querySelectorAll("[data-metric]")];
  if (panels.length < 2) return;
  const show = (name) => panels.forEach((panel) => panel.classList.toggle("folded", panel.dataset.metric !== name));
  host.prepend(html("div", { class: "controls" }, choice("Metric", panels.map((panel) => [panel.dataset.metric, panel.dataset.label]), panels[0].dataset.metric, show)));
  show(panels[0].dataset.metric);
}

function theme(host) {
  const root = document.documentElement;
  const remember = (value) => { try { localStorage.setItem("swamp-theme", value); } catch { /* not from this place */ } };
  const recall = () => { try { return localStorage.getItem("swamp-theme"); } catch { return null; } };
  const set = (value) => {
    if (value === "auto") root.removeAttribute("data-theme");
    else root.dataset.theme = value;
  };
  const begin = ["light", "dark"].includes(recall()) ? recall() : "auto";
  set(begin);
  host.append(choice("Theme", [["auto", "auto"], ["light", "light"], ["dark", "dark"]], begin, (value) => { set(value); remember(value); }));
}

const SECTIONS = { theme, axes: axesControls, curves, cost, particles, training, layers, masks, pairs, connectivity, surface, tables };
for (const [name, mount] of Object.entries(SECTIONS)) for (const host of hosts(name)) mount(host);
for (const host of hosts("legend")) host.append(legend(everyone));
addEventListener("beforeprint", () => redraws.forEach((draw) => draw()));
document.documentElement.dataset.ready = "yes";
