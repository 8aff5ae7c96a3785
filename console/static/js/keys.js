// Single-key shortcuts (WCAG 2.1.4: an operator switches them off in the settings): "/" finds, "?" shows the keys,
// j and k move in lists, x selects a row, "t" theme, "g" then a letter goes somewhere. Pages add their own with onKey().

import { openPalette } from "./palette.js";
import { nextTheme } from "./theme.js";

const PLACES = {
  l: "/", j: "/jobs", m: "/models", w: "/workers", d: "/jobs/-/dead-letters", k: "/keys", h: "/workers/-/hosts",
  r: "/repositories", c: "/accounts", a: "/audit", s: "/settings", q: "/queues",
};
const LINK = "a.row-link, a[href], button";
const GO_MS = 1200;
const own = new Map([
  ["/", openPalette],
  ["?", showKeys],
  ["t", nextTheme],
  ["j", () => move(1)],
  ["k", () => move(-1)],
  ["x", select],
]);
let isGoing = false;

/** @param {string} key @param {() => void} act */
export function onKey(key, act) {
  own.set(key, act);
}

function showKeys() {
  /** @type {HTMLDialogElement|null} */ (document.getElementById("keys"))?.showModal();
}

function rows() {
  const all = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("main tbody tr")]);
  return all.filter((row) => row.offsetParent !== null && row.querySelector(LINK));
}

function at(all) {
  return all.findIndex((row) => row.contains(document.activeElement));
}

/** The link of the next row has the focus: Enter opens it. */
function move(step) {
  const all = rows();
  const from = at(all);
  const to = all[from < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(from + step, 0), all.length - 1)];
  const link = /** @type {HTMLElement|null|undefined} */ (to?.querySelector("a.row-link") ?? to?.querySelector(LINK));
  link?.focus();
}

function select() {
  const all = rows();
  /** @type {HTMLElement|null|undefined} */ (all[at(all)]?.querySelector("input[type=checkbox]:not(:disabled)"))?.click();
}

function isTyping(target) {
  if (target.isContentEditable || document.querySelector("dialog[open]")) return true;
  return /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && !/^(checkbox|radio|button|submit)$/.test(target.type);
}

export function startKeys() {
  if (document.body.dataset.shortcuts === "off") return;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (isGoing) {
      isGoing = false;
      if (PLACES[event.key]) location.href = PLACES[event.key];
    } else if (event.key === "g") {
      isGoing = true;
      setTimeout(() => { isGoing = false; }, GO_MS);
    } else if (own.has(event.key)) {
      event.preventDefault();
      own.get(event.key)();
    }
  });
}
