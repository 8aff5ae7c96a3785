// The three-way theme switch: system, light, dark. Kept in this browser.

const CHOICES = ["system", "light", "dark"];

function currentTheme() {
  return document.documentElement.dataset.theme ?? "system";
}

/** @param {string} choice one of system, light, dark */
function setTheme(choice) {
  if (!CHOICES.includes(choice)) return;
  document.documentElement.dataset.theme = choice;
  try {
    localStorage.setItem("signalbox.theme", choice);
  } catch {
    // not kept, but shown
  }
  mark();
  document.dispatchEvent(new CustomEvent("signalbox:theme"));
}

export function nextTheme() {
  setTheme(CHOICES[(CHOICES.indexOf(currentTheme()) + 1) % CHOICES.length]);
}

function mark() {
  for (const button of document.querySelectorAll("[data-theme-choice]")) {
    button.setAttribute("aria-pressed", String(button.dataset.themeChoice === currentTheme()));
  }
}

export function startTheme() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-theme-choice]");
    if (button) setTheme(button.dataset.themeChoice);
  });
  mark();
}
