// The command palette: Ctrl-K, "/", or the button in the bar. It finds things, pages and acts by name and leads there;
// an act's address ends in "#do=pause", for which the page opens the form whose address ends so, and sends nothing.

import { el } from "./dom.js";

const WAIT_MS = 120;
const dialog = () => /** @type {HTMLDialogElement|null} */ (document.getElementById("palette"));
const input = () => /** @type {HTMLInputElement} */ (document.getElementById("palette-input"));
const list = () => document.getElementById("palette-list");
let timer = 0;
/** @type {AbortController|null} */
let asking = null;

export function openPalette() {
  if (!dialog() || document.querySelector("dialog[open]")) return;
  dialog().showModal();
  input().select();
  ask();
}

function options() {
  return /** @type {HTMLElement[]} */ ([...list().children]);
}

function choose(index) {
  const all = options();
  if (!all.length) return;
  const at = (index + all.length) % all.length;
  all.forEach((one, number) => one.setAttribute("aria-selected", String(number === at)));
  input().setAttribute("aria-activedescendant", all[at].id);
  all[at].scrollIntoView({ block: "nearest" });
}

function chosen() {
  return options().findIndex((one) => one.getAttribute("aria-selected") === "true");
}

function say(words) {
  document.getElementById("palette-status").textContent = words;
}

async function ask() {
  asking?.abort();
  asking = new AbortController();
  try {
    const answer = await fetch(`/find?q=${encodeURIComponent(input().value)}`, { signal: asking.signal });
    if (!answer.ok || !answer.headers.get("content-type")?.includes("json")) throw new Error(String(answer.status));
    show((await answer.json()).items);
  } catch (error) {
    if (error.name === "AbortError") return;
    list().replaceChildren();
    say("The console does not answer. Load the page again.");
  }
}

function show(items) {
  list().replaceChildren(...items.map((item, number) => el(
    "li", { id: `palette-${number}`, role: "option", "aria-selected": "false", "data-href": item.href },
    el("span", { class: "badge" }, item.kind), el("span", { class: "palette-label" }, item.label),
    el("span", { class: "muted small clip" }, item.note),
  )));
  input().setAttribute("aria-expanded", String(items.length > 0));
  input().removeAttribute("aria-activedescendant");
  say(items.length ? `${items.length} found` : "Nothing is called so.");
  choose(0);
}

function go(option) {
  if (!option) return;
  dialog().close();
  location.href = option.dataset.href;
}

function onKey(event) {
  const moves = { ArrowDown: chosen() + 1, ArrowUp: chosen() - 1 };
  if (event.key in moves) choose(moves[event.key]);
  else if (event.key === "Enter") go(options()[chosen()]);
  else return;
  event.preventDefault();
}

/** Opens the form that "#do=..." names: its dialog if it asks first, else the first thing to fill in or press. */
function begin() {
  const wanted = /^#do=([a-z-]+)$/.exec(location.hash)?.[1];
  if (!wanted) return;
  history.replaceState(null, "", location.pathname + location.search);
  const form = /** @type {HTMLFormElement|null} */ (document.querySelector(`main form[action$="/${wanted}"]`));
  if (!form) return;
  for (let part = form.parentElement; part; part = part.parentElement) if (part instanceof HTMLDetailsElement) part.open = true;
  form.scrollIntoView({ block: "center" });
  const fields = "input:not([type=hidden]):not(:disabled), select:not(:disabled), textarea:not(:disabled)";
  const field = /** @type {HTMLElement|null} */ (form.querySelector(fields));
  const button = /** @type {HTMLElement|null} */ (form.querySelector("button:not(:disabled)"));
  (field ?? button)?.focus();
  if (!field && button && form.dataset.confirm) button.click(); // confirm.js asks before anything is sent
}

export function startPalette() {
  if (!dialog()) return;
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    event.preventDefault();
    openPalette();
  });
  document.querySelector("[data-palette]")?.addEventListener("click", openPalette);
  input().addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, WAIT_MS);
  });
  input().addEventListener("keydown", onKey);
  list().addEventListener("click", (event) => go(event.target.closest("[role=option]")));
  dialog().addEventListener("click", (event) => { if (event.target === dialog()) dialog().close(); });
  window.addEventListener("hashchange", begin);
  begin();
}
