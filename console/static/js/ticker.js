// The last transitions in order of time, newest on top, fixed height; holds still under the pointer or the focus.

import { el, keyed, state } from "./dom.js";

const SHOWN = 50;
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 1 });
const after = (s) => (s === null ? "" : s < 10 ? `${(s * 1000).toFixed(0)} ms` : `${s.toFixed(1)} s`);
const WORDS = { retrying: "queued" };

function entry(row) {
  const node = el("li", {},
    el("span", { class: "ticker-at" }, clock.format(row.at * 1000)),
    state(WORDS[row.state] ?? row.state, row.state === "queued" ? "accepted" : row.state),
    el("a", { class: "ticker-what clip", href: `/jobs/${row.id}` }, `${row.model}:${row.version} `, el("span", { class: "mono muted" }, row.id.slice(0, 13))),
    el("span", { class: "ticker-more clip muted" }, row.error || [row.worker && `${row.worker}${row.attempt > 1 ? `, attempt ${row.attempt}` : ""}`, row.batch > 1 && `batch of ${row.batch}`].filter(Boolean).join(", ")),
    el("span", { class: "ticker-after num muted" }, after(row.after_s)));
  return { node };
}

const skipped = (count) => ({ node: el("li", { class: "ticker-skipped muted small" }, `… ${count} more`) });
const keyOf = (row) => `${row.id} ${row.attempt} ${row.state} ${row.at}`;

export class Ticker {
  constructor(list) {
    this.list = list;
    this.shown = new Map();
    this.isEmpty = null;
  }

  update(entries) {
    if (this.list.matches(":hover, :focus-within") && this.shown.size) {
      this.waiting = entries;
      return;
    }
    this.waiting = null;
    if (!entries.length) {
      if (!this.isEmpty) this.list.replaceChildren(document.getElementById("ticker-empty").content.cloneNode(true));
      this.isEmpty = true;
      return;
    }
    if (this.isEmpty) this.list.replaceChildren();
    this.isEmpty = false;
    const rows = new Map();
    for (const row of [...entries].sort((a, b) => b.at - a.at)) {
      rows.set(keyOf(row), () => entry(row));
      if (row.skipped) rows.set(`${keyOf(row)} skipped`, () => skipped(row.skipped));
    }
    keyed(this.list, [...rows.keys()].slice(0, SHOWN), this.shown, (key) => rows.get(key)());
  }

  tick() {
    if (this.waiting) this.update(this.waiting);
  }
}
