// The shortcuts of the keyboard; templates/shortcuts.html lists them.

const dialog = document.querySelector("#shortcuts");
const links = new Map(
  [...(dialog?.querySelectorAll("[data-keys]") ?? [])].map((a) => [a.dataset.keys, a.href]),
);
// How long the second key of a pair may take, in milliseconds.
const PAIR = 1500;
let first = "", pressedAt = 0;

const isTyping = (element) =>
  /^(INPUT|TEXTAREA|SELECT)$/.test(element?.tagName ?? "") && element.type !== "checkbox";

function moveRow(step) {
  const rows = [...document.querySelectorAll("main table.rows tbody tr")]
    .filter((row) => row.querySelector("th a"));
  const now = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[now < 0 ? (step > 0 ? 0 : rows.length - 1) : now + step];
  next?.querySelector("th a").focus();
}

function selectRow() {
  const box = document.activeElement?.closest("tr")?.querySelector("input[type=checkbox]");
  if (box) box.click();
}

const keys = {
  "?": () => dialog?.showModal(),
  j: () => moveRow(1),
  k: () => moveRow(-1),
  x: selectRow,
  n: () => document.querySelector("a[rel=next]")?.click(),
};

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (isTyping(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (dialog?.open && event.key !== "g" && first !== "g") return;
  const pair = first && event.timeStamp - pressedAt < PAIR ? `${first} ${event.key}` : "";
  first = event.key === "g" ? "g" : "";
  pressedAt = event.timeStamp;
  if (links.has(pair)) {
    event.preventDefault();
    location.assign(links.get(pair));
  } else if (!pair && keys[event.key]) {
    event.preventDefault();
    keys[event.key]();
  }
});

dialog?.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close(); // a click beside it
});
