// Esclusa's console: pages read without this; it adds life. No dependencies.

const html = document.documentElement;
html.classList.add("js");
const numbers = new Intl.NumberFormat(html.lang, { useGrouping: "always" });
const still = matchMedia("(prefers-reduced-motion: reduce)");
const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

function duration(seconds) {
  const s = Math.abs(seconds);
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 172800) {
    const h = Math.floor(Math.round(s / 60) / 60), m = Math.round(s / 60) % 60;
    return m && h < 10 ? `${h} h ${m} min` : `${h} h`;
  }
  return `${Math.round(s / 86400)} d`;
}

// On a phone the menu is a strip: the page one is on is in sight.
const strip = $(".menu"), current = $(".menu [aria-current]");
if (current && strip.scrollWidth > strip.clientWidth) strip.scrollLeft = current.offsetLeft - (strip.clientWidth - current.offsetWidth) / 2;

// So is the state that a record is in, where its lifecycle is wider than the page.
const node = $(".graph .node.current"), graph = node?.closest(".graph");
if (graph) graph.scrollLeft = node.getBBox().x + node.getBBox().width / 2 - graph.clientWidth / 2;

// Times stay true while the page is open.
const ahead = new Date(html.dataset.moment).getTime() - Date.now(); // the store's clock is the one that counts
const shift = () => Date.now() + ahead;
function tellTimes() {
  for (const time of $$("time:not(.clock)")) {
    const seconds = (new Date(time.dateTime).getTime() - shift()) / 1000;
    if (Math.abs(seconds) < 1.5) time.textContent = html.dataset.now;
    else time.textContent = (seconds > 0 ? html.dataset.in : html.dataset.ago).replace("{time}", duration(seconds));
  }
}
setInterval(tellTimes, 5000);

// The map: counts as they change, dots along the arrows.
const counted = (count, exact) => numbers.format(count) + (exact ? "" : "+");

function move(svg, from, to, amount) {
  const edge = $$(".edge", svg).find((e) => e.dataset.from === from && e.dataset.to === to);
  if (!edge) return;
  edge.classList.add("moving");
  setTimeout(() => edge.classList.remove("moving"), 1000);
  if (still.matches) return;
  const dots = Math.min(6, Math.ceil(Math.log2(amount + 1)));
  for (let i = 0; i < dots; i++) {
    const dot = document.createElementNS(svg.namespaceURI, "circle");
    dot.setAttribute("r", "4");
    dot.setAttribute("class", "mover");
    const way = document.createElementNS(svg.namespaceURI, "animateMotion");
    way.setAttribute("path", edge.getAttribute("d"));
    way.setAttribute("dur", "0.9s");
    way.setAttribute("begin", "indefinite");
    way.setAttribute("fill", "freeze");
    dot.append(way);
    setTimeout(() => { svg.append(dot); way.beginElement(); setTimeout(() => dot.remove(), 900); }, i * 130);
  }
}

// What a state says below its number stays within its box.
function fit(sub) {
  const room = $(".box", sub.closest(".node")).width.baseVal.value - 22;
  sub.removeAttribute("textLength");
  if (sub.getComputedTextLength() > room) { sub.setAttribute("textLength", room); sub.setAttribute("lengthAdjust", "spacingAndGlyphs"); }
}
for (const sub of $$(".node .sub")) fit(sub);

function showNode(node, said, due, words) {
  const count = $("[data-count]", node), text = counted(...said);
  if (count.textContent !== text) {
    count.textContent = text;
    node.classList.add("changed");
    setTimeout(() => node.classList.remove("changed"), 900);
  }
  node.classList.toggle("none", !said[0]);
  const sub = $("[data-sub]", node);
  node.dataset.words ??= due && due.due ? "" : sub.textContent;
  if (due && due.due) {
    const age = due.oldest_due_seconds;
    sub.textContent = words.replace("{n}", counted(due.due, due.due_exact)).replace("{age}", duration(age ?? 0));
    node.classList.toggle("stuck", age > Number(node.dataset.patience ?? 300));
  } else if (due) {
    node.classList.remove("stuck");
    sub.textContent = node.dataset.words;
  }
  fit(sub);
}

