// The last transitions, newest on top, fixed height; holds still under the pointer or the focus.

import { el, state } from "./dom.js";

const SHOWN = 50;
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 1 });
const after = (s) => (s === null ? "" : s < 10 ? `${(s * 1000).toFixed(0)} ms` : `${s.toFixed(1)} s`);
const WORDS = { retrying: "queued" };

function entry(row) {
  const node = el("li", {},
    el("span", { class: "ticker-at" }, clock.format(row.at * 1000)),
    state(WORDS[row.state] ?? row.state, row.state === "queued" ? "accepted" : row.state),
    el("a", { class: "ticker-what clip", href: `/jobs/${row.id}` }, `${row.model}:${row.version} `, el("span", { class: "mono muted" }, row.id.slice(0, 8))),
    el("span", { class: "ticker-more clip muted" }, row.error || [row.worker && `${row.worker}${row.attempt > 1 ? `, attempt ${row.attempt}` : ""}`, row.batch > 1 && `batch of ${row.batch}`].filter(Boolean).join(", ")),
    el("span", { class: "ticker-after num muted" }, after(row.after_s)));
  if (!row.skipped) return [node];
  return [node, el("li", { class: "ticker-skipped muted small" }, `… ${row.skipped} more`)];
}

export class Ticker {
  constructor(list) {
    this.list = list;
    this.shown = [];
    this.isEmpty = null;
  }

  update(entries) {
    if (this.list.matches(":hover, :focus-within") && this.shown.length) {
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
    const last = this.shown.at(-1);
    const from = last ? entries.findLastIndex((e) => e.id === last.id && e.at === last.at && e.state === last.state) : -1;
    const isNew = from < 0 && this.shown.length;
    if (isNew) this.list.replaceChildren();
    for (const row of entries.slice(from + 1)) this.list.prepend(...entry(row));
    while (this.list.childNodes.length > SHOWN) this.list.lastChild.remove();
    this.shown = entries;
  }

  tick() {
    if (this.waiting) this.update(this.waiting);
  }
}
