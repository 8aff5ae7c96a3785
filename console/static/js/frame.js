// What every page has: theme, copy buttons, relative times, confirm dialogs, menus, shortcuts, the palette.

import { startConfirm } from "./confirm.js";
import { startCopy } from "./copy.js";
import { startKeys } from "./keys.js";
import { startPalette } from "./palette.js";
import { startRefused } from "./refused.js";
import { startTheme } from "./theme.js";
import { startTimes } from "./times.js";

startTheme();
startCopy();
startTimes();
startConfirm();
startKeys();
startPalette();
startRefused();

// Of a row of tabs that is wider than the screen, the current one is in sight.
const tab = document.querySelector(".tabs [aria-current]");
if (tab) tab.parentElement.scrollLeft = tab.offsetLeft - (tab.parentElement.clientWidth - tab.offsetWidth) / 2;

document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

// Leaving a page that shows a secret once, or holds unsaved input, asks first.
let isDirty = Boolean(document.querySelector(".secret[data-dirty-warning]"));
document.addEventListener("input", (event) => {
  if (event.target.closest("form[data-dirty-warning]")) isDirty = true;
});
document.addEventListener("submit", () => { isDirty = false; });

// A second click sends nothing: it would make a second key or token.
const sent = new Set();
const values = [];
document.addEventListener("submit", (event) => {
  const button = event.submitter;
  if (event.defaultPrevented || !button || event.target.method !== "post") return;
  if (button.name) { // a button that is off sends no value of its own
    const value = document.createElement("input");
    Object.assign(value, { type: "hidden", name: button.name, value: button.value });
    event.target.append(value);
    values.push(value);
  }
  button.disabled = true;
  sent.add(button);
});
window.addEventListener("pageshow", () => {
  for (const value of values.splice(0)) value.remove();
  for (const button of sent) button.disabled = false;
  sent.clear();
});
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-copy], [data-copy-from]") && event.target.closest(".secret")) isDirty = false;
});
window.addEventListener("beforeunload", (event) => {
  if (isDirty) event.preventDefault();
});
