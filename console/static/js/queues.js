// One row per model queue. Rows re-sort (longest wait first) only while the pointer is not on the table.

import { attribute, el, keyed, state, svg, text } from "./dom.js";
import { duration, serverNow } from "./times.js";
import { counted, rate } from "./words.js";

const SPARK_WIDTH = 120;
const SPARK_HEIGHT = 26;
const STEPS = 60;

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const number = new Intl.NumberFormat("en");
const ms = (s) => (s === null ? "–" : s < 1 ? `${Math.round(s * 1000)} ms` : `${s.toFixed(s < 10 ? 2 : 1)} s`);

/** Words in a cell, in its link where that leads to something. */
function link(cell, anchor, isThere, words) {
  text(isThere ? anchor : cell, words);
  if (isThere && anchor.parentNode !== cell) cell.replaceChildren(anchor);
}

class QueueView {
  constructor(model, isStale) {
    this.isStale = isStale;
    this.cells = {};
    const cell = (name, label, kind = "num") => (this.cells[name] = el("td", { class: kind, "data-label": label }));
    this.state = state("unknown");
    this.waiting = el("a", { href: `/jobs?q=${encodeURIComponent(`model:${model}`)}&state=queued&sort=oldest` });
    this.oldest = el("a", { href: `/jobs/-/longest-waiting/${encodeURIComponent(model)}` });
    this.line = svg("polyline", { class: "spark-line", fill: "none" });
    this.area = svg("polygon", { class: "spark-area" });
    this.spark = svg("svg", { class: "spark", viewBox: `0 0 ${SPARK_WIDTH} ${SPARK_HEIGHT}`, preserveAspectRatio: "none", role: "img" },
      svg("line", { class: "spark-base", x1: "0", x2: String(SPARK_WIDTH), y1: String(SPARK_HEIGHT - 1), y2: String(SPARK_HEIGHT - 1) }), this.area, this.line);
    this.node = el("tr", {},
      el("th", { scope: "row", "data-label": "Model" }, el("a", { class: "row-link", href: `/models/${encodeURIComponent(model)}` }, model)),
      el("td", { "data-label": "State" }, this.state),
      cell("waiting", "Waiting"), cell("oldest", "Oldest"), cell("running", "Running"), cell("in", "In"), cell("out", "Out"),
      cell("drain", "Drains in"), cell("wait", "Wait p50 · p99", "num wide"), cell("run", "Run p50 · p99", "num wide"),
      el("td", { class: "spark-cell", "data-label": "15 min" }, this.spark));
  }

  update(row) {
    this.row = row;
    this.#condition();
    const cells = this.cells;
    link(cells.waiting, this.waiting, row.waiting, number.format(row.waiting));
    attribute(cells.waiting, "title", row.prefetched ? `${number.format(row.prefetched)} of them pulled by a worker` : null);
    text(cells.running, row.lost ? `${number.format(row.running)} + ${number.format(row.lost)} lost` : number.format(row.running));
    attribute(cells.running, "title", row.lost ? "Lost: begun on a worker that is gone, and to run again" : null);
    text(cells.in, rate(row.arrived_per_s));
    text(cells.out, rate(row.ended_per_s));
    text(cells.drain, row.waiting ? (row.drain_s === null ? "not falling" : duration(row.drain_s)) : "–");
    text(cells.wait, row.wait_p50_s === null ? "–" : `${ms(row.wait_p50_s)} · ${ms(row.wait_p99_s)}`);
    text(cells.run, row.run_p50_s === null ? "–" : `${ms(row.run_p50_s)} · ${ms(row.run_p99_s)}`);
    const covered = row.sampled ? `Of ${counted(row.sampled, "job")} that succeeded since ${clock.format(row.sampled_since * 1000)}` : null;
    for (const cell of [cells.wait, cells.run]) attribute(cell, "title", covered);
    this.#spark(row.history);
    this.tick();
  }

  setStale(isStale) {
    this.isStale = isStale;
    this.#condition();
  }

  #condition() {
    const [word, label, why] = this.isStale ? ["unknown", "not known now", ""] : [this.row.state, this.row.label, this.row.why];
    attribute(this.state, "data-state", word);
    text(this.state, label);
    attribute(this.state, "title", why || null);
  }

  #spark(figures) {
    const history = figures.length === 1 ? [figures[0], figures[0]] : figures;
    const top = Math.max(1, ...history);
    const step = SPARK_WIDTH / (STEPS - 1);
    const x0 = SPARK_WIDTH - (history.length - 1) * step;
    const points = history.map((v, i) => `${(x0 + i * step).toFixed(1)},${(SPARK_HEIGHT - 2 - (v / top) * (SPARK_HEIGHT - 5)).toFixed(1)}`);
    attribute(this.line, "points", points.join(" "));
    attribute(this.area, "points", points.length ? `${x0.toFixed(1)},${SPARK_HEIGHT} ${points.join(" ")} ${SPARK_WIDTH},${SPARK_HEIGHT}` : "");
    attribute(this.spark, "aria-label", `Waiting over 15 minutes: now ${history.at(-1) ?? 0}, at most ${Math.max(0, ...history)}`);
  }

  tick() {
    const now = serverNow() / 1000;
    const age = this.row.oldest_at === null ? null : now - this.row.oldest_at;
    link(this.cells.oldest, this.oldest, age !== null, age === null ? "–" : duration(age));
    const isOverdue = this.row.deadline_at > 0 && now > this.row.deadline_at;
    attribute(this.cells.oldest, "title", isOverdue ? "Past its deadline: it is not begun any more, and ends within half a minute of a worker's being there" : null);
    this.cells.oldest.classList.toggle("is-old", age !== null && age > 60);
  }
}

export class Queues {
  constructor(body, none) {
    this.body = body;
    this.none = none;
    this.views = new Map();
    this.order = [];
    this.sortedAt = 0;
  }

  update(rows) {
    const isEmpty = !Object.keys(rows).length;
    this.body.closest(".table-wrap").hidden = isEmpty;
    if (isEmpty !== this.isEmpty) {
      this.isEmpty = isEmpty;
      this.none.replaceChildren(...(isEmpty ? [document.getElementById("queues-empty").content.cloneNode(true)] : []));
    }
    this.#sort(rows);
    keyed(this.body, this.order, this.views, (model) => new QueueView(model, this.isStale));
    for (const key of this.order) this.views.get(key).update(rows[key]);
  }

  /** While nothing is received, no queue's state is known. */
  setStale(isStale) {
    if (isStale === this.isStale) return;
    this.isStale = isStale;
    for (const view of this.views.values()) view.setStale(isStale);
  }

  #sort(rows) {
    const isTouched = this.body.matches(":hover, :focus-within");
    const known = new Set(this.order);
    const isSame = this.order.length === Object.keys(rows).length && this.order.every((key) => rows[key]) && known.size === this.order.length;
    const now = performance.now();
    if (isSame && (isTouched || now < this.sortedAt + 5000)) return;
    this.sortedAt = now;
    const age = (key) => rows[key].oldest_at ?? Infinity;
    this.order = Object.keys(rows).sort((a, b) => (age(a) === age(b) ? a.localeCompare(b) : age(a) - age(b)));
  }

  tick() {
    for (const view of this.views.values()) view.tick();
  }
}
