// The one thing that needs a script: light, dark, or as the system has it.
const root = document.documentElement;
const button = document.getElementById("theme");
const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const tell = () => { button.textContent = isDark() ? "Light" : "Dark"; };
button.hidden = false;
button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; tell(); });
tell();
