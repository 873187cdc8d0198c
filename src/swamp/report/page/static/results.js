// Curves against sparsity and against cost.

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

// Where a line passes, and the band around it: a standard deviation below and above.
const meanAndBand = ({ mean, std, text }) => ({ y: mean, low: std === null ? null : mean - std, high: std === null ? null : mean + std, text });

function curves(host) {
  let metric = host.dataset.metric;
  const { indices, nameOf } = members(host);
  const build = () => {
    const marks = [];
    for (const index of visible(indices)) {
      const having = data.series[index].points.filter((point) => point.metrics[metric]);
      const points = having.map((point) => {
        return { x: 100 - point.sparsity, ...meanAndBand(point.metrics[metric]) };
      });
      if (axes.particles) {
        const dot = (point) => (value) => ({ x: 100 - point.sparsity, y: value, text: fixed(value, data.metrics[metric].digits) });
        const dots = having.flatMap((point) => point.metrics[metric].members.flat().map(dot(point)));
        marks.push({ kind: "dots", label: `${nameOf(index)}: a particle`, look: look(index), points: dots });
      }
      marks.push({ kind: "line", label: nameOf(index), look: look(index), points, dots: true });
    }
    const ticks = (low, high, count) => sparsityTicks(low, high, axes.logX, count);
    const exact = (remaining) => (100 - remaining).toFixed(2);
    return {
      columns: true,
      heading: (p) => `${exact(p.x)} % sparse`,
      x: { label: "sparsity of the prunable weights, %", log: axes.logX, flip: true, ticks, shown: sparsityOf, exact },
      y: { label: data.metrics[metric].label, log: axes.logY },
      marks,
    };
  };
  const change = (value) => {
    metric = value;
    chart.whole();
  };
  const chart = new Chart(host, { name: "Results against sparsity", build, controls: [menu("Metric", metricsOf(indices), metric, change)], labels: "right" });
  axes.charts.push(chart);
  chart.draw();
}

function cost(host) {
  const { indices: mine, nameOf } = members(host);
  let [metric, kind] = [metricsOf(mine)[0][0], "cost"];
  const kinds = {
    cost: ["the paper’s", "the paper’s cost so far"],
    training: ["all training", "all training so far"],
    macs: ["the network’s", "one example, forward"],
  };
  const build = () => {
    const indices = visible(mine);
    const most = Math.max(...indices.flatMap((index) => data.series[index].points.map((point) => point[kind])), 1);
    const [unit, size] = [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["", 1]].find(([, factor]) => most >= factor);
    const points = (index) => data.series[index].points.filter((point) => point.metrics[metric]).map((point) => ({
      x: point[kind] / size,
      ...meanAndBand(point.metrics[metric]),
      note: `${point.sparsity.toFixed(2)} % sparse, ${compact(point[kind] / size)} ${unit}MACs`,
    }));
    return {
      columns: false,
      heading: (p) => p.note,
      x: { label: `${kinds[kind][1]}, ${unit}MACs`, log: true },
      y: { label: data.metrics[metric].label },
      marks: indices.map((index) => ({ kind: "line", label: nameOf(index), look: look(index), dots: true, points: points(index) })),
    };
  };
  const controls = [
    menu("Metric", metricsOf(mine), metric, (value) => { metric = value; chart.whole(); }),
    choice("Cost", Object.entries(kinds).map(([key, [label]]) => [key, label]), kind, (value) => { kind = value; chart.whole(); }),
  ];
  const chart = new Chart(host, { name: "Results against cost", build, controls, labels: "near" });
  chart.draw();
}
