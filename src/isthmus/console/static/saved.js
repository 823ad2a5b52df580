// Saved forms: named copies of what is filled in, in this browser's storage, apart for each user. Shown as text only.
const MOST = 30;
const LARGEST = 200000;

export function startSaved(form) {
  const box = form.querySelector("[data-saved]");
  if (!box) return;
  const key = `isthmus-forms:${form.dataset.user}`;
  const list = box.querySelector("[data-saved-list]");
  const name = box.querySelector("[data-saved-name]");

  const read = () => {
    try {
      const found = JSON.parse(localStorage.getItem(key) || "[]");
      return Array.isArray(found) ? found.filter((one) => typeof one?.name === "string" && typeof one.fields === "object") : [];
    } catch {
      return [];
    }
  };
  const write = (all) => {
    try {
      localStorage.setItem(key, JSON.stringify(all.slice(0, MOST)));
    } catch {
      name.setCustomValidity("This browser has no room for more.");
      name.reportValidity();
    }
    draw();
  };
  const button = (text, act) => {
    const made = document.createElement("button");
    Object.assign(made, { type: "button", className: "plain", textContent: text });
    made.addEventListener("click", act);
    return made;
  };
  const draw = () => {
    list.replaceChildren(...read().map((one) => {
      const item = document.createElement("li");
      const remove = button("Remove", () => write(read().filter((other) => other.name !== one.name)));
      remove.classList.add("end");
      remove.setAttribute("aria-label", `Remove ${one.name}`);
      item.append(button(one.name, () => load(one)), remove);
      return item;
    }));
  };
  const load = (one) => {
    const { mode = "form", kind = "" } = one.fields;
    const here = new FormData(form);
    if (mode !== form.dataset.mode || kind !== (here.get("kind") || "")) {
      sessionStorage.setItem("isthmus-form", one.name);
      location.href = `${form.action}?${new URLSearchParams(mode === "manifest" ? { mode } : kind ? { kind } : {})}`;
      return;
    }
    fill(form, one.fields);
  };

  box.querySelector("[data-save]").addEventListener("click", () => save());
  name.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    save();
  });
  function save() {
    name.setCustomValidity(name.value.trim() ? "" : "Give it a name.");
    if (!name.reportValidity()) return;
    const fields = collect(form);
    if (JSON.stringify(fields).length > LARGEST) {
      name.setCustomValidity("This form is too large to be saved.");
      name.reportValidity();
      return;
    }
    const title = name.value.trim();
    write([{ name: title, fields }, ...read().filter((one) => one.name !== title)]);
    name.value = "";
  }
  name.addEventListener("input", () => name.setCustomValidity(""));

  box.hidden = false;
  draw();
  const wanted = sessionStorage.getItem("isthmus-form");
  sessionStorage.removeItem("isthmus-form");
  const found = wanted && read().find((one) => one.name === wanted);
  if (found) fill(form, found.fields);
}

function collect(form) {
  const fields = {};
  for (const [name, value] of new FormData(form)) {
    if (name === "csrf" || typeof value !== "string") continue;
    fields[name] = name in fields ? `${fields[name]}\n${value}` : value;
  }
  return fields;
}

function fill(form, fields) {
  for (const field of form.elements) {
    if (!field.name || field.name === "csrf" || field.type === "file") continue;
    const value = String(fields[field.name] ?? "");
    if (field.type === "radio") field.checked = field.value === value;
    else if (field.type === "checkbox") field.checked = value.split("\n").includes(field.value);
    else field.value = value;
    if (value && field.type !== "hidden") field.closest("details")?.setAttribute("open", "");
  }
  form.dispatchEvent(new Event("input", { bubbles: true }));
  for (const editor of form.querySelectorAll("[data-editor]")) editor.dispatchEvent(new Event("input"));
}