function live() {
  const sign = $("[data-live]");
  if (!sign) return;
  const words = $("[data-live-words]", sign);
  const source = new EventSource(sign.dataset.live);
  source.onerror = () => { sign.classList.remove("on"); words.textContent = sign.dataset.off; };
  source.onmessage = (event) => {
    const told = JSON.parse(event.data);
    if (told.trouble) { sign.classList.remove("on"); words.textContent = sign.dataset.trouble; return; }
    sign.classList.add("on");
    words.textContent = sign.dataset.on;
    for (const svg of $$("[data-graph]")) {
      const table = svg.dataset.graph, counts = told.kinds[table] ?? {};
      for (const node of $$(".node", svg)) {
        const stage = told.stages.find((s) => s.table === table && s.take[0] === node.dataset.state);
        showNode(node, counts[node.dataset.state] ?? [0, true], stage, sign.dataset.due);
      }
      for (const [from, to, amount] of told.moves[table] ?? []) move(svg, from, to, amount);
    }
    for (const total of $$("[data-total]")) {
      const counts = Object.values(told.kinds[total.dataset.total] ?? {});
      total.textContent = counted(counts.reduce((sum, c) => sum + c[0], 0), counts.every((c) => c[1]));
    }
    const sum = (name) => told.stages.reduce((all, s) => all + (s[name] ?? 0), 0);
    const oldest = Math.max(-1, ...told.stages.map((s) => s.oldest_due_seconds ?? -1));
    const vital = (name, text) => { const dd = $(`[data-vital="${name}"]`); if (dd) dd.textContent = text; };
    vital("due", counted(sum("due"), told.stages.every((s) => s.due_exact)));
    vital("oldest", oldest < 0 ? "—" : duration(oldest));
    vital("rate", numbers.format(Math.round(sum("per_minute") * 10) / 10));
  };
  addEventListener("pagehide", () => source.close(), { once: true });
}
live();
addEventListener("pageshow", (event) => { if (event.persisted) live(); }); // the browser kept the page, and went back to it

// A look now and then: the next one when the last has ended, for an answer may take long.
function look(seconds, task) {
  setTimeout(async () => { await task().catch(() => {}); look(seconds, task); }, seconds * 1000);
}
const again = () => fetch(location.href, { headers: { accept: "text/html" } });

// Other pages are fetched anew now and then, unless somebody is busy on them.
const main = $("main[data-refresh]");
if (main) {
  const held = () => document.activeElement !== main && main.contains(document.activeElement); // a click beside it all is no work
  look(Number(main.dataset.refresh), async () => {
    if (document.hidden || held() || $("details[open]", main) || String(getSelection()).length) return;
    const answer = await again();
    if (answer.redirected) return; // to sign in; what went wrong is told like all else, until it is well again
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!held()) main.replaceChildren(...$("main", page).childNodes);
  });
}

// Where nothing could be told, the page is loaded again as soon as it can be.
const wrong = $("main[data-again]");
if (wrong) {
  look(Number(wrong.dataset.again), async () => { if (!document.hidden && (await again()).ok) location.reload(); });
}

// What is sent twice is done twice, or told as if nothing had been done: a form goes once.
const sent = new WeakSet();
addEventListener("submit", (event) => {
  if (event.target.method !== "post") return;
  if (sent.has(event.target)) event.preventDefault();
  sent.add(event.target);
});
addEventListener("pageshow", () => { for (const form of $$("form")) sent.delete(form); });

// A slash goes to the search.
addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.ctrlKey && !event.metaKey && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "")) {
    const search = $("#search");
    if (search) { event.preventDefault(); search.focus(); }
  }
});

// What a bulk act would be about.
for (const form of $$("[data-bulk]")) {
  const said = $("[data-chosen]", form);
  if (!said) continue;
  const tell = () => {
    const n = $$("input[name=ids]:checked", form).length;
    said.textContent = n ? said.dataset.some.replace("{n}", numbers.format(n)) : said.dataset.all;
  };
  const head = $("thead .box", form);
  if (head) {
    const all = document.createElement("input");
    all.type = "checkbox";
    all.setAttribute("aria-label", head.textContent.trim());
    all.addEventListener("change", () => { for (const box of $$("input[name=ids]", form)) box.checked = all.checked; tell(); });
    head.replaceChildren(all);
  }
  form.addEventListener("change", tell);
  tell();
}

