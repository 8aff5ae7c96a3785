// One row per version that is on its way to a host; without one the section is not there.

import { attribute, el, keyed, state, text } from "./dom.js";
import { shortHost } from "./lanes.js";
import { duration } from "./times.js";
import { counted } from "./words.js";

const number = new Intl.NumberFormat("en");
const UNITS = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "bytes"]];

/** "12 MB/s", in the units of "41 of 100 MB" @param {number} bytes */
function perSecond(bytes) {
  if (!bytes) return "–";
  const [unit, name] = UNITS.find(([one]) => bytes >= one) ?? UNITS.at(-1);
  return `${(bytes / unit).toFixed(bytes / unit < 10 ? 1 : 0)} ${name}/s`;
}

class FetchView {
  constructor(row) {
    this.cells = {};
    const cell = (name, label, kind = "num") => (this.cells[name] = el("td", { class: kind, "data-label": label }));
    this.meter = el("progress", { class: "meter", max: "1", value: "0" });
    this.words = el("span", { class: "small nowrap" });
    this.fault = el("span", { class: "small" });
    this.others = row.others ? el("td", { colspan: "6", class: "muted small" }) : null;
    this.node = this.others ? el("tr", {}, this.others) : el("tr", {},
      el("th", { scope: "row", class: row.model.length < 30 ? "nowrap" : null, "data-label": "Model" }, el("a", { class: "row-link", href: `/models/${encodeURIComponent(row.model)}` }, `${row.model}:${row.version}`)),
      cell("host", "To host", "nowrap"),
      el("td", { class: "fetched wide", "data-label": "Fetched" }, el("div", {}, this.meter, this.words, this.fault)),
      cell("rate", "Rate"), cell("left", "Left"), cell("waiting", "Jobs waiting"));
  }

  update(row) {
    if (this.others) {
      text(this.others, `and ${counted(row.others, "other")}, for which fewer jobs wait`);
      return;
    }
    const { cells } = this;
    text(cells.host, shortHost(row.host));
    attribute(cells.host, "title", row.host);
    attribute(this.meter, "value", row.size_bytes ? (row.fetched_bytes / row.size_bytes).toFixed(3) : "0");
    attribute(this.meter, "aria-label", row.words || "not begun yet");
    attribute(this.meter, "data-level", row.fault ? "out" : null);
    text(this.words, row.words || (row.fault ? "" : "waits for its turn"));
    if (row.fault !== this.said) {
      this.said = row.fault;
      this.fault.replaceChildren(...(row.fault ? [state("failed", "cannot come now"), " ", row.fault] : []));
    }
    text(cells.rate, perSecond(row.bytes_per_s));
    text(cells.left, row.bytes_per_s && !row.fault ? duration((row.size_bytes - row.fetched_bytes) / row.bytes_per_s) : "–");
    text(cells.waiting, number.format(row.waiting));
  }
}

export class Fetches {
  constructor(body) {
    this.body = body;
    this.views = new Map();
  }

  update(rows) {
    const keys = Object.keys(rows).sort((a, b) => rows[a].others - rows[b].others || rows[b].waiting - rows[a].waiting || a.localeCompare(b));
    this.body.closest("section").hidden = !keys.length;
    keyed(this.body, keys, this.views, (key) => new FetchView(rows[key]));
    for (const key of keys) this.views.get(key).update(rows[key]);
  }

  tick() {}
}
