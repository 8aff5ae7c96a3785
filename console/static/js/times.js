// Relative times: <time data-relative datetime="..."> kept current by one timer, on the server's clock
// when a live page has told us how far this computer's clock is off.

let offsetMs = 0;

/** @param {number} serverNowMs the server's clock at this moment */
export function setServerNow(serverNowMs) {
  offsetMs = serverNowMs - Date.now();
}

export function serverNow() {
  return Date.now() + offsetMs;
}

/** 0.4 s, 12 s, 3 min, 2 h 05 min, 4 d @param {number} seconds */
export function duration(seconds) {
  const s = Math.max(0, seconds);
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 90) return `${Math.round(s)} s`;
  const minutes = Math.round(s / 60);
  if (minutes < 90) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 36) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.round(hours / 24)} d`;
}

/** "12 s ago", "in 3 d" @param {number} atMs */
export function relative(atMs) {
  const seconds = (serverNow() - atMs) / 1000;
  if (Math.abs(seconds) < 2) return "now";
  const whole = duration(Math.round(Math.abs(seconds))).replace(".0 s", " s");
  return seconds < 0 ? `in ${whole}` : `${whole} ago`;
}

const stamp = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

/** Times that have just come into the page, and all others. */
export function refresh() {
  for (const element of document.querySelectorAll("time[data-elapsed]")) {
    const words = duration((serverNow() - Date.parse(element.dateTime)) / 1000);
    if (element.textContent !== words) element.textContent = words;
  }
  for (const element of document.querySelectorAll("time[data-relative]")) {
    const at = Date.parse(element.dateTime);
    if (Number.isNaN(at)) continue;
    const words = relative(at);
    if (element.textContent !== words) element.textContent = words;
    if (!element.dataset.titled) {
      element.title = `${stamp.format(at)} · ${new Date(at).toISOString().replace("T", " ").slice(0, 19)} UTC`;
      element.dataset.titled = "1";
    }
  }
}

export function startTimes() {
  refresh();
  setInterval(refresh, 1000);
  document.addEventListener("htmx:afterSwap", refresh);
}
