// Single-key shortcuts (WCAG 2.1.4: can be switched off, in the settings): "/" search, "t" theme,
// "g" then l/j/m/r/w/k/c/a/s to go somewhere. Pages add their own with onKey().

import { nextTheme } from "./theme.js";

const PLACES = { l: "/", j: "/jobs", m: "/models", r: "/repositories", w: "/workers", k: "/keys", c: "/accounts", a: "/audit", s: "/settings" };
const own = new Map();
let isGoing = false;

/** @param {string} key @param {() => void} act */
export function onKey(key, act) {
  own.set(key, act);
}

function isOff() {
  try {
    return localStorage.getItem("signalbox.shortcuts") === "off";
  } catch {
    return false;
  }
}

function isTyping(target) {
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || Boolean(document.querySelector("dialog[open]"));
}

export function startKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isOff() || isTyping(event.target)) return;
    if (isGoing) {
      isGoing = false;
      if (PLACES[event.key]) location.href = PLACES[event.key];
      return;
    }
    if (event.key === "g") {
      isGoing = true;
      setTimeout(() => { isGoing = false; }, 1200);
    } else if (event.key === "/") {
      event.preventDefault();
      document.getElementById("search")?.focus();
    } else if (event.key === "t") {
      nextTheme();
    } else {
      own.get(event.key)?.();
    }
  });
}
