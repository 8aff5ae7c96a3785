// The worker strip: a worker's state follows from the age of its last heartbeat.

import { attribute, el, keyed, state, text } from "./dom.js";
import { shortHost } from "./lanes.js";
import { duration, serverNow } from "./times.js";
import { rate } from "./words.js";

const LATE_S = 6;
const MODELS_SHOWN = 3;
const number = new Intl.NumberFormat("en");

/** @param {number} bytes */
export function size(bytes) {
  if (!bytes) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1024 ** power).toFixed(power && bytes / 1024 ** power < 100 ? 1 : 0)} ${units[power]}`;
}

class WorkerView {
  constructor(id) {
    this.cells = {};
    const cell = (name, label, kind = "") => (this.cells[name] = el("td", { class: kind || null, "data-label": label }));
    this.state = state("unknown");
    this.note = el("span", { class: "muted small" });
    this.name = el("a", { class: "row-link mono", href: `/workers/${encodeURIComponent(id)}` }, id);
    this.host = el("div", { class: "muted small nowrap" });
    this.node = el("tr", { id: `worker-${id}` },
      el("th", { scope: "row", "data-label": "Worker" }, el("div", {}, this.name, this.host)),
      el("td", { "data-label": "State" }, el("span", {}, this.state, " ", this.note)),
      cell("beat", "Heartbeat", "nowrap"), cell("gpu", "GPU", "wide"), cell("models", "Models", "wide models-of"), cell("hand", "In flight", "num"), cell("rate", "Speed", "num"),
      cell("done", "Done", "num"), cell("failed", "Failed", "num"), cell("memory", "Memory", "num"), cell("up", "Up", "num"));
    this.speed = el("div");
    this.speedOf = el("div", { class: "muted small clip speed-of" });
    this.cells.rate.append(el("div", {}, this.speed, this.speedOf));
  }

  update(row) {
    this.row = row;
    const { cells } = this;
    text(this.host, `${shortHost(row.host)} · pid ${row.pid}`);
    attribute(this.host, "title", row.software);
    text(cells.gpu, row.device);
    attribute(cells.gpu, "title", row.gpu);
    const models = row.models.map((m) => `${m.model}:${m.version}${m.state === "ready" ? "" : ` ${m.state}`}`);
    const more = models.length - MODELS_SHOWN;
    text(cells.models, more > 1 ? `${models.slice(0, MODELS_SHOWN).join(", ")} + ${more} more` : models.join(", ") || "–");
    attribute(cells.models, "title", row.models.map((m) => `${m.model}:${m.version} ${m.state} ${size(m.size_bytes)} ${m.error}`).join("\n"));
    text(cells.hand, number.format(row.running));
    attribute(cells.hand, "title", row.waiting ? `${number.format(row.waiting)} of them not begun` : null);
    text(this.speed, rate(row.jobs_per_s));
    text(this.speedOf, row.ran);
    attribute(cells.rate, "title", row.models.filter((m) => m.jobs_per_s).map((m) => `${m.model} ${rate(m.jobs_per_s)}`).join("\n") || null);
    text(cells.done, number.format(row.done));
    text(cells.failed, number.format(row.failed));
    text(cells.memory, size(row.rss_bytes));
    this.tick();
  }

  tick() {
    const { row } = this;
    const now = serverNow() / 1000;
    const age = Math.max(0, now - row.beat_at);
    const isLate = age > LATE_S && row.state !== "lost" && row.state !== "unknown";
    attribute(this.state, "data-state", isLate ? "late" : row.word);
    text(this.state, isLate ? "late" : row.label);
    const desired = row.is_drain_asked && !["draining", "drained"].includes(row.state) ? `drain asked by ${row.drained_by}` : "";
    text(this.note, desired);
    text(this.cells.beat, age < 2 ? "now" : `${Math.round(age)} s ago`);
    text(this.cells.up, duration(now - row.started_at));
  }
}

export class Workers {
  constructor(body, none) {
    this.body = body;
    this.none = none;
    this.views = new Map();
  }

  update(rows) {
    const keys = Object.keys(rows).sort((a, b) => (rows[a].state === "lost") - (rows[b].state === "lost") || a.localeCompare(b));
    const isEmpty = !keys.length;
    this.body.closest(".table-wrap").hidden = isEmpty;
    if (isEmpty !== this.isEmpty) {
      this.isEmpty = isEmpty;
      this.none.replaceChildren(...(isEmpty ? [document.getElementById("workers-empty").content.cloneNode(true)] : []));
    }
    keyed(this.body, keys, this.views, (id) => new WorkerView(id));
    for (const key of keys) this.views.get(key).update(rows[key]);
  }

  tick() {
    for (const view of this.views.values()) view.tick();
  }
}
