// The browser's end of the live protocol: subscribe, mirror, notice gaps, reconnect. Knows no page.
//
// Rules: a delta is taken only if its seq is mine + 1; anything newer, or another epoch, asks for that topic
// again; older ones are ignored. A tick each second reveals a lost last delta and a dead link.

import { setServerNow } from "./times.js";

const LATE_MS = 3000;
const DOWN_MS = 10000;
const BACKOFF_MS = 500;
const BACKOFF_LIMIT_MS = 15000;
const STABLE_MS = 5000;
const ENTRIES = 50;

/** What one browser holds of the server's topics. Pure: frames in, changes out; see the property tests. */
export class Mirror {
  constructor() {
    this.epoch = "";
    /** @type {Record<string, number>} */
    this.seqs = {};
    /** @type {Record<string, Record<string, any>>} */
    this.rows = {};
    /** @type {Record<string, any[]>} */
    this.entries = {};
  }

  /** @returns {{changed: string[], wants: string[], tick?: any}} topics that changed, topics to ask for again */
  take(message) {
    if (message.t === "tick") {
      const wants = Object.keys(this.seqs).filter(
        (topic) => message.epoch !== this.epoch || message.seqs[topic] !== this.seqs[topic],
      );
      return { changed: [], wants, tick: message };
    }
    if (message.t === "snap") return this.#snapshot(message);
    return this.#delta(message);
  }

  resume(topics) {
    const held = { epoch: this.epoch };
    for (const topic of topics) if (this.seqs[topic] >= 0) held[topic] = this.seqs[topic];
    return held;
  }

  #snapshot(message) {
    const { topic, epoch, seq, state } = message;
    if (epoch === this.epoch && seq < (this.seqs[topic] ?? -1)) return { changed: [], wants: [] };
    if (epoch !== this.epoch) {
      for (const name of Object.keys(this.seqs)) this.seqs[name] = -1;
      this.epoch = epoch;
    }
    this.seqs[topic] = seq;
    if (Array.isArray(state)) this.entries[topic] = state;
    else this.rows[topic] = state;
    return { changed: [topic], wants: [] };
  }

  #delta(message) {
    const { topic, seq } = message;
    const held = this.seqs[topic] ?? -1;
    if (seq <= held) return { changed: [], wants: [] };
    if (held < 0 || seq !== held + 1) return { changed: [], wants: [topic] };
    this.seqs[topic] = seq;
    if (message.add) {
      this.entries[topic] = [...this.entries[topic], ...message.add].slice(-ENTRIES);
    } else {
      Object.assign(this.rows[topic], message.set);
      for (const key of message.del) delete this.rows[topic][key];
    }
    return { changed: [topic], wants: [] };
  }
}

/** Keeps a mirror current over a websocket. Events: "change" (detail: topic), "link" (detail: LinkState). */
export class LiveLink extends EventTarget {
  /** @param {string} url @param {string[]} topics */
  constructor(url, topics) {
    super();
    this.url = url;
    this.topics = topics;
    this.mirror = new Mirror();
    this.seenAt = 0;
    this.triedAt = 0;
    this.state = "wait";
    this.source = { nats: "wait" };
    this.asked = new Set();
    this.backoff = BACKOFF_MS;
    this.ended = "";
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) return this.#pause();
      if (this.seenAt) this.seenAt = performance.now(); // silence while hidden was ours
      return this.#open();
    });
    setInterval(() => {
      this.#judge();
      this.#doubt();
    }, 500);
    this.#open();
  }

  #open() {
    clearTimeout(this.retry);
    if (this.socket || this.ended || document.hidden) return;
    const socket = new WebSocket(this.url);
    this.socket = socket;
    this.triedAt = performance.now();
    let openedAt = 0;
    socket.addEventListener("open", () => {
      openedAt = performance.now();
      this.asked.clear();
      this.#ask(this.topics);
    });
    socket.addEventListener("message", (event) => {
      if (openedAt && performance.now() - openedAt > STABLE_MS) this.backoff = BACKOFF_MS;
      this.#take(JSON.parse(event.data));
    });
    socket.addEventListener("close", (event) => {
      if (this.socket !== socket) return;
      this.socket = null;
      if (event.code === 4401) this.ended = "logged out";
      else if (event.code === 4403) this.ended = "not allowed";
      else this.#later();
      this.#judge();
    });
  }

  #later() {
    const wait = this.backoff * (0.5 + Math.random());
    this.backoff = Math.min(this.backoff * 2, BACKOFF_LIMIT_MS);
    this.retry = setTimeout(() => this.#open(), wait);
  }

  /** A socket that has been silent for so long leads nowhere, though nothing says so: another one. */
  #doubt() {
    const socket = this.socket;
    if (!socket || document.hidden || performance.now() - Math.max(this.triedAt, this.seenAt) < DOWN_MS) return;
    this.socket = null;
    socket.close();
    this.#later();
  }

  /** Follows no longer. @param {string} why */
  end(why) {
    this.ended = why;
    this.#pause();
    this.#judge();
  }

  #pause() {
    const socket = this.socket;
    this.socket = null;
    clearTimeout(this.retry);
    socket?.close();
  }

  #ask(topics) {
    const news = topics.filter((topic) => !this.asked.has(topic));
    if (!news.length || this.socket?.readyState !== WebSocket.OPEN) return;
    for (const topic of news) this.asked.add(topic);
    this.socket.send(JSON.stringify({ t: "sub", topics: news, resume: this.mirror.resume(news) }));
  }

  #take(message) {
    this.seenAt = performance.now();
    const { changed, wants, tick } = this.mirror.take(message);
    for (const topic of changed) {
      this.asked.delete(topic);
      this.dispatchEvent(new CustomEvent("change", { detail: topic }));
    }
    if (message.now) setServerNow(Date.parse(message.now));
    if (tick) {
      this.source = tick.src;
      // Whatever was asked before this tick has been answered before it too.
      this.asked.clear();
    }
    this.#ask(wants);
    this.#judge();
  }

  #judge() {
    const silence = this.seenAt ? performance.now() - this.seenAt : 0;
    let state = "wait";
    if (this.ended) state = "ended";
    else if (!this.seenAt) state = "wait";
    else if (silence > DOWN_MS) state = "down";
    else if (silence > LATE_MS || !this.socket) state = "late";
    else state = { ok: "live", wait: "wait" }[this.source.nats] ?? "blind";
    if (state === "live" && document.hidden) return;
    if (state !== this.state) {
      this.state = state;
      this.dispatchEvent(new CustomEvent("link", { detail: state }));
    }
  }
}
