// A page that looks again: a topic says when what it shows stands otherwise, or its one row does, and the page's parts
// come from the server anew. A part that somebody uses stays as it is until the next change.

import { LiveLink } from "./live.js";
import { tellLink } from "./pill.js";
import { refresh } from "./times.js";

const PAUSE_MS = 1000;
const { socket, topic, row } = document.querySelector("script[data-socket]").dataset;
const link = new LiveLink(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${socket}`, [topic]);
let shown = "";
let isLooking = false;

/** What is known of what this page shows. */
const now = () => {
  const rows = link.mirror.rows[topic] ?? {};
  return JSON.stringify(row ? rows[row] ?? null : rows);
};

const isUsed = (part) => part.contains(document.activeElement) || (part.querySelector("form") && document.querySelector("dialog[open]"));

function replace(from) {
  for (const part of from.querySelectorAll("[data-live]")) {
    const here = document.querySelector(`[data-live="${part.dataset.live}"]`);
    if (!here || isUsed(here) || here.innerHTML.trim() === part.innerHTML.trim()) continue;
    here.replaceChildren(...part.childNodes);
  }
  refresh();
}

async function look() {
  if (isLooking || now() === shown) return;
  isLooking = true;
  try {
    shown = now();
    const answer = await fetch(location.href, { credentials: "same-origin" });
    if (!answer.ok) return;
    replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    // The console did not answer; the link says so, and the next change looks again.
  } finally {
    setTimeout(() => { isLooking = false; look(); }, PAUSE_MS);
  }
}

link.addEventListener("change", look);
link.addEventListener("link", () => tellLink(link));
tellLink(link);
