// GPU lanes: a semaphore for the state, who holds it and what it does with it, the lease running down, who waits,
// and the last ten minutes.

import { attribute, el, icon, keyed, state, svg, text } from "./dom.js";
import { duration, serverNow } from "./times.js";
import { counted } from "./words.js";

const STRIP_S = 600;
const STRIP_WIDTH = 1200;
const STRIP_EVERY_S = 5;
const WORDS = {
  computing: "busy", partly: "in use", loading: "loading", restarting: "restarts its runner", held: "held, idle",
  untold: "held", handover: "handed over", expired: "lease ran out", idle: "free", unknown: "unknown",
};
const ARM = { handover: -22, idle: -45 };
/** Offset from the top and height of an interval in the strip, by state: told apart without colour. */
const BAND = { held: [17, 3], restarting: [11, 9], handover: [7, 6], expired: [0, 8], idle: [18, 2], unknown: [0, 20] };
const HEIGHT = 20;
const SHARE_S = 5;

const percent = (share) => (share > 0 && share < 0.01 ? "under 1%" : `${Math.round(share * 100)}%`);

/** A lane's state in words: that of its lease, and while it is held the share of time in which it is in use. */
function words(row) {
  const found = WORDS[row.word] ?? row.word;
  return row.word === "computing" || row.word === "partly" ? `${found}${row.use === null ? "" : `, ${percent(row.use)}`}` : found;
}

/** A semaphore signal: arm level = the line is taken, arm raised = clear. */
function semaphore() {
  const arm = svg("g", { class: "arm" },
    svg("path", { d: "M13 13h27v8H13l2.5-4z", class: "arm-blade" }),
    svg("rect", { x: "31", y: "13", width: "4", height: "8", class: "arm-stripe" }),
    svg("path", { d: "M22 11l10 12M32 11L22 23", class: "arm-cross" }));
  const node = svg("svg", { class: "semaphore", viewBox: "0 0 48 56", "aria-hidden": "true" },
    svg("path", { d: "M8 54h20", class: "post" }), svg("rect", { x: "16", y: "6", width: "4", height: "48", rx: "1", class: "post-fill" }),
    svg("path", { d: "M15.5 6h5L18 1.5z", class: "finial" }),
    arm, svg("circle", { cx: "18", cy: "17", r: "2.2", class: "pivot" }),
    svg("circle", { cx: "9", cy: "26", r: "4.5", class: "lamp" }));
  return { node, arm };
}

/** A host as people say it: without the boot id behind it, long machine ids cut. @param {string} host */
export function shortHost(host) {
  const name = host.split("/")[0];
  return name.length > 20 ? `${name.slice(0, 12)}…` : name;
}

/** A run that is late by less is about to end: what is usual is a mean. As the gateway has it. */
const SOON_OVER_S = 0.5;

/** How long a run or load has lasted, if long enough to read, and how long it usually takes. */
function spent(run, now) {
  const seconds = now - run.since;
  if (seconds < 1) return "";
  const lasts = `for ${duration(seconds)}`;
  if (!run.expected_s) return lasts;
  if (seconds > run.expected_s + SOON_OVER_S) return `${lasts}, longer than usual (${duration(run.expected_s)})`;
  return run.expected_s >= 0.1 ? `${lasts}, usually ${duration(run.expected_s)}` : lasts;
}

function fact(label, value) {
  return el("div", { class: "lane-fact" }, el("span", { class: "lane-label" }, label), value);
}

