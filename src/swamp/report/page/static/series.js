// Series that can be switched on and off, in all charts at once.

const data = JSON.parse(document.getElementById("data").textContent);
const metricNames = Object.keys(data.metrics);
const metricOptions = metricNames.map((name) => [name, data.metrics[name].label]);
const metricsOf = (indices) => metricOptions.filter(([name]) => indices.some((index) => data.series[index].points.some((point) => point.metrics[name])));
const everyone = data.series.map((_, index) => index).filter((index) => data.series[index].points.length);
const visible = (indices) => indices.filter((index) => shown[index]);

const shown = data.series.map((series) => series.shown);
const redraws = new Set();
const legends = new Set();
const MARKERS = ["M0-4A4 4 0 1 1 0 4A4 4 0 1 1 0-4Z", "M-3.6-3.6H3.6V3.6H-3.6Z", "M0-4.6L4.4 3.4H-4.4Z", "M0-5L5 0L0 5L-5 0Z", "M0 4.6L4.4-3.4H-4.4Z", "M-1.5-4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5V-1.5H-1.5Z"];
const DASHES = [null, "6 3", "2 3", "9 3 2 3"];
const style = (index) => ({ colour: `s${index % 8}`, dash: DASHES[Math.floor(index / 8) % 4], marker: MARKERS[(index + Math.floor(index / 8)) % 6] });
const look = (index) => style(data.names.indexOf(data.series[index].name));  // a method looks alike in all recipes

function setShown(change) {
  change();
  for (const refresh of [...legends, ...redraws]) refresh();
}

function swatch({ colour, dash, marker }) {
  return svg("svg", { width: 26, height: 12, viewBox: "-13 -6 26 12", "aria-hidden": "true", class: colour },
    svg("path", { d: "M-13 0H13", class: "line", "stroke-dasharray": dash }), svg("path", { d: marker, class: "marker" }));
}

// What a host shows: all series, or those of the recipe that it names, which then need not be named with each.
function members(host) {
  const { recipe } = host.dataset;
  const indices = everyone.filter((index) => !recipe || data.series[index].recipe === recipe);
  return { indices, nameOf: (index) => (recipe ? data.series[index].name : data.series[index].label) };
}

function legend({ indices, nameOf }) {
  const buttons = indices.map((index) => {
    const toggle = () => setShown(() => (shown[index] = !shown[index]));
    return [index, html("button", { type: "button", class: "key", onclick: toggle }, swatch(look(index)), nameOf(index))];
  });
  const refresh = () => buttons.forEach(([index, button]) => button.setAttribute("aria-pressed", String(shown[index])));
  const set = (value) => () => setShown(() => indices.forEach((index) => (shown[index] = value)));
  const whole = indices.length < 3 ? [] : [
    html("button", { type: "button", class: "quiet", onclick: set(true) }, "all"),
    html("button", { type: "button", class: "quiet", onclick: set(false) }, "none"),
  ];
  refresh();
  legends.add(refresh);
  return html("div", { class: "legend", role: "group", "aria-label": "Methods shown" }, ...buttons.map(([, button]) => button), ...whole);
}
