// Keys. They do nothing while somebody types.
let prefix = false;

export function startShortcuts() {
  const list = document.getElementById("shortcuts");
  const open = () => list && !list.open && list.showModal();
  document.querySelector("[data-shortcuts]")?.addEventListener("click", open);
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (act(event.key, open)) event.preventDefault();
  });
}

function act(key, open) {
  if (prefix) {
    prefix = false;
    const link = document.querySelector(`.bar nav a[data-key="${CSS.escape(key)}"]`);
    link?.click();
    return Boolean(link);
  }
  if (key === "g") return (prefix = true);
  if (key === "?") return open(), true;
  if (key === "/") return focus(document.querySelector("[data-search]"));
  if (key === "d") return press(document.querySelector("[data-theme-switch]"));
  if (key === "l" || key === "k") return row(key === "l" ? 1 : -1);
  if (["c", "r", "f"].includes(key)) return press(document.querySelector(`main [data-key="${key}"]`));
  return false;
}

function focus(element) {
  element?.focus();
  return Boolean(element);
}

function press(element) {
  if (!element || element.disabled) return false;
  element.click();
  return true;
}

function row(step) {
  const rows = [...document.querySelectorAll("[data-row]")];
  const at = rows.indexOf(document.activeElement);
  return focus(rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + step, 0), rows.length - 1)]);
}