class LaneView {
  constructor(gpu, mayRelease, ask) {
    this.gpu = gpu;
    this.signal = semaphore();
    this.name = el("a", { href: `/workers/-/devices/${encodeURIComponent(gpu)}` });
    this.host = el("span", { class: "muted small clip" });
    this.state = state("unknown");
    this.holder = el("a", { class: "lane-value mono clip" });
    this.token = el("span", { class: "lane-value mono" });
    this.since = el("span", { class: "lane-value" });
    this.renewals = el("span", { class: "muted small" });
    this.left = el("span", { class: "lane-value" });
    this.bar = el("progress", { class: "meter", max: "1", value: "0", "aria-label": "Lease time left" });
    this.waiters = el("ol", { class: "waiters" });
    this.waitingNow = new Map();
    this.run = el("span", { class: "lane-run clip" });
    this.runFor = el("span", { class: "lane-run-for muted small clip" });
    this.jobs = el("div", { class: "lane-jobs" });
    this.models = el("span", { class: "muted small clip" });
    this.strip = svg("svg", { class: "strip", viewBox: `0 0 ${STRIP_WIDTH} 20`, preserveAspectRatio: "none", role: "img" });
    this.release = mayRelease ? el("button", { type: "button", class: "button button-small", "data-live-only": "" }, icon("release", "icon-small"), "Ask to release") : null;
    this.release?.addEventListener("click", () => ask(this.row));
    this.node = el("article", { class: "card lane", id: `lane-${gpu}`, "aria-label": `GPU ${gpu}` },
      el("div", { class: "lane-id" }, this.signal.node, el("div", { class: "lane-name" }, el("h3", {}, this.name), this.host, this.state)),
      el("div", { class: "lane-facts" },
        fact("Holder", this.holder),
        fact(el("abbr", { title: "Fencing token: the number of this hold. A larger one wins; writes with a smaller one are refused." }, "Token"), this.token),
        fact("Held for", el("span", { class: "lane-held-for" }, this.since, this.renewals)),
        fact("Lease left", el("span", { class: "lane-lease" }, this.left, this.bar))),
      el("div", { class: "lane-side" }, fact("Waiting for it", this.waiters)),
      el("div", { class: "lane-side" }, fact("Doing now", el("span", { class: "lane-doing" }, this.run, this.runFor)), this.models, this.jobs),
      el("div", { class: "lane-act" }, this.release),
      el("div", { class: "lane-strip" }, this.strip,
        el("div", { class: "strip-axis", "aria-hidden": "true" }, ...["10 min ago", "8", "6", "4", "2", "now"].map((w) => el("span", {}, w)))));
  }

  update(row) {
    this.row = row;
    const { word } = row;
    attribute(this.node, "data-state", word);
    text(this.name, row.name);
    attribute(this.name, "title", row.gpu);
    text(this.host, shortHost(row.host));
    attribute(this.host, "title", row.host);
    attribute(this.state, "data-state", word);
    text(this.state, words(row));
    attribute(this.signal.arm, "transform", `rotate(${ARM[word] ?? 0} 18 17)`);
    text(this.holder, row.holder || (row.next ? `promised to ${row.next}` : "none"));
    attribute(this.holder, "title", row.holder);
    attribute(this.holder, "href", row.holder ? `/workers/${encodeURIComponent(row.holder)}` : null);
    this.holder.classList.toggle("muted", !row.holder);
    text(this.token, row.token || "–");
    text(this.renewals, row.holder ? counted(row.renewals, "renewal") : "");
    this.#waiters(row);
    this.#jobs(row);
    text(this.models, row.models.length ? `resident: ${row.models.join(", ")}` : "");
    text(this.run, row.run ? `${row.run.activity} ${row.run.model}:${row.run.version}` : row.activity === "restarting" ? "no runner yet" : row.word === "partly" || row.word === "computing" ? "short runs" : row.activity === "idle" ? "nothing" : row.holder ? "not said" : "–");
    attribute(this.run, "title", row.run ? `${row.run.model}:${row.run.version}` : null);
    this.run.classList.toggle("muted", !row.run);
    if (this.release) attribute(this.release, "hidden", row.may_release ? null : "");
    const intervals = JSON.stringify(row.strip);
    if (intervals !== this.intervals) {
      this.intervals = intervals;
      this.stripAt = 0;
    }
    this.tick();
  }

