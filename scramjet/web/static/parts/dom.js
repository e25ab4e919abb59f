/** Building and changing elements. Text from the server is only ever set as text, never as HTML. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an element: element("button", {class: "button", on: {click: save}}, "Save").
 * @param {string} tag
 * @param {Object} properties attributes by name; `on` holds listeners, `hidden`, `disabled` and `checked` booleans;
 *   undefined, null and false leave an attribute out
 * @param {...(Node|string|number|null|undefined)} children
 */
export function element(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** The same for SVG elements. */
export function svg(tag, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(node, { on = {}, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const [event, listener] of Object.entries(on)) node.addEventListener(event, listener);
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

/** Put these children in place of those that an element has. */
export function replace(node, ...children) {
  node.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

/** Set an element's text, touching the page only where it changes. */
export function setText(node, text) {
  const wanted = String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

/** Run `work` at most once in `milliseconds`, the last call never lost; `cancel` drops what waits. */
export function throttled(work, milliseconds) {
  let timer = null;
  let last = -Infinity;
  const run = () => {
    timer = null;
    last = performance.now();
    work();
  };
  const call = () => {
    if (timer !== null) return;
    timer = setTimeout(run, Math.max(0, last + milliseconds - performance.now()));
  };
  call.cancel = () => {
    clearTimeout(timer);
    timer = null;
  };
  return call;
}
