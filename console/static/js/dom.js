// Building and patching elements without HTML text: what comes from outside is only ever text.

const SVG = "http://www.w3.org/2000/svg";

function make(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === false || value === null || value === undefined) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child !== null && child !== undefined) node.append(child);
  return node;
}

/** @param {string} tag @param {Record<string, any>} [attributes] @param {...(Node|string|null)} children */
export function el(tag, attributes, ...children) {
  return make(document.createElement(tag), attributes, children);
}

/** @param {string} tag @param {Record<string, any>} [attributes] @param {...(Node|string|null)} children */
export function svg(tag, attributes, ...children) {
  return make(document.createElementNS(SVG, tag), attributes, children);
}

/** Sets text only if it differs, so that an unchanged cell costs nothing and keeps its selection. */
export function text(node, value) {
  const words = String(value);
  if (node.textContent === words) return;
  if (node.childNodes.length === 1 && node.firstChild.nodeType === Node.TEXT_NODE) node.firstChild.data = words;
  else node.textContent = words;
}

export function attribute(node, name, value) {
  if (value === null || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) {
    node.setAttribute(name, String(value));
  }
}

/** An icon of the sprite the page came with. */
export function icon(name, extra = "") {
  const sprite = document.querySelector(".rail use")?.getAttribute("href")?.split("#")[0] ?? "/static/img/icons.svg";
  return svg("svg", { class: `icon ${extra}`, "aria-hidden": "true" }, svg("use", { href: `${sprite}#${name}` }));
}

/** A state: shape by CSS, word, colour. */
export function state(word, label = word) {
  return el("span", { class: "state", "data-state": word }, label);
}

/**
 * Keeps one element per key in `host`, in the order of `keys`; moves nothing that is in its place.
 * @param {HTMLElement} host @param {string[]} keys @param {Map<string, any>} kept
 * @param {(key: string) => {node: Element}} build
 */
export function keyed(host, keys, kept, build) {
  for (const [key, view] of kept) {
    if (!keys.includes(key)) {
      view.node.remove();
      kept.delete(key);
    }
  }
  let before = null;
  for (const key of keys) {
    let view = kept.get(key);
    if (!view) kept.set(key, (view = build(key)));
    const wanted = before ? before.nextSibling : host.firstChild;
    if (view.node !== wanted) host.insertBefore(view.node, wanted);
    before = view.node;
  }
}
