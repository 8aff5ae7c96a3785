// The one dialog. A form with data-confirm="what happens, in a sentence" is only sent after a yes.
// data-confirm-title names the act and the thing, data-confirm-verb is what its button says too;
// data-confirm-typed="name" asks for that name, data-confirm-reason for a reason, sent as the field "reason".

const dialog = () => /** @type {HTMLDialogElement} */ (document.getElementById("confirm"));
const part = (id) => document.getElementById(id);

/** @type {HTMLFormElement|null} */
let asking = null;
/** @type {HTMLElement|null} */
let submitter = null;

function ask(form) {
  const data = form.dataset;
  const isHarmful = submitter?.classList.contains("button-danger") ?? false;
  part("confirm-title").textContent = data.confirmTitle;
  part("confirm-text").textContent = data.confirm;
  part("confirm-yes").textContent = data.confirmVerb;
  part("confirm-yes").className = `button button-${isHarmful ? "danger" : "primary"}`;
  part("confirm-keep").textContent = isHarmful ? "Keep it" : "Close";
  part("confirm-typed").hidden = !data.confirmTyped;
  part("confirm-wanted").textContent = data.confirmTyped ?? "";
  part("confirm-word").value = "";
  part("confirm-reason-field").hidden = data.confirmReason === undefined;
  part("confirm-reason").value = form.elements.namedItem("reason")?.value ?? "";
  ready();
  dialog().returnValue = "";
  dialog().showModal();
}

function ready() {
  const wanted = asking?.dataset.confirmTyped;
  part("confirm-yes").disabled = Boolean(wanted) && part("confirm-word").value !== wanted;
}

function answer() {
  const form = asking;
  asking = null;
  if (!form || dialog().returnValue !== "yes") return;
  if (form.dataset.confirmReason !== undefined) {
    let field = form.elements.namedItem("reason");
    if (!field) {
      field = document.createElement("input");
      field.type = "hidden";
      field.name = "reason";
      form.append(field);
    }
    field.value = part("confirm-reason").value;
  }
  form.dataset.confirmed = "1";
  form.requestSubmit(submitter?.form === form ? submitter : null);
  delete form.dataset.confirmed;
}

/** Enter sends what was typed, and never by the harmless button, which stands first. */
function enter(event) {
  if (event.key !== "Enter") return;
  event.preventDefault();
  if (!part("confirm-yes").disabled) part("confirm-yes").click();
}

export function startConfirm() {
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!(form instanceof HTMLFormElement) || !form.dataset.confirm || form.dataset.confirmed || !dialog()) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    asking = form;
    submitter = event.submitter;
    ask(form);
  }, true);
  part("confirm-word")?.addEventListener("input", ready);
  for (const field of ["confirm-word", "confirm-reason"]) part(field)?.addEventListener("keydown", enter);
  dialog()?.addEventListener("close", answer);
}
