// One row per model queue, the longest wait first; many idle ones fold into one line, and a filter finds all.

import { attribute, el, keyed, state, svg, text } from "./dom.js";
import { duration, serverNow } from "./times.js";
import { counted, rate } from "./words.js";

const SPARK_WIDTH = 120;
const SPARK_HEIGHT = 26;
const STEPS = 60;
/** So many idle models are shown as they are; more fold into one line. */
const FEW = 8;
/** Rows at once. */
const MOST = 200;
const SETTLED_MS = 5000;

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
    const items = row.items ? ` + ${number.format(row.items)}` : "";
    link(cells.waiting, this.waiting, row.waiting, number.format(row.waiting) + items);
    const titles = [
      row.prefetched ? `${counted(row.prefetched, "job")} of them pulled by a worker` : "",
      row.items ? `Behind +: items in queues that it is a service of, which are no jobs yet` : "",
    ].filter(Boolean);
    attribute(cells.waiting, "title", titles.join(". ") || null);
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

/** Nothing waits, runs, moves or failed, and nobody paused it: one of the many that nobody calls, in memory or not. */
function isIdle(row) {
  const isBusy = row.waiting || row.items || row.running || row.lost || row.arrived_per_s || row.ended_per_s;
  const isComing = row.loading || row.fetching || row.failed;
  return !isBusy && !isComing && ["ready", "cold", "none", "disabled"].includes(row.state);
}

export class Queues {
  /** @param {HTMLElement} body @param {HTMLElement} none @param {{fold: HTMLButtonElement, filter: HTMLInputElement, note: HTMLElement}} parts */
  constructor(body, none, parts) {
    Object.assign(this, { body, none, ...parts });
    this.views = new Map();
    this.rows = {};
    this.order = [];
    this.sortedAt = 0;
    this.isOpen = false;
    this.fold.addEventListener("click", () => {
      this.isOpen = !this.isOpen;
      attribute(this.fold, "aria-expanded", String(this.isOpen));
      this.#anew();
    });
    this.filter.addEventListener("input", () => this.#anew());
  }

  update(rows) {
    this.rows = rows;
    const isEmpty = !Object.keys(rows).length;
    if (isEmpty !== this.isEmpty) {
      this.isEmpty = isEmpty;
      this.filter.hidden = isEmpty;
      this.none.replaceChildren(...(isEmpty ? [document.getElementById("queues-empty").content.cloneNode(true)] : []));
    }
    this.#draw();
  }

  /** While nothing is received, no queue's state is known. */
  setStale(isStale) {
    if (isStale === this.isStale) return;
    this.isStale = isStale;
    for (const view of this.views.values()) view.setStale(isStale);
  }

  #anew() {
    this.sortedAt = -SETTLED_MS;
    this.order = [];
    this.#draw();
  }

  #draw() {
    const all = Object.keys(this.rows);
    const words = this.filter.value.trim().toLowerCase();
    const idle = new Set(all.filter((model) => isIdle(this.rows[model])));
    const isFolding = !words && idle.size > FEW;
    let wanted = words ? all.filter((model) => model.toLowerCase().includes(words)) : all;
    if (isFolding && !this.isOpen) wanted = wanted.filter((model) => !idle.has(model));
    this.#sort(wanted, idle);
    const left = this.order.length - MOST;
    if (left > 0) this.order.length = MOST;
    attribute(this.fold, "hidden", isFolding ? null : "");
    const resident = all.filter((model) => idle.has(model) && this.rows[model].ready).length;
    text(this.fold, `${counted(idle.size, "idle model")}, ${number.format(resident)} of them in the memory of a device`);
    text(this.note, words && !wanted.length ? "No model is called so." : left > 0 ? `${counted(left, "more model")}: filter by name, or look at Models.` : "");
    attribute(this.note, "hidden", this.note.textContent ? null : "");
    attribute(this.body.closest(".table-wrap"), "hidden", this.order.length ? null : "");
    keyed(this.body, this.order, this.views, (model) => new QueueView(model, this.isStale));
    for (const key of this.order) this.views.get(key).update(this.rows[key]);
  }

  /** What goes or comes does so at once; a row moves, or folds, only every few seconds and not under the pointer. */
  #sort(wanted, idle) {
    const isTouched = this.order.length > 0 && this.body.matches(":hover, :focus-within");
    const now = performance.now();
    if (isTouched || now < this.sortedAt + SETTLED_MS) {
      const shown = new Set(this.order);
      this.order = [...this.order.filter((model) => this.rows[model]), ...wanted.filter((model) => !shown.has(model))];
      return;
    }
    this.sortedAt = now;
    const age = (model) => this.rows[model].oldest_at ?? (idle.has(model) ? Infinity : Number.MAX_VALUE);
    this.order = wanted.sort((a, b) => (age(a) === age(b) ? a.localeCompare(b) : age(a) - age(b)));
  }

  tick() {
    for (const view of this.views.values()) view.tick();
  }
}
