// Copy buttons: data-copy="text", or data-copy-from="#id". Also works on plain HTTP, where
// navigator.clipboard does not exist.

import { toast } from "./toast.js";

async function copy(text) {
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "visually-hidden";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("copy was refused");
}

export function startCopy() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy], [data-copy-from]");
    if (!button) return;
    const source = button.dataset.copyFrom ? document.querySelector(button.dataset.copyFrom) : null;
    const text = source ? (source.value ?? source.textContent) : button.dataset.copy;
    try {
      await copy(text.trim());
      toast("Copied.", "success");
    } catch {
      toast("The browser refused to copy. Select the text and copy it by hand.", "warning");
    }
  });
}
