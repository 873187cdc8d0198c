// Elements and controls. Texts that come from runs are only ever set as text, never as HTML.

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

// What light and dark of a ramp of colours mean.
const rampKey = (first, last) => html("div", { class: "rampkey", "aria-hidden": "true" }, html("span", {}, first), html("i", {}), html("span", {}, last));

// For those who hear the page: what a key has brought up. A pointer says nothing, or it would never be silent.
const say = (text) => (document.getElementById("said").textContent = text);

let serial = 0;
const freshId = (prefix) => `${prefix}-${++serial}`;

// A few choices of which one is taken: radio buttons that look like one control. A single one is a text.
function choice(label, options, value, onchange) {
  if (options.length < 2) return html("div", {}, options[0][1]);
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
