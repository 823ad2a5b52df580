import { startFolders } from "./folders.js";
import { startSaved } from "./saved.js";

// Both the form and the editor are checked by the server as somebody types: what they say is what the API would say.
export function startSubmit() {
  const form = document.getElementById("submit");
  if (form.dataset.mode === "form") preview(form);
  for (const editor of form.querySelectorAll("[data-editor]")) {
    indent(editor);
    check(form, editor);
  }
  startSaved(form);
}

async function manifest(form) {
  const answer = await fetch("/console/submit/manifest", { method: "POST", body: new URLSearchParams(new FormData(form)) });
  return answer.ok ? answer.json() : null;
}

function preview(form) {
  const text = document.querySelector("#preview code");
  const place = document.getElementById("preview-problems");
  let timer = 0;
  let number = 0;
  let touched = false;

  const choose = () => {
    const what = new FormData(form).get("what");
    for (const part of form.querySelectorAll("[data-what]")) part.hidden = part.dataset.what !== what;
  };

  const ask = async () => {
    const mine = ++number;
    const told = await manifest(form);
    if (!told || mine !== number) return;
    const { problems, rest } = told;
    if (told.manifest) text.textContent = told.manifest;
    place.textContent = rest.join(" ");
    if (touched) show(form, problems);
  };

  // A deadline is written in the time of the browser, which may differ from now by summer time.
  const zone = () => {
    const moment = new Date(form.elements["spec.deadline"]?.value || Date.now());
    form.elements.zone.value = (Number.isNaN(moment.getTime()) ? new Date() : moment).getTimezoneOffset();
  };
  for (const name of form.querySelectorAll("[data-zone]")) name.textContent = Intl.DateTimeFormat().resolvedOptions().timeZone;
  zone();

  form.addEventListener("input", () => {
    touched = true;
    choose();
    zone();
    clearTimeout(timer);
    timer = setTimeout(ask, 200);
  });
  choose();
  startFolders(form, ask);
}

// What is wrong with the manifest in the editor, line by line; a click goes to the line.
function check(form, editor) {
  const place = document.getElementById("checks");
  const numbers = form.querySelector(".numbers");
  let timer = 0;
  let number = 0;

  const count = (lines = []) => {
    const wrong = new Set(lines.map((one) => one.line));
    const all = editor.value.split("\n").length;
    numbers.replaceChildren(...Array.from({ length: Math.min(all, 5000) }, (_, at) => {
      const line = document.createElement("span");
      line.textContent = `${at + 1}\n`;
      if (wrong.has(at + 1)) line.className = "wrong";
      return line;
    }));
    numbers.scrollTop = editor.scrollTop;
  };

  const go = (line) => {
    const before = editor.value.split("\n").slice(0, line - 1).join("\n").length;
    const at = line > 1 ? before + 1 : 0;
    const end = editor.value.indexOf("\n", at);
    editor.focus();
    editor.setSelectionRange(at, end < 0 ? editor.value.length : end);
    editor.scrollTop = Math.max(0, (line - 4) * parseFloat(getComputedStyle(editor).lineHeight));
  };

  const ask = async () => {
    const mine = ++number;
    const told = await manifest(form);
    if (!told || mine !== number) return;
    editor.toggleAttribute("aria-invalid", false);
    if (told.lines.length) editor.setAttribute("aria-invalid", "true");
    count(told.lines);
    place.replaceChildren(told.lines.length ? list(told.lines, go) : said("No problems found.", "good"));
  };

  editor.addEventListener("input", () => {
    clearTimeout(timer);
    count();
    timer = setTimeout(ask, 300);
  });
  editor.addEventListener("scroll", () => (numbers.scrollTop = editor.scrollTop), { passive: true });
  count();
  ask();
}

function said(text, kind) {
  const line = document.createElement("p");
  line.textContent = text;
  line.className = kind;
  return line;
}

function list(problems, go) {
  const all = document.createElement("ul");
  all.className = "checks";
  for (const { line, field, message } of problems) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "plain";
    button.append(Object.assign(document.createElement("strong"), { textContent: `Line ${line}` }), ` ${field ? `${field}: ` : ""}${message}`);
    button.addEventListener("click", () => go(line));
    const item = document.createElement("li");
    item.append(button);
    all.append(item);
  }
  return all;
}

function show(form, problems) {
  for (const place of form.querySelectorAll("[data-problem]")) {
    const words = problems[place.dataset.problem] || "";
    if (place.textContent !== words) place.textContent = words;
    const field = form.elements[place.dataset.problem];
    if (words) field?.setAttribute?.("aria-invalid", "true");
    else field?.removeAttribute?.("aria-invalid");
  }
}

// Tab indents by two spaces; after Escape it leaves, so that nobody is caught in the editor.
function indent(editor) {
  let leaving = false;
  editor.addEventListener("focus", () => (leaving = false));
  editor.addEventListener("keydown", (event) => {
    if (event.key === "Escape") leaving = true;
    if (event.key !== "Tab" || event.shiftKey || leaving) return;
    event.preventDefault();
    editor.setRangeText("  ", editor.selectionStart, editor.selectionEnd, "end");
    editor.dispatchEvent(new Event("input", { bubbles: true }));
  });
}