  #waiters(row) {
    const none = this.waiters.querySelector(".none");
    if (row.waiters.length) none?.remove();
    keyed(this.waiters, row.waiters.map((w) => w.worker), this.waitingNow, (worker) => {
      const time = el("span", { class: "muted" });
      return { node: el("li", {}, el("span", { class: "mono clip" }, worker), time), time };
    });
    if (!row.waiters.length && !none) this.waiters.append(el("li", { class: "none muted" }, "none"));
  }

  #jobs(row) {
    const key = row.jobs.map((j) => j.id).join() + row.job_count;
    if (key === this.jobsKey) return;
    this.jobsKey = key;
    const groups = new Map();
    for (const job of row.jobs) {
      const name = job.model ? `${job.model}:${job.version}` : "job";
      groups.set(name, [...(groups.get(name) ?? []), job]);
    }
    const shown = [...groups].slice(0, 2).map(([name, jobs]) =>
      el("a", { href: jobs.length > 1 ? `/jobs?state=running&q=${encodeURIComponent(`model:${jobs[0].model}`)}` : `/jobs/${jobs[0].id}`, class: "chip clip", title: jobs.map((job) => job.id).join("\n") },
        el("span", { class: "clip" }, name), el("span", { class: "mono muted" }, jobs.length > 1 ? `× ${jobs.length}` : jobs[0].id.slice(0, 13))));
    const reported = [...groups.values()].slice(0, 2).reduce((sum, jobs) => sum + jobs.length, 0);
    const more = row.job_count - reported;
    this.jobs.replaceChildren(...shown, ...(more > 0 ? [el("span", { class: "muted small" }, `and ${more} more`)] : []));
  }

  /** What moves with the clock: the lease, the waits, the strip. */
  tick() {
    const row = this.row;
    if (!row) return;
    const now = serverNow() / 1000;
    text(this.since, row.holder && row.since ? duration(now - row.since) : "–");
    const left = row.expires_at ? Math.max(0, Math.ceil(row.expires_at - now)) : 0;
    text(this.left, row.holder && row.expires_at ? `${left} s` : "–");
    const share = row.ttl_s ? Math.min(1, left / row.ttl_s) : 0;
    attribute(this.bar, "value", row.holder ? share.toFixed(2) : 0);
    attribute(this.bar, "data-level", share < 0.2 ? "out" : share < 0.5 ? "low" : "ok");
    text(this.runFor, row.run ? spent(row.run, now) : row.word === "held" && row.idle_since ? `for ${duration(now - row.idle_since)}` : "");
    for (const waiter of row.waiters) {
      const view = this.waitingNow.get(waiter.worker);
      if (view) text(view.time, waiter.since ? duration(now - waiter.since) : "");
    }
    if (now >= this.stripAt + STRIP_EVERY_S) {
      this.stripAt = now;
      this.#strip(row, now);
    }
  }

  #strip(row, now) {
    const start = now - STRIP_S;
    const x = (at) => Math.round(Math.max(0, (at - start) / STRIP_S) * STRIP_WIDTH * 10) / 10;
    const marks = [];
    row.strip.forEach(([at, word, owner, token], i) => {
      const end = row.strip[i + 1]?.[0] ?? now;
      if (end < start) return;
      const left = x(at);
      const width = Math.max(word === "handover" || word === "expired" ? 2.5 : 0.8, x(end) - left);
      const [y, height] = BAND[word] ?? BAND.unknown;
      const isTurn = i > 0 && token !== row.strip[i - 1][3];
      const title = `${owner ? `${owner}: ` : ""}${word === "held" ? "held" : WORDS[word] ?? word}${token ? `, token ${token}` : ""}, ${duration(end - at)}`;
      marks.push({ left, width: isTurn ? Math.max(0.8, width - 1.5) : width, y, height, word, title });
    });
    for (const [at, computing, loading] of row.used) {
      if (at + SHARE_S < start) continue;
      const left = x(at);
      const width = Math.max(0.8, x(Math.min(at + SHARE_S, now)) - left);
      const title = `computing ${percent(computing)}, loading ${percent(loading)} of ${SHARE_S} s`;
      const top = HEIGHT * (1 - computing);
      if (computing) marks.push({ left, width, y: top, height: HEIGHT * computing, word: "computing", title });
      if (loading) marks.push({ left, width, y: top - HEIGHT * loading, height: HEIGHT * loading, word: "loading", title });
    }
    while (this.strip.childNodes.length > marks.length) this.strip.lastChild.remove();
    marks.forEach((mark, i) => {
      let bar = this.strip.childNodes[i];
      if (!bar) this.strip.append((bar = svg("rect", {}, svg("title"))));
      attribute(bar, "y", mark.y.toFixed(1));
      attribute(bar, "height", mark.height.toFixed(1));
      attribute(bar, "x", mark.left);
      attribute(bar, "width", mark.width.toFixed(1));
      attribute(bar, "class", `lane-${mark.word}`);
      text(bar.firstChild, mark.title);
    });
    attribute(this.strip, "aria-label", `The last ten minutes: ${counted(row.strip.length, "interval")}, now ${words(row)}`);
  }
}

export class Lanes {
  constructor(host, { mayRelease, ask }) {
    this.host = host;
    this.views = new Map();
    this.make = (gpu) => new LaneView(gpu, mayRelease, ask);
    this.isEmpty = false;
  }

  update(rows) {
    const keys = Object.keys(rows).sort((a, b) => rows[a].host.localeCompare(rows[b].host) || rows[a].name.localeCompare(rows[b].name) || a.localeCompare(b));
    const isEmpty = !keys.length;
    if (isEmpty !== this.isEmpty || !this.views.size) {
      this.isEmpty = isEmpty;
      this.views.clear();
      this.host.replaceChildren(...(isEmpty ? [document.getElementById("lanes-empty").content.cloneNode(true)] : []));
    }
    if (isEmpty) return;
    keyed(this.host, keys, this.views, this.make);
    for (const key of keys) this.views.get(key).update(rows[key]);
  }

  tick() {
    for (const view of this.views.values()) view.tick();
  }
}
