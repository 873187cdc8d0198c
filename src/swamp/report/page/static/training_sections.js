// Particles, trainings, layers.

function particles(host) {
  const withMembers = everyone.filter((index) => data.series[index].points.some((point) => Object.values(point.metrics).some(({ members }) => members.some((m) => m.length))));
  let [metric, chosen] = [metricNames[0], withMembers.find((index) => data.series[index].name === "swamp") ?? withMembers[0]];
  const having = () => data.series[chosen].points.filter((point) => point.metrics[metric]?.members.some((m) => m.length));
  let point = having()[having().length - 1];
  const build = () => {
    const { digits, label } = data.metrics[metric];
    const { values, members, seeds } = point.metrics[metric];
    const [single, average, ticks] = [[], [], []];
    let x = 0;
    members.forEach((group, run) => {
      if (!group.length) return;
      const begin = x;
      group.forEach((value, particle) => single.push({ x: x++, y: value, text: fixed(value, digits), note: `particle ${particle}, seed ${seeds[run]}` }));
      average.push({ x: x, y: values[run], text: fixed(values[run], digits), note: `average, seed ${seeds[run]}` });
      ticks.push([(begin + x) / 2, `seed ${seeds[run]}`]);
      x += 2;
    });
    const names = new Map(ticks);
    return {
      columns: false,
      heading: (p) => p.note,
      x: { label: "", column: "network", domain: [-1, x - 1], ticks: () => ticks.map(([at]) => at), format: (at) => names.get(at) ?? "", exact: (at) => [...single, ...average].find((p) => p.x === at).note },
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
    writeKey();
    slot.replaceChildren(slider("Cycle", items, items.indexOf(point), (item) => `${item.cycle}: ${item.sparsity.toFixed(2)} % sparse`, (item) => { point = item; chart.draw(); }));
  };
  const controls = [
    withMembers.length > 1 ? menu("Method", withMembers.map((index) => [index, data.series[index].label]), chosen, (value) => { chosen = +value; refreshSlider(); chart.draw(); }) : null,
    menu("Metric", metricOptions, metric, (value) => { metric = value; refreshSlider(); chart.draw(); }),
    slot,
  ];
  const square = (tint) => svg("svg", { width: 14, height: 14, class: look(chosen).colour, "aria-hidden": "true" }, svg("rect", { class: `bar${tint}`, width: 14, height: 14, rx: 2 }));
  const key = html("div", { class: "barkey" });
  const writeKey = () => key.replaceChildren(html("span", {}, square(" tint"), "a particle"), html("span", {}, square(""), "their average"));
  const chart = new Chart(host, { name: "Particles and their average", build, controls, zoom: false, height: 300, below: key });
  refreshSlider();
  chart.draw();
}

function training(host) {
  let run = data.training.find(({ series }) => data.series[series].name === "swamp") || data.training[0];
  let [stage, log] = [null, true];
  const stages = () => [...new Set(run.curves.map((curve) => curve.stage))];
  const marks = (points, more) => {
    const all = stages();
    return run.curves.filter((curve) => !stage || curve.stage === stage).map((curve) => ({
      kind: "line", label: curve.label, faint: !stage, share: all.length > 1 ? all.indexOf(curve.stage) / (all.length - 1) : 0, look: { colour: "ramp" },
      points: points(curve), ...more,
    }));
  };
  const byEpoch = (values) => values.map((value, index) => ({ x: index * data.epochStep + 1, y: value, text: value === null ? "–" : compact(value) }));
  const build = () => ({
    columns: false, heading: (p) => `epoch ${p.x}`,
    x: { label: "epoch", ticks: wholeTicks }, y: { label: "training loss", log },
    marks: marks((curve) => byEpoch(curve.loss)),
  });
  const buildRate = () => ({
    columns: false, heading: (p) => `epoch ${p.x}`,
    x: { label: "epoch", ticks: wholeTicks }, y: { label: "learning rate", zero: true },
    marks: marks((curve) => byEpoch(data.rates[curve.rate])),
  });
  const evaluated = Object.entries(data.evaluated).map(([name, { label }]) => [name, label]);
  let metric = evaluated[0]?.[0];
  const buildEvaluated = () => ({
    columns: false, heading: (p) => `epoch ${p.x}`,
    x: { label: "epoch", ticks: wholeTicks }, y: { label: data.evaluated[metric].label, zero: true },
    marks: marks((curve) => (curve.evaluated[metric] || []).map(([x, y]) => ({ x, y, text: fixed(y, data.evaluated[metric].digits) })), { dots: !!stage }),
  });
  const slot = html("div", { class: "slot" });
  const draw = () => { for (const each of charts) each.whole(); };
  const everything = () => (stages().length > 1 ? `all, ${stages()[0]} to ${stages().at(-1)}` : "all");
  const refreshSlider = () => {
    stage = null;
    slot.replaceChildren(slider("Training", [null, ...stages()], 0, (item) => item || everything(), (item) => { stage = item; draw(); }));
  };
  const name = ({ series, seed }) => `${data.series[series].label}, seed ${seed}`;
  const controls = [
    data.training.length > 1 ? menu("Run", data.training.map((item, index) => [index, name(item)]), data.training.indexOf(run), (value) => { run = data.training[value]; refreshSlider(); draw(); }) : null,
    slot,
    choice("Loss axis", [["log", "log"], ["linear", "linear"]], "log", (value) => { log = value === "log"; draw(); }),
  ];
  const ramp = rampKey("first", "last training");
  const charts = [new Chart(host, { name: "Training", build, controls, below: ramp })];
  const after = (options) => {
    const place = html("div", { class: "chart" });
    charts.at(-1).host.after(place);
    charts.push(new Chart(place, { name: "Training", ...options }));
  };
  after({ build: buildRate, zoom: false, height: 190 });
  if (metric) after({ build: buildEvaluated, controls: [menu("Evaluated", evaluated, metric, (value) => { metric = value; charts.at(-1).whole(); })] });
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
      x: { label: "", column: "layer", tilt: true, domain: [-0.5, names.length - 0.5], ticks: () => names.map((_, index) => index), format: (at) => (short(names[at] ?? "").length > 20 ? `…${short(names[at]).slice(-19)}` : short(names[at] ?? "")), exact: (at) => names[at] },
      y: { label: "density of the layer, %", log, zero: !log },
      marks: visible(mine()).flatMap((index) => data.series[index].points.filter((point) => point.cycle === cycle).map((point) => ({
        kind: "line", label: data.series[index].label, look: look(index), dots: names.length < 40,
        points: names.map((name, at) => ({ x: at, y: point.densities[data.series[index].layers.indexOf(name)] })).map((p) => ({ ...p, text: p.y === undefined ? "–" : `${+p.y.toPrecision(4)} %` })),
      }))),
    };
  };
  // Of the sparsities at a cycle that of most methods: some do not reach the one that is asked for.
  const sparsityAt = (at) => {
    const found = mine().flatMap((index) => data.series[index].points.filter((point) => point.cycle === at).map((point) => point.sparsity.toFixed(2)));
    const times = (text) => found.filter((other) => other === text).length;
    return found.reduce((most, text) => (times(text) > times(most) ? text : most));
  };
  const slot = html("div", { class: "slot" });
  const refreshSlider = () => {
    const items = cycles();
    if (!items.includes(cycle)) cycle = items.at(-1);
    slot.replaceChildren(slider("Cycle", items, items.indexOf(cycle), (at) => `${at}: ${sparsityAt(at)} % sparse`, (at) => { cycle = at; chart.draw(); }));
  };
  const controls = [
    recipes.length > 1 ? menu("Recipe", recipes.map((name) => [name, name]), recipe, (value) => { recipe = value; refreshSlider(); chart.draw(); }) : null,
    slot,
    choice("Density axis", [["log", "log"], ["linear", "linear"]], "log", (value) => { log = value === "log"; chart.draw(); }),
  ];
  const chart = new Chart(host, { name: "Layers", build, controls, zoom: false, height: 380 });
  refreshSlider();
  chart.draw();
}
