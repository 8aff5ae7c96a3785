// The pill in the bar: whether what is shown is live.

import { attribute, text } from "./dom.js";

const PILL = {
  wait: ["wait", "connecting"], live: ["live", "live"], late: ["late", "live data delayed"],
  down: ["down", "not connected"], blind: ["down", "NATS is away"], ended: ["down", "logged out"], over: ["wait", "ended"],
};

/** @param {import("./live.js").LiveLink} link */
export function tellLink(link) {
  const pill = document.getElementById("link");
  const [tone, words] = PILL[link.ended === "over" ? "over" : link.state];
  attribute(pill, "data-link", tone);
  text(pill, words);
}
