// The throughput chart: stacked bars of what ended, a line of what was accepted. Plain SVG, with a table beside it.

import { attribute, el, svg, text } from "./dom.js";
import { serverNow } from "./times.js";

const SPAN_S = 900;
const BUCKET_S = 5;
const SLOTS = SPAN_S / BUCKET_S;
const HEIGHT = 160;
const WIDTH = 900;
const PARTS = [["succeeded", "share-6"], ["failed", "share-4"], ["cancelled", "share-5"], ["retried", "share-3"]];
const minute = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const second = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** The next of 1, 2, 5, 10, 20, 50 ... that is not below `value`. */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((m) => m * power).find((m) => m >= value) ?? value;
}

/** One span for each of `labels`; what has not changed is not touched. */
function words(host, labels) {
  while (host.childNodes.length < labels.length) host.append(el("span"));
  labels.forEach((label, i) => text(host.childNodes[i], label));
}

export class Throughput {
  constructor(host, note, body) {
    this.note = note;
    this.body = body;
    this.rows = {};
    this.grid = svg("g", { class: "chart-grid" });
    this.bars = svg("g");
    this.line = svg("polyline", { class: "chart-line", fill: "none" });
    this.cross = svg("line", { class: "chart-cross", y1: "0", y2: String(HEIGHT), visibility: "hidden" });
    this.plot = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": "Throughput; the table below holds the figures" }, this.grid, this.bars, this.line, this.cross);
    this.scale = el("div", { class: "chart-scale", "aria-hidden": "true" });
    this.axis = el("div", { class: "chart-axis", "aria-hidden": "true" });
    host.replaceChildren(this.scale, el("div", { class: "chart-plot" }, this.plot), this.axis);
    this.caption = note.textContent;
    this.plot.addEventListener("pointermove", (event) => this.#point(event));
    this.plot.addEventListener("pointerleave", () => this.#unpoint());
    for (const share of [0, 0.5]) this.grid.append(svg("line", { x1: "0", x2: String(WIDTH), y1: String(HEIGHT * share + 0.5), y2: String(HEIGHT * share + 0.5) }));
    for (let slot = 0; slot < SLOTS; slot += 1) {
      const group = svg("g");
      for (const [, style] of PARTS) group.append(svg("rect", { class: style, width: String(WIDTH / SLOTS - 0.6), height: "0", x: String((slot * WIDTH) / SLOTS) }));
      this.bars.append(group);
    }
  }

  update(rows) {
    this.rows = rows;
    this.#draw();
  }

  tick() {
    const end = Math.floor(serverNow() / 1000 / BUCKET_S) * BUCKET_S;
    if (end !== this.end) this.#draw();
  }

  #draw() {
    this.end = Math.floor(serverNow() / 1000 / BUCKET_S) * BUCKET_S;
    const first = this.end - SPAN_S;
    const at = (slot) => this.rows[String(first + slot * BUCKET_S)];
    let top = 1;
    for (let slot = 0; slot < SLOTS; slot += 1) {
      const row = at(slot);
      if (row) top = Math.max(top, row.arrived / BUCKET_S, (row.succeeded + row.failed + row.cancelled + row.retried) / BUCKET_S);
    }
    this.top = roundUp(top);
    const points = [];
    for (let slot = 0; slot < SLOTS; slot += 1) {
      const row = at(slot);
      let y = HEIGHT;
      PARTS.forEach(([name], part) => {
        const height = row ? (row[name] / BUCKET_S / this.top) * HEIGHT : 0;
        y -= height;
        const bar = this.bars.childNodes[slot].childNodes[part];
        attribute(bar, "y", y.toFixed(1));
        attribute(bar, "height", height.toFixed(1));
      });
      if (row) points.push(`${(((slot + 0.5) * WIDTH) / SLOTS).toFixed(1)},${(HEIGHT - (row.arrived / BUCKET_S / this.top) * HEIGHT).toFixed(1)}`);
    }
    attribute(this.line, "points", points.join(" "));
    words(this.scale, [`${this.top}/s`, `${this.top / 2}/s`, "0"]);
    words(this.axis, [0, 5, 10, 15].map((m) => minute.format((first + m * 60) * 1000)));
    this.#table(first);
  }

  #table(first) {
    if (!this.body.closest("details").open) return;
    const minutes = new Map();
    for (const row of Object.values(this.rows)) {
      if (row.at < first) continue;
      const key = Math.floor(row.at / 60) * 60;
      const sum = minutes.get(key) ?? { arrived: 0, succeeded: 0, failed: 0, cancelled: 0, retried: 0 };
      for (const name of Object.keys(sum)) sum[name] += row[name];
      minutes.set(key, sum);
    }
    this.body.replaceChildren(...[...minutes].sort((a, b) => b[0] - a[0]).map(([key, sum]) =>
      el("tr", {}, el("th", { scope: "row" }, minute.format(key * 1000)), ...["arrived", "succeeded", "failed", "cancelled", "retried"].map((name) => el("td", { class: "num" }, sum[name])))));
  }

  #point(event) {
    const box = this.plot.getBoundingClientRect();
    const slot = Math.min(SLOTS - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * SLOTS)));
    const start = this.end - SPAN_S + slot * BUCKET_S;
    const row = this.rows[String(start)];
    const x = String(((slot + 0.5) * WIDTH) / SLOTS);
    attribute(this.cross, "x1", x);
    attribute(this.cross, "x2", x);
    attribute(this.cross, "visibility", "visible");
    const rate = (count) => (count / BUCKET_S).toFixed(1);
    text(this.note, `${second.format(start * 1000)} · ${row ? `accepted ${rate(row.arrived)}/s, succeeded ${rate(row.succeeded)}/s, failed ${rate(row.failed)}/s, cancelled or expired ${rate(row.cancelled)}/s` : "not watched"}`);
  }

  #unpoint() {
    attribute(this.cross, "visibility", "hidden");
    text(this.note, this.caption);
  }
}
