// What `swamp analyse` found.

const runName = ({ series, seed }) => `${data.series[series].label}, seed ${seed}`;
const runMenu = (items, set) => (items.length > 1 ? menu("Run", items.map((item, index) => [index, runName(item)]), 0, (value) => set(items[value])) : html("div", {}, runName(items[0])));

const KINDS = { cycles: "successive cycles", particles: "particles", stability: "two trainings" };

function connectivity(host) {
  const runs = data[host.dataset.key];
  let run = runs[0];
  const kinds = () => [...new Set(run.paths.map((path) => path.kind))];
  let kind = kinds()[0];
  const measures = [...new Set(runs.flatMap(({ paths }) => paths.flatMap(({ values }) => Object.keys(values))))];
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
    slot.replaceChildren(choice("Between", kinds().map((name) => [name, KINDS[name] ?? name]), kind, (value) => { kind = value; chart.whole(); }));
  };
  const controls = [
    runMenu(runs, (item) => { run = item; refresh(); chart.whole(); }),
    slot,
    choice("Measure", measures.map((name) => [name, name]), measure, (value) => { measure = value; chart.whole(); }),
  ];
  const chart = new Chart(host, { name: "Loss between solutions", build, controls, labels: "right", below: rampKey("first path", "last") });
  refresh();
  chart.draw();
}

function surface(host) {
  let plane = data.surfaces[0];
  const measures = [...new Set(data.surfaces.flatMap(({ values }) => Object.keys(values)))];
  let [measure, log] = [measures[0], true];
  const build = () => {
    const values = plane.values[measure] || plane.y.map(() => plane.x.map(() => null));
    const at = (axis, value) => ((value - axis[0]) / (axis[axis.length - 1] - axis[0] || 1)) * (axis.length - 1);
    const ticks = (axis) => axis.map((value, index) => [index, fixed(value, 1)]).filter(([index]) => index % Math.ceil(axis.length / 6) === 0);
    const spot = ([x, y]) => [at(plane.x, x), at(plane.y, y)];
    return {
      values,
      log,
      contours: 9,
      colour: measure,
      x: { label: "distance in weight space", ticks: ticks(plane.x) },
      y: { ticks: ticks(plane.y) },
      format: compact,
      name: (row, column) => `${measure} at ${fixed(plane.x[column], 2)}, ${fixed(plane.y[row], 2)}`,
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
    const ticks = run.rows.map((row, index) => [index, (100 * row.sparsity).toFixed(2)]);
    return {
      values: run[kind], domain: [0, 1], colour: LIKENESS.find(([key]) => key === kind)[1], format: (value) => value.toFixed(3),
      x: { label: "sparsity of one mask and of the other, %", ticks }, y: { ticks },
      name: (row, column) => `cycles ${run.rows[row].cycle} and ${run.rows[column].cycle}`,
    };
  };
  const controls = [runMenu(data.masks, (item) => { run = item; map.draw(); }), choice("Likeness", LIKENESS, kind, (value) => { kind = value; map.draw(); })];
  const map = new HeatMap(host, { name: "Masks of a run’s cycles", build, controls });
  map.draw();
}

const MOST_LINES = 6;  // so many pairs of runs are told apart as lines (MOST_LINES in analyses/masks.py)

function pairs(host) {
  const both = [...new Set(data.pairs.map(({ runs }) => runs.join(" and ")))];
  if (both.length > MOST_LINES) pairTable(host);
  else pairLines(host, both);
}

function pairLines(host, both) {
  let kind = "iou";
  const build = () => ({
    columns: false, heading: (p) => `${(100 - p.x).toFixed(2)} % sparse`,
    x: { label: "sparsity, %", log: true, flip: true, ticks: (low, high, count) => sparsityTicks(low, high, true, count), shown: sparsityOf, exact: (v) => (100 - v).toFixed(2) },
    y: { label: LIKENESS.find(([key]) => key === kind)[1], zero: true },
    marks: both.map((name, index) => ({ kind: "line", label: name, dots: true, look: style(index), points: data.pairs.filter(({ runs }) => runs.join(" and ") === name).map((pair) => ({ x: 100 - 100 * pair.sparsity, y: pair[kind], text: pair[kind].toFixed(3) })) })),
  });
  const below = html("div", { class: "linekey" }, ...both.map((name, index) => html("span", {}, swatch(style(index)), name)));
  const chart = new Chart(host, { name: "Masks of different runs", build, below, controls: [choice("Between runs", LIKENESS, kind, (value) => { kind = value; chart.whole(); })] });
  chart.draw();
}

// Each run with each at one cycle. Runs have numbers on the axes, because their names are long; the key below has the names.
function pairTable(host) {
  const names = [...new Set(data.pairs.flatMap(({ runs }) => runs))];
  const cycles = [...new Map(data.pairs.map((pair) => [pair.cycle, pair])).values()].sort((a, b) => a.cycle - b.cycle);
  let [at, kind] = [cycles.at(-1), "iou"];
  const value = (first, second) => {
    if (first === second) return 1;
    const found = data.pairs.find(({ cycle, runs }) => cycle === at.cycle && runs.includes(first) && runs.includes(second));
    return found ? found[kind] : null;
  };
  const ticks = names.map((_, index) => [index, `${index + 1}`]);
  const build = () => ({
    values: names.map((first) => names.map((second) => value(first, second))),
    domain: [0, 1], colour: LIKENESS.find(([key]) => key === kind)[1], format: (likeness) => likeness.toFixed(3), none: "not compared",
    x: { label: "runs, numbered as below", ticks }, y: { ticks },
    name: (row, column) => `${names[row]} and ${names[column]}`,
  });
  const controls = [
    choice("Between runs", LIKENESS, kind, (chosen) => { kind = chosen; map.draw(); }),
    slider("Cycle", cycles, cycles.length - 1, (pair) => `${pair.cycle}: ${(100 * pair.sparsity).toFixed(2)} % sparse`, (pair) => { at = pair; map.draw(); }),
  ];
  const map = new HeatMap(host, { name: "Masks of different runs", build, controls });
  host.append(html("div", { class: "linekey" }, ...names.map((name, index) => html("span", {}, `${index + 1}: ${name}`))));
  map.draw();
}
