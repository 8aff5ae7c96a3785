// Short notes at the edge of the screen, for messages that have no place on the page.

const SHOWN_MS = 10_000;

/** @param {string} text @param {"success"|"warning"|"error"|"info"} tone */
export function toast(text, tone = "info") {
  const host = document.getElementById("toasts");
  if (!host) return;
  const note = document.createElement("div");
  note.className = `message message-${tone}`;
  note.textContent = text;
  host.append(note);
  setTimeout(() => note.remove(), SHOWN_MS);
}
