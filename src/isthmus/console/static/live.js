// Keeps the page equal to what the server would show now. The stream only says that something changed; the page is
// then fetched again and its live parts are morphed. A hidden page holds no connection, because browsers permit few.
import { morph } from "./morph.js";
import { showTimes } from "./times.js";

const PAUSE = 700; // at least between two fetches when changes do not stop
const AT_ONCE = 4; // fetches without a pause
const SPAN = 3000;
const on = (document.body.dataset.on || "").split(" ").filter(Boolean);
const base = document.body.dataset.base;
let stream = null;
let busy = false;
let again = false;
let recent = [];
let mark = document.body.dataset.mark;

export function startLive() {
  if (!on.length) return;
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", (event) => event.persisted && open());
  if (!document.hidden) open();
}

function open() {
  if (stream) return;
  stream = new EventSource(`${base}/live?${new URLSearchParams([["mark", mark], ...on.map((topic) => ["on", topic])])}`);
  stream.addEventListener("changed", () => refresh());
  stream.addEventListener("error", () => {
    if (stream && stream.readyState === EventSource.CLOSED) refresh(); // refused: the page says why
  });
}

function close() {
  if (stream) stream.close();
  stream = null;
}

export async function refresh() {
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  const began = performance.now();
  try {
    const answer = await fetch(location.href, { headers: { "X-Console": "live", Accept: "text/html" } });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (answer.ok) show(fresh);
    else if (answer.status === 401 || answer.status === 404 || answer.status === 403) gone(fresh);
  } catch {
    say("The server does not answer; trying again.");
    again = true;
    recent = new Array(AT_ONCE).fill(performance.now());
  }
  const now = performance.now();
  recent = [...recent.filter((moment) => moment > now - SPAN), now];
  if (recent.length <= AT_ONCE) rest();
  else setTimeout(rest, Math.max(PAUSE, 3 * (now - began)));
}

function rest() {
  busy = false;
  if (!again) return;
  again = false;
  refresh();
}

function show(fresh) {
  mark = fresh.body.dataset.mark || mark;
  for (const part of fresh.querySelectorAll("[data-live]")) {
    const mine = document.querySelector(`[data-live="${part.dataset.live}"]`);
    if (mine) morph(mine, part);
  }
  showTimes(document);
  document.dispatchEvent(new CustomEvent("live"));
}

function gone(fresh) {
  close();
  const main = fresh.querySelector("main");
  if (main) morph(document.querySelector("main"), main);
}

export function say(text) {
  const toast = document.getElementById("toast");
  toast.textContent = text;
  toast.hidden = false;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => (toast.hidden = true), 6000);
}

// Forms that change the page they are on are sent without leaving it. What cannot be undone is asked for first; the
// button that has the focus then is the one that changes nothing.
export function sendQuietly() {
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    const button = event.submitter;
    const asked = button?.dataset.ask ? button : form;
    if (asked.dataset.ask && !("sure" in form.dataset)) {
      event.preventDefault();
      if (!(await ask(asked.dataset))) return;
      form.dataset.sure = "";
      if (button?.isConnected) form.requestSubmit(button);
      else form.requestSubmit();
      return;
    }
    delete form.dataset.sure;
    if (!("quiet" in form.dataset)) return;
    event.preventDefault();
    const body = new URLSearchParams(new FormData(form, button));
    if (button) button.disabled = true;
    const address = button?.hasAttribute("formaction") ? button.formAction : form.action;
    const answer = await fetch(address, { method: "POST", body, headers: { Accept: "text/html" } });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (button) button.disabled = false;
    if (answer.ok) show(fresh);
    else say(fresh.querySelector("main p:not(.code)")?.textContent || "That did not work.");
    document.dispatchEvent(new CustomEvent("sent", { detail: { form, ok: answer.ok } }));
  });
}

function ask({ ask: title, askText, askYes, askNo }) {
  const dialog = document.getElementById("ask");
  if (dialog.open) return Promise.resolve(false);
  dialog.querySelector("h2").textContent = title;
  dialog.querySelector("p").textContent = askText || "";
  dialog.querySelector("[value=no]").textContent = askNo || "No";
  dialog.querySelector("[value=yes]").textContent = askYes || "Yes";
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}
