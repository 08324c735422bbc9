// Before the first paint: the theme that was chosen here, else the system's.
const chosen = localStorage.getItem("agentspec.theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
