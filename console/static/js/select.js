// Choosing rows of the job list, and a selection's page that follows what it shows. Both work without this.

const form = /** @type {HTMLFormElement|null} */ (document.getElementById("selection"));
if (form) startChoosing(form);
if (document.querySelector("#progress[data-open]")) void follow();

/** @param {HTMLFormElement} form */
function startChoosing(form) {
  const boxes = () => /** @type {HTMLInputElement[]} */ ([...document.querySelectorAll('input[name="job"][form="selection"]')]);
  const all = /** @type {HTMLInputElement} */ (document.getElementById("choose-all"));
  const page = /** @type {HTMLInputElement} */ (document.getElementById("choose-page"));
  const said = document.getElementById("chosen");
  let last = -1;

  function show() {
    const rows = boxes();
    const ticked = rows.filter((box) => box.checked).length;
    page.checked = rows.length > 0 && ticked === rows.length;
    page.indeterminate = ticked > 0 && ticked < rows.length;
    for (const box of rows) box.disabled = all.checked;
    page.disabled = all.checked;
    said.textContent = all.checked ? "All that match, also on other pages." : ticked ? `${ticked} chosen.` : "Choose jobs to act on several at once.";
    for (const button of form.querySelectorAll("button[name=act]")) /** @type {HTMLButtonElement} */ (button).disabled = !all.checked && !ticked;
  }

  page.closest(".waits")?.classList.remove("waits");
  page.addEventListener("change", () => {
    for (const box of boxes()) box.checked = page.checked;
    show();
  });
  all.addEventListener("change", show);
  document.addEventListener("click", (event) => {
    const rows = boxes();
    const at = rows.indexOf(/** @type {HTMLInputElement} */ (event.target));
    if (at < 0) return;
    if (event.shiftKey && last >= 0) {
      for (const box of rows.slice(Math.min(at, last), Math.max(at, last) + 1)) box.checked = rows[at].checked;
    }
    last = at;
    show();
  });
  // Back in the history: the browser ticks again what was ticked.
  window.addEventListener("pageshow", show);
  show();
}

async function follow() {
  const url = new URL(location.href);
  url.searchParams.set("part", "1");
  for (;;) {
    await new Promise((done) => setTimeout(done, document.hidden ? 5000 : 1000));
    const answer = await fetch(url).catch(() => null);
    if (!answer?.ok) continue;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("progress");
    if (!fresh) return location.reload(); // the login has ended
    document.getElementById("progress").replaceWith(fresh);
    if (fresh.dataset.open === undefined) return document.getElementById("stop")?.remove();
  }
}
