// Before the first paint: the theme that was chosen, where one was. Without one the system's setting is in force.
const chosen = /(?:^|;\s*)tollgate_theme=(light|dark)(?:;|$)/.exec(document.cookie);
if (chosen !== null) document.documentElement.dataset.theme = chosen[1];
