// Dark or light: as the system says until somebody chooses; the choice is a cookie, so that pages come in it.
export function startTheme() {
  const root = document.documentElement;
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  for (const button of document.querySelectorAll("[data-theme-switch]")) {
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      document.cookie = `isthmus-theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=lax`;
      document.dispatchEvent(new CustomEvent("theme"));
    });
  }
}
