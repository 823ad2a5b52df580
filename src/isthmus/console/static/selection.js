// Rows that are ticked: how many, all of them, none; what is done with them is a form of its own.
export function startSelection() {
  const form = document.getElementById("selected");
  if (!form) return;
  const boxes = () => [...document.querySelectorAll("input[form=selected][name=job]")];
  const count = () => {
    const ticked = boxes().filter((box) => box.checked).length;
    form.hidden = ticked === 0;
    form.querySelector("[data-count]").textContent = ticked;
    const all = document.querySelector("[data-select-all]");
    if (!all) return;
    all.checked = ticked > 0 && ticked === boxes().length;
    all.indeterminate = ticked > 0 && !all.checked;
  };
  const set = (value) => {
    for (const box of boxes()) box.checked = value;
    count();
  };
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-select-all]")) set(event.target.checked);
    else if (event.target.matches("input[form=selected]")) count();
  });
  form.querySelector("[data-select-none]").addEventListener("click", () => set(false));
  document.addEventListener("sent", (event) => event.detail.form === form && event.detail.ok && set(false));
  document.addEventListener("live", count);
  count();
}
