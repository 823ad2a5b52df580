// What every page needs. Each module does one thing and finds its elements by itself.
import { showTimes } from "./times.js";
import { startLive, sendQuietly } from "./live.js";
import { startSelection } from "./selection.js";
import { startShortcuts } from "./shortcuts.js";
import { startTheme } from "./theme.js";

showTimes(document);
setInterval(() => showTimes(document), 1000);
startTheme();
startShortcuts();
startLive();
sendQuietly();
startSelection();

if (document.getElementById("log")) import("./log.js").then((log) => log.startLog());
if (document.getElementById("plots")) import("./plots.js").then((plots) => plots.startPlots());
if (document.getElementById("submit")) import("./submit.js").then((submit) => submit.startSubmit());

// Filters apply as soon as a choice changes; text waits for Enter.
for (const form of document.querySelectorAll("form[data-auto]")) {
  form.addEventListener("change", (event) => event.target.matches("select, [type=checkbox]") && form.requestSubmit());
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
  button.textContent = "Copied";
});
