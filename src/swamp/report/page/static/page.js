// The page: which section is drawn by what.

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

const hosts = (name) => [...document.querySelectorAll(`[data-chart="${name}"]`)];
const SECTIONS = { theme, axes: axesControls, curves, cost, particles, training, layers, masks, pairs, connectivity, surface, tables };
for (const [name, mount] of Object.entries(SECTIONS))
  for (const host of hosts(name))
    try {
      mount(host);
    } catch (error) {
      host.replaceChildren(html("p", { class: "note" }, "This could not be drawn."));  // the rest of the page can
      console.error(error);
    }
for (const host of hosts("legend")) host.append(legend(members(host)));
addEventListener("beforeprint", () => redraws.forEach((draw) => draw()));
document.documentElement.dataset.ready = "yes";
