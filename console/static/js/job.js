// The page of an open job: follows the job's topic. What a new record changes comes from the server as the page
// would show it, part by part; why it waits and when it starts come with the topic. Forms are in no such part but the
// acts, which stay while somebody uses them.

import { text } from "./dom.js";
import { LiveLink } from "./live.js";
import { tellLink } from "./pill.js";
import { refresh } from "./times.js";

const root = document.getElementById("live-job");
const { job, parts } = root.dataset;
const topic = `job:${job}`;
const socket = document.querySelector("script[data-socket]").dataset.socket;
const link = new LiveLink(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${socket}`, [topic]);
const ENDS = ["succeeded", "failed", "cancelled", "expired"];

const shown = { revision: Number(root.dataset.revision), key: "" };
let fetching = false;

function replace(from) {
  for (const part of from.querySelectorAll("[data-live]")) {
    const here = document.querySelector(`[data-live="${part.dataset.live}"]`);
    if (!here || here.innerHTML.trim() === part.innerHTML.trim()) continue;
    if (part.dataset.live === "acts" && (here.contains(document.activeElement) || document.querySelector("dialog[open]"))) continue;
    here.replaceChildren(...part.childNodes);
  }
  refresh();
}

async function follow() {
  if (fetching) return;
  fetching = true;
  try {
    for (let row = now(); row && keyOf(row) !== shown.key; row = now()) {
      const key = keyOf(row);
      const answer = await fetch(`${parts}?revision=${row.revision}`, { credentials: "same-origin" });
      if (!answer.ok) return;
      replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
      shown.key = key;
      if (ENDS.includes(row.state)) link.end("over");
    }
  } catch {
    // The console did not answer; the link says so, and the next change asks again.
  } finally {
    fetching = false;
  }
}

const now = () => link.mirror.rows[topic]?.[job];
/** What the words that come with the topic cannot show. */
const keyOf = (row) => `${row.revision} ${row.state} ${row.words} ${row.tone}`;

link.addEventListener("change", () => {
  const row = now();
  if (!row) return;
  const why = document.querySelector('[data-text="why"]');
  if (why && row.why) text(why, row.why[0].toUpperCase() + row.why.slice(1));
  const starts = document.querySelector('[data-text="starts"]');
  if (starts) text(starts, row.starts);
  follow();
});
link.addEventListener("link", () => tellLink(link));
tellLink(link);
