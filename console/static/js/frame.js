// What every page has: theme, copy buttons, relative times, confirm dialogs, menus, single-key shortcuts.

import { startConfirm } from "./confirm.js";
import { startCopy } from "./copy.js";
import { startKeys } from "./keys.js";
import { startRefused } from "./refused.js";
import { startTheme } from "./theme.js";
import { startTimes } from "./times.js";

startTheme();
startCopy();
startTimes();
startConfirm();
startKeys();
startRefused();

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
document.addEventListener("submit", (event) => {
  const button = event.submitter;
  if (event.defaultPrevented || !button || event.target.method !== "post") return;
  button.disabled = true;
  sent.add(button);
});
window.addEventListener("pageshow", () => {
  for (const button of sent) button.disabled = false;
  sent.clear();
});
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-copy], [data-copy-from]") && event.target.closest(".secret")) isDirty = false;
});
window.addEventListener("beforeunload", (event) => {
  if (isDirty) event.preventDefault();
});
