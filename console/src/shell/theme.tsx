import { Monitor, Moon, Sun } from "lucide-react";
import { useState } from "react";
import { BASE_PATH } from "../base-path.ts";
import { IconButton } from "../ui/button.tsx";

type Theme = "system" | "light" | "dark";
const A_YEAR_S = 31_536_000;
const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const ICONS = { system: Monitor, light: Sun, dark: Moon };

function currentTheme(): Theme {
  const chosen = document.documentElement.dataset.theme;
  return chosen === "light" || chosen === "dark" ? chosen : "system";
}

/** Stores the theme in a cookie, which public/theme.js reads before the first paint. */
function keep(theme: Theme): void {
  const { dataset } = document.documentElement;
  const lifeS = theme === "system" ? 0 : A_YEAR_S;
  // biome-ignore lint/suspicious/noDocumentCookie: not every supported browser has the Cookie Store API
  document.cookie = `tollgate_theme=${theme}; Path=${BASE_PATH || "/"}; Max-Age=${lifeS}; SameSite=Strict`;
  if (theme === "system") delete dataset.theme;
  else dataset.theme = theme;
}

export function ThemeButton() {
  const [theme, setTheme] = useState(currentTheme);
  const next = NEXT[theme];
  const choose = () => {
    keep(next);
    setTheme(next);
  };
  return <IconButton icon={ICONS[theme]} label={`Theme: ${theme}. Change to ${next}`} onClick={choose} />;
}
