// Dialogs. [data-dialog="id"] opens a <dialog>; [data-close] shuts it. A form with data-confirm="words" is
// only sent after a yes; data-confirm-title and data-confirm-verb word the dialog, data-confirm-typed="name"
// asks for that name, data-confirm-reason asks for a reason and sends it as the field "reason".

const dialog = () => /** @type {HTMLDialogElement} */ (document.getElementById("confirm"));
const part = (id) => document.getElementById(id);

/** @type {HTMLFormElement|null} */
let asking = null;
/** @type {HTMLElement|null} */
let submitter = null;

function ask(form) {
  const data = form.dataset;
  part("confirm-title").textContent = data.confirmTitle ?? "Are you sure?";
  part("confirm-text").textContent = data.confirm;
  const verb = data.confirmVerb ?? submitter?.textContent?.trim() ?? "Confirm";
  part("confirm-yes").textContent = verb;
  part("confirm-typed").hidden = !data.confirmTyped;
  part("confirm-wanted").textContent = data.confirmTyped ?? "";
  part("confirm-word").value = "";
  part("confirm-reason-field").hidden = data.confirmReason === undefined;
  part("confirm-reason").value = "";
  ready();
  dialog().returnValue = "cancel";
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
  document.addEventListener("click", (event) => {
    const opener = event.target.closest("[data-dialog]");
    if (opener) document.getElementById(opener.dataset.dialog)?.showModal();
    const closer = event.target.closest("dialog [data-close]");
    if (closer) closer.closest("dialog").close("cancel");
  });
  part("confirm-word")?.addEventListener("input", ready);
  dialog()?.addEventListener("close", answer);
}
