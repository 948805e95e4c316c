// Applies the chosen theme before the first paint. Without a choice the system setting applies.
const chosen = /(?:^|;\s*)tollgate_theme=(light|dark)(?:;|$)/.exec(document.cookie);
if (chosen !== null) document.documentElement.dataset.theme = chosen[1];