// The trace view: a value shows its box, a box its value; zoom; keys.
const trace = $("[data-trace]");
if (trace) {
  const view = $(".sheet-view", trace), paper = $("[data-paper]", trace), at = $("[data-zoom-at]", trace);
  const values = () => $$("[data-value]", trace).filter((v) => !v.closest("li").hidden);
  let zoom = 1;
  const choose = (id, from) => {
    for (const rect of $$("rect.on", trace)) rect.classList.remove("on");
    for (const li of $$(".values li.on", trace)) li.classList.remove("on");
    const value = $$("[data-value]", trace).find((v) => v.dataset.value === id);
    const boxes = $$("[data-box]", trace).filter((b) => b.dataset.box === id);
    for (const box of boxes) box.classList.add("on");
    if (value) {
      value.closest("li").classList.add("on");
      history.replaceState(null, "", `#${value.closest("li").id}`);
      if (from !== "value") value.focus({ preventScroll: true });
      value.scrollIntoView({ block: "nearest" });
    }
    if (boxes.length && from !== "box") {
      const box = boxes[0].getBoundingClientRect(), frame = view.getBoundingClientRect();
      if (box.top < frame.top || box.bottom > frame.bottom) view.scrollTop += box.top - frame.top - frame.height / 3;
      if (box.left < frame.left || box.right > frame.right) view.scrollLeft += box.left - frame.left - frame.width / 3;
    }
  };
  const scale = (to) => {
    const x = (view.scrollLeft + view.clientWidth / 2) / view.scrollWidth, y = (view.scrollTop + view.clientHeight / 2) / view.scrollHeight;
    zoom = Math.min(4, Math.max(0.5, to));
    paper.style.width = `${zoom * 100}%`;
    at.textContent = `${Math.round(zoom * 100)} %`;
    view.scrollLeft = x * view.scrollWidth - view.clientWidth / 2;
    view.scrollTop = y * view.scrollHeight - view.clientHeight / 2;
  };
  const image = $("img", paper), undrawn = () => { // a file that is no PDF has no picture
    const said = document.createElement("p");
    said.textContent = image.dataset.undrawn;
    $(".sheet", trace).replaceChildren(said);
  };
  if (image.complete && !image.naturalWidth) undrawn(); else image.addEventListener("error", undrawn);
  const zooms = { in: () => scale(zoom * 1.25), out: () => scale(zoom / 1.25), fit: () => scale(1) };
  trace.addEventListener("click", (event) => {
    const box = event.target.closest("[data-box]"), value = event.target.closest("[data-value]"), button = event.target.closest("[data-zoom]");
    if (button) zooms[button.dataset.zoom]();
    if (!box && !value) return;
    event.preventDefault();
    choose(box ? box.dataset.box : value.dataset.value, box ? "box" : "value");
  });
  $("[data-find]", trace)?.addEventListener("input", (event) => {
    const wanted = event.target.value.trim().toLowerCase();
    for (const li of $$(".values li", trace)) li.hidden = wanted && !li.textContent.toLowerCase().includes(wanted);
  });
  addEventListener("keydown", (event) => {
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "") || event.ctrlKey || event.metaKey || event.altKey) return;
    const list = values(), here = list.findIndex((v) => v.closest("li").classList.contains("on"));
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      const next = list[Math.min(list.length - 1, Math.max(0, here + step))];
      if (next) { event.preventDefault(); choose(next.dataset.value, ""); }
    } else if (event.key === "+" || event.key === "=") zooms.in();
    else if (event.key === "-") zooms.out();
    else if (event.key === "0") zooms.fit();
    else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const pages = $$(".sheet-pages a", trace), now = pages.findIndex((a) => a.getAttribute("aria-current"));
      pages[now + (event.key === "ArrowRight" ? 1 : -1)]?.click();
    }
  });
  const said = $$(".values li[id]", trace).find((li) => `#${li.id}` === location.hash);
  if (said) choose($("[data-value]", said).dataset.value, "");
}
