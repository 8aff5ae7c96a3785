// A form that was refused: what was typed goes back into its fields, the reason beside the one it is about.

import { el } from "./dom.js";

/** @param {HTMLFormElement} form @param {[string, string][]} fields */
function holds(form, fields) {
  return [...form.querySelectorAll("input[type=hidden]")].every((hidden) =>
    hidden.name === "csrfmiddlewaretoken" || fields.some(([name, value]) => name === hidden.name && value === hidden.value));
}

function fill(form, fields) {
  for (const field of form.elements) {
    if (!field.name || field.type === "hidden" || field.type === "file" || field.type === "password") continue;
    const values = fields.filter(([name]) => name === field.name).map(([, value]) => value);
    if (field.type === "checkbox" || field.type === "radio") field.checked = values.includes(field.value);
    else if (field.multiple) for (const option of field.options) option.selected = values.includes(option.value);
    else if (values.length) field.value = values[0];
  }
  for (const [name, value] of fields) {
    if (!form.elements.namedItem(name)) form.append(el("input", { type: "hidden", name, value }));
  }
}

export function startRefused() {
  const data = document.getElementById("refused");
  if (!data) return;
  const refused = JSON.parse(data.textContent);
  history.replaceState(null, "", refused.page);
  const forms = [...document.querySelectorAll("form[method=post]")].filter((form) => form.getAttribute("action") === refused.url);
  const form = forms.find((one) => holds(one, refused.fields)) ?? (forms.length === 1 ? forms[0] : null);
  if (!form) return;
  fill(form, refused.fields);
  for (let parent = form.parentElement; parent; parent = parent.parentElement) if (parent instanceof HTMLDetailsElement) parent.open = true;
  const field = refused.field ? form.querySelector(`[name="${CSS.escape(refused.field)}"]:not([type=hidden])`) : null;
  const reason = el("p", { class: "errors", id: "refused-reason" }, refused.text);
  if (field) {
    field.setAttribute("aria-invalid", "true");
    field.setAttribute("aria-describedby", "refused-reason");
    field.after(reason);
    field.focus();
  } else if (form.querySelector("input:not([type=hidden]), select, textarea")) {
    form.append(reason);
    form.querySelector("input:not([type=hidden]), select, textarea").focus();
  }
}
