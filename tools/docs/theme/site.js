// Search, theme and menu of the documentation. The index is in search-index.js.
"use strict";

const root = document.currentScript.dataset.root;
const MOST = 12;

const words = (text) => text.toLowerCase().normalize("NFD").replace(/[\u0300-\u036f]/g, "")
  .split(/[^\p{L}\p{N}_@]+/u).filter(Boolean);

let prepared = null;
function entries() {
  // Prepared at the first search.
  prepared ??= (window.searchIndex ?? []).map((entry) => ({
    ...entry,
    title: ` ${words(entry.t).join(" ")}`,
    page: ` ${words(entry.p).join(" ")}`,
    text: ` ${words(entry.x).join(" ")}`,
  }));
  return prepared;
}

function score(entry, terms) {
  let total = 0;
  for (const term of terms) {
    let found = 0;
    if (`${entry.title} `.includes(` ${term} `)) found += 40;
    else if (entry.title.includes(` ${term}`)) found += 20;
    if (entry.page.includes(` ${term}`)) found += 8;
    if (entry.text.includes(` ${term}`)) found += 4;
    else if (entry.text.includes(term)) found += 1;
    if (!found) return 0;
    total += found;
  }
  return total - entry.text.length / 4000;
}

function search(query) {
  const terms = words(query);
  if (!terms.length) return [];
  return entries()
    .map((entry) => ({ entry, points: score(entry, terms) }))
    .filter((each) => each.points > 0)
    .sort((a, b) => b.points - a.points)
    .slice(0, MOST)
    .map((each) => each.entry);
}

function excerpt(entry, query) {
  const first = words(query).find((term) => entry.x.toLowerCase().includes(term));
  const at = first ? Math.max(0, entry.x.toLowerCase().indexOf(first) - 40) : 0;
  return (at ? "… " : "") + entry.x.slice(at, at + 140);
}

function item(entry, query, number) {
  const line = document.createElement("li");
  line.id = `result-${number}`;
  line.setAttribute("role", "option");
  const link = document.createElement("a");
  link.href = root + entry.u;
  link.tabIndex = -1;
  const title = document.createElement("b");
  title.textContent = entry.t === entry.p ? entry.t : `${entry.p} › ${entry.t}`;
  const text = document.createElement("span");
  text.textContent = excerpt(entry, query);
  link.append(title, text);
  line.append(link);
  return line;
}

document.addEventListener("DOMContentLoaded", () => {
  const field = document.getElementById("search");
  const list = document.getElementById("results");
  let chosen = -1;

  const choose = (number) => {
    const lines = [...list.querySelectorAll("[role=option]")];
    if (!lines.length) return;
    chosen = (number + lines.length) % lines.length;
    lines.forEach((line, n) => line.setAttribute("aria-selected", String(n === chosen)));
    lines[chosen].scrollIntoView({ block: "nearest" });
    field.setAttribute("aria-activedescendant", lines[chosen].id);
  };
  const close = () => {
    list.hidden = true;
    field.setAttribute("aria-expanded", "false");
  };
  const show = () => {
    const found = search(field.value);
    list.replaceChildren(...found.map((entry, n) => item(entry, field.value, n)));
    if (!found.length) {
      const none = document.createElement("p");
      none.textContent = "Nothing found.";
      list.append(none);
    }
    list.hidden = !field.value.trim();
    field.setAttribute("aria-expanded", String(!list.hidden));
    if (found.length) choose(0);
  };
  field.addEventListener("input", show);
  field.addEventListener("focus", () => field.value && show());
  field.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") choose(chosen + 1);
    else if (event.key === "ArrowUp") choose(chosen - 1);
    else if (event.key === "Escape") close();
    else if (event.key === "Enter") {
      const line = document.getElementById(`result-${chosen}`);
      if (line && !list.hidden) location.href = line.firstChild.href;
    } else return;
    event.preventDefault();
  });
  document.addEventListener("click", (event) => {
    if (!event.target.closest(".search") || event.target.closest("#results a")) close();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) {
      event.preventDefault();
      field.focus();
    }
  });

  const menu = document.getElementById("menu");
  const navigation = document.getElementById("navigation");
  menu.addEventListener("click", () => {
    menu.setAttribute("aria-expanded", String(navigation.classList.toggle("open")));
  });
  navigation.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });

  document.getElementById("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("theme", document.documentElement.dataset.theme); } catch { /* */ }
  });
});

try {
  const theme = localStorage.getItem("theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch { /* storage is off */ }
