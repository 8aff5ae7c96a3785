// A page that lacks a script or its stylesheet does nothing and does not say so. That happens where a machine changes its
// network while the page loads: the browser gives up what it is fetching. So the page is loaded again, once; where that
// does not help, it says what to do. Not a module: it has to listen before they are fetched.
(() => {
  const TRIED = "signalbox.loaded-again";
  const LATELY_MS = 30_000;
  let isWhole = true;

  function mayLoadAgain() {
    // An answer to a form is not asked for again, nor what shows a secret once.
    if (!("again" in document.documentElement.dataset) || document.querySelector(".secret")) return false;
    try {
      if (Date.now() - Number(sessionStorage.getItem(TRIED)) < LATELY_MS) return false;
      sessionStorage.setItem(TRIED, String(Date.now()));
      return true;
    } catch {
      return false; // storage may be blocked: it could go on for ever
    }
  }

  function mend() {
    if (mayLoadAgain()) return location.reload();
    const note = document.createElement("p");
    note.className = "message message-error";
    note.setAttribute("role", "alert");
    note.textContent = "A part of this page did not come, so its buttons may do nothing. Load the page again.";
    document.querySelector("main")?.prepend(note);
  }

  addEventListener("error", (event) => {
    const part = event.target;
    const isPart = part instanceof HTMLScriptElement || (part instanceof HTMLLinkElement && part.rel === "stylesheet");
    if (!isPart || !isWhole) return;
    isWhole = false;
    if (document.readyState === "complete") mend();
    else addEventListener("load", mend);
  }, true);
})();
