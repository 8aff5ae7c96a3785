// Runs before the first paint, so that a dark page never flashes light. Not a module: modules are deferred.
(() => {
  try {
    const choice = localStorage.getItem("signalbox.theme");
    if (choice === "light" || choice === "dark") document.documentElement.dataset.theme = choice;
  } catch {
    // storage may be blocked; the system's theme is right then
  }
})();
