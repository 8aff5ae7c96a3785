// The live board: one link, one view per topic, Freeze, and a notice when data are stale.

import { Throughput } from "./charts.js";
import { attribute, el, icon, text } from "./dom.js";
import { Fetches } from "./fetches.js";
import { onKey } from "./keys.js";
import { Lanes } from "./lanes.js";
import { LiveLink } from "./live.js";
import { tellLink } from "./pill.js";
import { Queues } from "./queues.js";
import { Ticker } from "./ticker.js";
import { serverNow } from "./times.js";
import { toast } from "./toast.js";
import { counted } from "./words.js";
import { Workers } from "./workers.js";

const $ = (id) => document.getElementById(id);
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

class Plain {
  /** @param {HTMLElement} host @param {(rows: any) => Node[]} draw */
  constructor(host, draw) {
    this.host = host;
    this.draw = draw;
  }

  update(rows) {
    const key = JSON.stringify(rows);
    if (key === this.key) return;
    this.key = key;
    this.host.replaceChildren(...this.draw(rows));
  }

  tick() {}
}

function alarms(rows) {
  return Object.values(rows).sort((a, b) => (a.as_of > 0) - (b.as_of > 0) || a.level.localeCompare(b.level) || a.since - b.since).map((alarm) => {
    const said = alarm.as_of ? `${alarm.text} (as of ${clock.format(alarm.as_of * 1000)})` : alarm.text;
    const words = alarm.href.startsWith("/") ? el("a", { href: alarm.href }, said) : said;
    const hint = alarm.hint ? el("span", { class: "muted small" }, ` ${alarm.hint}`) : null;
    return el("div", { class: `message message-${alarm.as_of ? "neutral" : alarm.level}` }, icon(alarm.level), el("div", {}, words, hint));
  });
}

/** Each has its place from the first on, also those that are measured only while somebody watches; "scaling" is there while something scales. */
const HEALTH = { nats: "NATS", workers: "Workers", lanes: "GPU time in use", controller: "Controller", projector: "Job list", storage: "Storage", dead: "Dead letters" };
function health(rows) {
  const shown = rows.scaling ? { nats: HEALTH.nats, workers: HEALTH.workers, scaling: rows.scaling.name, ...HEALTH } : HEALTH;
  return Object.entries(shown).map(([key, name]) => {
    const row = rows[key] ?? { name, state: "unknown", value: "…" };
    const parts = [el("span", { class: "stat-label" }, row.name), el("span", { class: "stat-value health-value", "data-state": row.state }, row.value), el("span", { class: "stat-note" }, row.note || "\u00a0")];
    return row.href ? el("a", { class: "stat", href: row.href }, ...parts) : el("div", { class: "stat" }, ...parts);
  });
}

const release = /** @type {HTMLFormElement|null} */ ($("release"));
function askRelease(row) {
  $("release-gpu").value = row.gpu;
  const first = row.waiters[0]?.worker;
  release.dataset.confirmTitle = `Ask ${row.holder} to release ${row.name}`;
  release.dataset.confirm = `It finishes the running batch and then hands ${row.name} over${first ? ` to ${first}, the first waiter` : "; no worker waits, so it may take it again"}. No job is lost.`;
  release.requestSubmit();
}

release?.addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    const response = await fetch(release.action, { method: "POST", body: new FormData(release), headers: { Accept: "application/json" } });
    const answer = await response.json();
    toast(answer.message, response.ok ? "success" : "error");
  } catch {
    toast("The console did not answer. Nothing is known of the request.", "error");
  }
});

const views = {
  lanes: new Lanes($("lanes"), { mayRelease: Boolean(release), ask: askRelease }),
  fetches: new Fetches($("fetches")),
  queues: new Queues($("queues"), $("queues-none"), { fold: $("queues-fold"), filter: $("queues-filter"), note: $("queues-note") }),
  workers: new Workers($("workers"), $("workers-none")),
  ticker: new Ticker($("ticker")),
  throughput: new Throughput($("throughput"), $("throughput-at"), $("throughput-rows")),
  health: new Plain($("health"), health),
  alarms: new Plain($("alarms"), alarms),
};

const socket = document.querySelector("script[data-socket]").dataset.socket;
const url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${socket}`;
const link = new LiveLink(url, Object.keys(views));

// ---------------------------------------------------------------- freeze

const frozen = { is: false, changes: 0 };
const freeze = $("freeze");

function setFrozen(isFrozen) {
  frozen.is = isFrozen;
  frozen.changes = 0;
  attribute(freeze, "aria-pressed", isFrozen);
  text(freeze.querySelector("span"), isFrozen ? "Frozen" : "Freeze");
  if (!isFrozen) for (const topic of Object.keys(views)) show(topic);
}

const unfed = new Set(Object.keys(views));
function show(topic) {
  const held = topic === "ticker" ? link.mirror.entries[topic] : link.mirror.rows[topic];
  if (!held) return;
  views[topic].update(held);
  if (unfed.delete(topic) && !unfed.size) $("unfed").remove();
}

freeze.addEventListener("click", () => setFrozen(!frozen.is));
onKey("f", () => setFrozen(!frozen.is));

const due = new Set();
link.addEventListener("change", (event) => {
  if (frozen.is) {
    frozen.changes += 1;
    text(freeze.querySelector("span"), `Frozen · ${counted(frozen.changes, "change")} waiting`);
    return;
  }
  due.add(event.detail);
  if (due.size === 1) {
    requestAnimationFrame(() => {
      const topics = [...due];
      due.clear();
      if (!frozen.is) for (const topic of topics) show(topic);
    });
  }
});

setInterval(() => {
  if (!frozen.is) for (const view of Object.values(views)) view.tick();
}, 1000);

// ---------------------------------------------------------------- the state of the link

function tell() {
  tellLink(link);
  const isStale = link.state === "down" || link.state === "blind" || link.state === "ended";
  for (const button of document.querySelectorAll("[data-live-only]")) button.disabled = isStale;
  $("stale").hidden = !isStale;
  $("content").toggleAttribute("data-stale", isStale);
  views.queues.setStale(isStale);
  if (!isStale) return;
  const shown = clock.format(serverNow() - (performance.now() - link.seenAt));
  const words2 = {
    down: `Reconnecting… showing what was true at ${shown}.`,
    blind: `The console cannot reach NATS${link.source.since ? ` (since ${clock.format(link.source.since * 1000)})` : ""}. What is shown may be old; it comes back by itself.`,
    ended: link.ended === "not allowed" ? "Your role may not see the live board." : "You have been logged out. Load the page again to log in.",
  };
  text($("stale-text"), words2[link.state]);
}

let wasAway = false;
link.addEventListener("link", () => {
  tell();
  if (link.state === "live" && wasAway) toast("Back live.", "success");
  wasAway = ["down", "blind"].includes(link.state);
});
tell();
