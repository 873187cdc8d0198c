// A table of colours.
//
// `build()` gives {values: rows from the bottom up, x, y: {label, ticks: [[index, text]]}, format, log, marks(place) -> elements, name(row, column), none}
// `none` says why a value is missing.

class HeatMap {
  constructor(host, { name, build, controls }) {
    Object.assign(this, { host, name, build });
    this.place = svg("svg", { tabindex: 0, role: "application", "aria-roledescription": "heat map" });
    this.tip = html("div", { class: "tip", hidden: true });
    this.ends = [html("span", {}), html("span", {})];
    this.colour = html("b", {});
    const key = html("div", { class: "rampkey heat" }, this.colour, this.ends[0], html("i", {}), this.ends[1]);
    host.append(html("div", { class: "controls" }, ...controls), html("div", { class: "plot" }, this.place, this.tip), key);
    const point = ({ clientX, clientY }) => {
      const cell = document.elementFromPoint(clientX, clientY)?.dataset.cell;  // a finger's moves are all of the cell where it began
      if (cell) this.read(...cell.split(",").map(Number));
      else this.hide();
    };
    this.place.addEventListener("pointermove", point);
    this.place.addEventListener("pointerdown", (event) => event.pointerType === "touch" && point(event));
    this.place.addEventListener("pointerleave", (event) => event.pointerType === "touch" || this.hide());
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
    const size = Math.min((Math.min(this.width, 620) - left - 8) / columns, 480 / rows, 90);
    const height = top + rows * size + bottom;
    const right = left + columns * size;
    this.place.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    this.place.setAttribute("height", height);
    this.place.setAttribute("aria-label", `${this.name}, ${rows} by ${columns}; arrow keys read the values.`);
    const usable = model.values.flat().filter((value) => value !== null && (!model.log || value > 0));
    const t = model.log ? Math.log : (value) => value;
    const [low, high] = model.domain || [Math.min(...usable), Math.max(...usable)];
    this.colour.textContent = model.colour || "";
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
    if (model.contours) still.prepend(svg("path", { class: "contour", d: this.contours(place, t, low, high) }));
    this.place.replaceChildren(...this.cells.flat(), grid, size > 40 && !model.contours ? this.written(place, t, low, high) : "", still);
  }

  // Lines of equal value: each square of four neighbours is cut where its sides pass a level (marching squares).
  contours(place, t, low, high) {
    const { values, contours } = this.model;
    const parts = [];
    for (let step = 1; step <= contours; step++) {
      const level = t(low) + (step / (contours + 1)) * (t(high) - t(low));
      for (let row = 0; row + 1 < values.length; row++)
        for (let column = 0; column + 1 < values[0].length; column++) {
          const corners = [[0, 0], [0, 1], [1, 1], [1, 0]].map(([down, across]) => [column + across, row + down, values[row + down][column + across]]);
          if (corners.some(([, , value]) => value === null || (this.model.log && value <= 0))) continue;
          const cuts = corners.flatMap(([x0, y0, v0], side) => {
            const [x1, y1, v1] = corners[(side + 1) % 4];
            if (t(v0) < level === t(v1) < level) return [];
            const share = (level - t(v0)) / (t(v1) - t(v0));
            return [place([x0 + share * (x1 - x0), y0 + share * (y1 - y0)]).map((at) => at.toFixed(1)).join(" ")];
          });
          for (let cut = 0; cut + 1 < cuts.length; cut += 2) parts.push(`M${cuts[cut]}L${cuts[cut + 1]}`);
        }
    }
    return parts.join("");
  }

  // The numbers themselves, where there is room for them and no contour crosses them.
  written(place, t, low, high) {
    const texts = this.model.values.flatMap((line, row) => line.map((value, column) => {
      if (value === null) return null;
      const [x, y] = place([column, row]);
      const dark = (t(value) - t(low)) / (t(high) - t(low) || 1) > 0.5;
      return svg("text", { class: dark ? "in dark" : "in", x, y: y + 4, "text-anchor": "middle" }, this.model.format(value));
    }));
    return svg("g", { "pointer-events": "none", "aria-hidden": "true" }, ...texts);
  }

  key(event) {
    const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowUp: [1, 0], ArrowDown: [-1, 0] };
    if (event.key === "Escape") this.hide();
    else if (event.key in moves) {
      const [down, across] = moves[event.key];
      const [row, column] = this.at ? [this.at[0] + down, this.at[1] + across] : [0, 0];
      if (this.cells[row] && this.cells[row][column]) this.read(row, column, true);
    } else return;
    event.preventDefault();
  }

  read(row, column, aloud = false) {
    this.hide();
    this.at = [row, column];
    const cell = this.cells[row][column];
    cell.classList.add("at");
    const value = this.model.values[row][column];
    const [name, text] = [this.model.name(row, column), value === null ? this.model.none || "not finite" : this.model.format(value)];
    this.tip.replaceChildren(html("div", { class: "at" }, name), html("b", {}, text));
    if (aloud) say(`${name}: ${text}`);
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
