import { startFolders } from "./folders.js";

// The form shows the manifest it makes, as the server makes it, with what the API would say to it.
export function startSubmit() {
  const form = document.getElementById("submit");
  if (form.dataset.mode === "form") preview(form);
  for (const editor of form.querySelectorAll("[data-editor]")) indent(editor);
}

function preview(form) {
  const text = document.querySelector("#preview code");
  const told = document.getElementById("preview-problems");
  let timer = 0;
  let number = 0;
  let touched = false;

  const choose = () => {
    const what = new FormData(form).get("what");
    for (const part of form.querySelectorAll("[data-what]")) part.hidden = part.dataset.what !== what;
  };

  const ask = async () => {
    const mine = ++number;
    const answer = await fetch("/console/submit/manifest", { method: "POST", body: new URLSearchParams(new FormData(form)) });
    if (!answer.ok || mine !== number) return;
    const { manifest, problems, rest } = await answer.json();
    if (manifest) text.textContent = manifest;
    told.textContent = rest.join(" ");
    if (touched) show(form, problems);
  };

  form.addEventListener("input", () => {
    touched = true;
    choose();
    clearTimeout(timer);
    timer = setTimeout(ask, 200);
  });
  choose();
  startFolders(form, ask);
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
