// A chart of lines, bars and dots.
//
// `build()` gives what is to be drawn now:
//   x, y     {label, column, log, zero, flip, ticks(low, high, count), shown(value), format(value), exact(value)}
//            zero: the axis begins at 0; shown: the number that stands at a tick; column: its name in the table, where there is no label
//   marks    {kind: "line" | "bars", label, look, points: [{x, y, low, high, text}], dots, faint, width, tint}
//   columns  whether what stands at the same x is read together

const NAME = 18;  // letters of a name at a line's end
const MOST_NAMES = 12;  // lines that are named at their ends
const CLOSEST = 1000;  // of the whole axis, the smallest part that a zoom can show

class Chart {
  constructor(host, { name, build, height, controls, zoom = true, labels = false, below }) {
    Object.assign(this, { host, name, build, height, labels });
    this.view = null;
    this.place = svg("svg", { tabindex: 0, role: "application", "aria-roledescription": "chart" });
    this.tip = html("div", { class: "tip", hidden: true });
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
    this.place.setAttribute("aria-label", `${[...new Set([this.name, this.host.dataset.recipe, model.y.label])].filter(Boolean).join(", ")}. ${model.marks.length} series; arrow keys read the values.`);
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
    const texts = (axis, ticks) => (axis.format ? ticks.map(axis.format) : tickTexts(ticks.map(axis.shown || ((tick) => tick)), !axis.log));
    const yTexts = texts(y, yTicks);
    const lines = model.marks.filter(({ kind }) => kind === "line");
    this.names = this.labels && this.width > 460 && lines.length <= MOST_NAMES ? shortNames(lines) : new Map();
    const named = this.names.size ? this.labels : null;
    const longest = Math.max(...[...this.names.values()].map((name) => name.length));
    const right = named ? Math.min(20 + longest * 7.6, 150) : 16;
    const byValues = 14 + Math.max(...yTexts.map((text) => text.length), 2) * 7;
    const byFirstName = x.tilt ? 6 + 4.6 * x.format(x.ticks()[0]).length - (this.width - right) / x.ticks().length / 2 : 0;  // it ends at its tick
    const left = Math.max(byValues, byFirstName);
    const bottom = x.tilt ? Math.min(104, 28 + 4.8 * Math.max(...x.ticks().map((tick) => x.format(tick).length))) : 46;
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
    const xTexts = texts(x, xTicks);
    for (const [text, at] of xTicks.map((tick, index) => [xTexts[index], this.x(tick)]).sort((a, b) => a[1] - b[1])) {
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
      const pixels = mark.points.filter((p) => this.canShow(p)).map((p) => ({ ...p, px: this.x(p.x), py: this.y(p.y), mark }));
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
        const group = svg("g", {});
        if (mark.share !== undefined) group.style.setProperty("--share", mark.share);
        if (pixels.length > 1) group.append((mark.node = svg("path", { class: `line ${mark.look.colour}${mark.faint ? " faint" : ""}`, d: this.path(mark.points), "stroke-dasharray": mark.look.dash })));
        if (mark.dots || pixels.length === 1)
          for (const p of pixels) group.append(svg("path", { class: `marker ${mark.look.colour}`, d: mark.look.marker || MARKERS[0], transform: `translate(${p.px.toFixed(1)} ${p.py.toFixed(1)})` }));
        lines.append(group);
        const inside = pixels.filter((p) => this.inside(p)).sort((a, b) => a.px - b.px);
        if (this.names.has(mark) && inside.length) ends.push({ at: inside[inside.length - 1], mark });
      }
      this.hits.push(...pixels.filter((p) => this.inside(p)));
    }
    this.cursor = svg("path", { class: "cursor" });
    this.ring = svg("circle", { class: "ring", r: 8, visibility: "hidden" });
    this.brush = svg("rect", { class: "brush", visibility: "hidden" });
    this.place.append(bands, this.cursor, lines, this.ring, this.brush);
    this.nameEnds(ends);
  }

  canShow({ x, y }) {
    const { model } = this;
    return Number.isFinite(x) && Number.isFinite(y) && (!model.y.log || y > 0) && (!model.x.log || x > 0);
  }

  // A line through points, broken where one cannot be shown: what lies there is not between its neighbours.
  path(points) {
    const steps = points.map((p, index) => this.canShow(p) && `${index && this.canShow(points[index - 1]) ? "L" : "M"}${this.x(p.x).toFixed(1)} ${this.y(p.y).toFixed(1)}`);
    return steps.filter(Boolean).join("");
  }

  inside(p) {
    return p.px >= this.box.left - 4 && p.px <= this.box.right + 4 && p.py >= this.box.top - 4 && p.py <= this.box.bottom + 4;
  }

  // Names at the lines' ends, moved apart where they would cover each other: all at the right, or each near its line.
  nameEnds(ends) {
    if (this.box.named === "near") {
      const taken = [];
      for (const { at, mark } of ends.sort((a, b) => a.at.py - b.at.py)) {
        let y = at.py;
        while (taken.some((other) => Math.abs(other.y - y) < 14 && Math.abs(other.x - at.px) < 80)) y += 7;
        taken.push({ x: at.px, y });
        this.place.append(this.end(mark, at.px + 10, y + 4));
      }
      return;
    }
    ends.sort((a, b) => a.at.py - b.at.py);
    ends.forEach((end, index) => (end.y = Math.max(end.at.py, index ? ends[index - 1].y + 15 : this.box.top)));
    let limit = this.box.bottom;
    for (const end of [...ends].reverse()) limit = (end.y = Math.min(end.y, limit)) - 15;
    for (const { at, mark, y } of ends) {
      this.place.append(this.end(mark, this.box.right + 10, y + 4));
      if (at.px < this.box.right - 12 || Math.abs(at.py - y) > 6) this.place.append(svg("path", { class: `lead ${mark.look.colour}`, d: `M${at.px + 7} ${at.py}L${this.box.right + 6} ${y}` }));
    }
  }

  end(mark, x, y) {
    const text = svg("text", { class: `end ${mark.look.colour}`, x, y }, this.names.get(mark), svg("title", {}, mark.label));
    if (mark.share !== undefined) text.style.setProperty("--share", mark.share);
    return text;
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
    // a finger that is lifted leaves: what it has tapped stays to be read
    this.place.addEventListener("pointerdown", (event) => event.pointerType === "touch" && this.point(...where(event)));
    this.place.addEventListener("pointerleave", (event) => start || event.pointerType === "touch" || this.hideTip());
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
    const between = (name, a, b) => {
      const t = this.model[name].log ? Math.log : (v) => v;
      const [low, high] = sorted(this[name].invert(a), this[name].invert(b));
      const [first, last] = this.full[name];
      return t(high) - t(low) < (t(last) - t(first)) / CLOSEST ? this.domain[name] : [low, high];
    };
    this.setView({ x: between("x", x0, x1), y: Math.abs(y1 - y0) < 12 ? this.domain.y : between("y", y0, y1) });
  }

  zoom(factor) {
    if (!this.full) return;
    const { left, right, top, bottom } = this.box;
    const aim = this.current || this.nearest((p) => Math.hypot(p.px - (left + right) / 2, p.py - (top + bottom) / 2));  // stays where it is
    const around = (name) => {
      const [t, back] = this.model[name].log ? [Math.log, Math.exp] : [(v) => v, (v) => v];
      const [[low, high], [first, last]] = [this.domain[name].map(t), this.full[name].map(t)];
      const part = Math.max(((high - low) / (last - first)) * factor, 1 / CLOSEST);
      if (part > 0.999) return this.full[name];
      const [at, span] = [aim ? t(aim[name]) : (low + high) / 2, part * (last - first)];
      const begin = Math.min(Math.max(at - ((at - low) / (high - low)) * span, first), last - span);
      return [back(begin), back(begin + span)];
    };
    const view = { x: around("x"), y: around("y") };
    if (view.x === this.full.x && view.y === this.full.y) this.whole();
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
    this.read(this.nearest(far));
  }

  nearest(far) {
    return this.hits.reduce((best, p) => (best && far(best) <= far(p) ? best : p), null);
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
    if (!this.current) return this.read(order[forward ? 0 : order.length - 1], true);
    const same = (p) => this.model.columns && Math.abs(p.px - this.current.px) < 2;
    const at = order.findIndex((p) => p.mark === this.current.mark && p.px === this.current.px && p.py === this.current.py);
    const rest = forward ? order.slice(at + 1) : order.slice(0, at).reverse();
    const next = rest.find((p) => !same(p));
    if (next) this.read(next, true);
  }

  read(nearest, aloud = false) {
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
    if (aloud) say([heading, ...together.slice(0, 14).map((p) => `${p.mark.label}: ${p.text}`)].join("; "));
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
    const head = html("tr", {}, html("th", { scope: "col" }, "series"), html("th", { scope: "col" }, x.label || x.column), html("th", { scope: "col" }, y.label));
    const cut = rows.length > 600 ? [html("p", {}, `The first 600 of ${rows.length}.`)] : [];
    this.numbers.lastElementChild.replaceChildren(html("table", {}, html("thead", {}, head), html("tbody", {}, ...rows.slice(0, 600))), ...cut);
  }
}

// Names at the ends of lines: short, and no two alike. Of long ones, what all share is left out first, then the
// settings' names; what still looks alike has none.
function shortNames(marks) {
  const labels = marks.map((mark) => mark.label);
  const words = labels.map((label) => label.split(" "));
  const own = words.map((mine, index) => mine.filter((word) => !words.every((others) => others.includes(word))).join(" ") || labels[index]);
  const head = (label) => (label.length > NAME ? `${label.slice(0, NAME - 1)}…` : label);
  const tail = (label) => (label.length > NAME ? `…${label.slice(1 - NAME)}` : label);
  const alone = (names) => names.filter((name) => names.indexOf(name) === names.lastIndexOf(name)).length;
  const tries = [labels.map(head), own.map(head), own.map(tail), own.map((label) => head(label.replace(/\S+=/g, "")))];
  const best = tries.reduce((one, other) => (alone(other) > alone(one) ? other : one));
  return new Map(marks.map((mark, index) => [mark, best[index]]).filter(([, name]) => best.indexOf(name) === best.lastIndexOf(name)));
}
