// Suggestions for the filter of a list. Without this script, its first ones stay in place.

for (const input of document.querySelectorAll("input[data-suggest]")) {
  const list = input.list, first = [...list.children];
  let waiting = 0, asked = 0;
  const suggest = async () => {
    const text = input.value, mine = ++asked;
    if (!text.trim()) { list.replaceChildren(...first); return; }
    const address = `${input.dataset.suggest}?text=${encodeURIComponent(text)}`;
    const answer = await fetch(address, { headers: { accept: "application/json" } });
    if (!answer.ok || mine !== asked) return;
    const { items } = await answer.json();
    list.replaceChildren(...items.map((value) => {
      const option = document.createElement("option");
      option.value = value;
      return option;
    }));
    input.dataset.suggested = text; // the options are those of this text
  };
  input.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => suggest().catch(() => {}), 120);
  });
}
