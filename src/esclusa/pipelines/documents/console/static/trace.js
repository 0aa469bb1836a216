// The trace view: a value shows its box on the page, a box its value; zoom and keys.

const trace = document.querySelector("[data-trace]");
const all = (selector) => [...trace.querySelectorAll(selector)];

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a stray percent sign
  }
}
const one = (selector) => trace.querySelector(selector);

if (trace) {
  const view = one(".sheet-view"), paper = one("[data-paper]"), level = one("[data-zoom-level]");
  const item = (value) => value.closest("li");
  let zoom = 1;

  const select = (id, source) => {
    for (const element of all("rect.on, .values li.on")) element.classList.remove("on");
    const value = all("[data-value]").find((each) => each.dataset.value === id);
    const boxes = all("[data-box]").filter((each) => each.dataset.box === id);
    for (const box of boxes) box.classList.add("on");
    if (value) {
      item(value).classList.add("on");
      history.replaceState(null, "", `#${item(value).id}`);
      if (source !== "value") value.focus({ preventScroll: true });
      value.scrollIntoView({ block: "nearest" });
    }
    if (boxes.length && source !== "box") {
      const box = boxes[0].getBoundingClientRect(), frame = view.getBoundingClientRect();
      if (box.top < frame.top || box.bottom > frame.bottom) {
        view.scrollTop += box.top - frame.top - frame.height / 3;
      }
      if (box.left < frame.left || box.right > frame.right) {
        view.scrollLeft += box.left - frame.left - frame.width / 3;
      }
    }
  };

  const setZoom = (factor) => {
    const x = (view.scrollLeft + view.clientWidth / 2) / view.scrollWidth;
    const y = (view.scrollTop + view.clientHeight / 2) / view.scrollHeight;
    zoom = Math.min(4, Math.max(0.5, factor));
    paper.style.width = `${zoom * 100}%`;
    level.textContent = `${Math.round(zoom * 100)} %`;
    view.scrollLeft = x * view.scrollWidth - view.clientWidth / 2;
    view.scrollTop = y * view.scrollHeight - view.clientHeight / 2;
  };
  const zooms = {
    in: () => setZoom(zoom * 1.25),
    out: () => setZoom(zoom / 1.25),
    fit: () => setZoom(1),
  };

  // A file that is not a readable PDF has no picture.
  const image = one("img");
  const showMissing = () => {
    const text = document.createElement("p");
    text.textContent = image.dataset.missing;
    one(".sheet").replaceChildren(text);
  };
  if (image.complete && !image.naturalWidth) showMissing();
  else image.addEventListener("error", showMissing);

  trace.addEventListener("click", (event) => {
    const button = event.target.closest("[data-zoom]");
    if (button) zooms[button.dataset.zoom]();
    const box = event.target.closest("[data-box]"), value = event.target.closest("[data-value]");
    if (!box && !value) return;
    event.preventDefault();
    select(box ? box.dataset.box : value.dataset.value, box ? "box" : "value");
  });

  one("[data-find]")?.addEventListener("input", (event) => {
    const wanted = event.target.value.trim().toLowerCase();
    for (const li of all(".values li")) {
      li.hidden = wanted && !li.textContent.toLowerCase().includes(wanted);
    }
  });

  addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      const visible = all("[data-value]").filter((value) => !item(value).hidden);
      const selected = visible.findIndex((value) => item(value).classList.contains("on"));
      const next = visible[Math.min(visible.length - 1, Math.max(0, selected + step))];
      if (next) { event.preventDefault(); select(next.dataset.value, ""); }
    } else if (event.key === "e" || event.key === "c") {
      const form = one(".values li.on form");
      const field = form?.querySelector(event.key === "e" ? "[data-correct]" : "[name=reason]");
      if (field) { event.preventDefault(); field.focus(); field.select(); }
    } else if (event.key === "+" || event.key === "=") zooms.in();
    else if (event.key === "-") zooms.out();
    else if (event.key === "0") zooms.fit();
    else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const pages = all(".sheet-pages a");
      const current = pages.findIndex((a) => a.getAttribute("aria-current"));
      pages[current + (event.key === "ArrowRight" ? 1 : -1)]?.click();
    }
  });

  // In the reason, Enter confirms a value that was not changed, and corrects another.
  trace.addEventListener("submit", (event) => {
    const value = event.target.querySelector("[data-correct]");
    if (!value || event.submitter !== event.target.querySelector("[value=correct]")) return;
    if (value.value === value.defaultValue) {
      event.preventDefault();
      event.target.requestSubmit(event.target.querySelector("[value=confirm]"));
    }
  });

  const hashes = [location.hash, decoded(location.hash)];
  const linked = all(".values li[id]").find((li) => hashes.includes(`#${li.id}`));
  if (linked) select(linked.querySelector("[data-value]").dataset.value, "");
}
