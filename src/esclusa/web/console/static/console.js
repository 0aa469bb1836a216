// The console's script. Pages work without it; it adds live counts and small conveniences.

const html = document.documentElement;
html.classList.add("js");
const numbers = new Intl.NumberFormat(html.lang, { useGrouping: "always" });
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
const isTyping = () => /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");

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

// Times are shown in the reader's zone. The server learns it from a cookie, unless one was chosen.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone && !/(^|; )esclusa_zone=/.test(document.cookie) && navigator.cookieEnabled) {
  const path = html.dataset.prefix || "/";
  const secure = location.protocol === "https:" ? "; secure" : "";
  const value = encodeURIComponent(zone);
  document.cookie = `esclusa_zone=${value}; path=${path}; max-age=31536000; samesite=lax${secure}`;
  const learned = document.cookie.includes(`esclusa_zone=${value}`);
  if (learned && html.dataset.zone !== zone && !("utc" in html.dataset)) location.reload();
}

// On a phone the menu scrolls sideways: bring the current page into view.
const menu = $(".menu"), current = $(".menu [aria-current]");
if (current && menu.scrollWidth > menu.clientWidth) {
  menu.scrollLeft = current.offsetLeft - (menu.clientWidth - current.offsetWidth) / 2;
}

// Likewise the current state of a record, where its lifecycle is wider than the page.
const currentNode = $(".graph .node.current"), currentGraph = currentNode?.closest(".graph");
if (currentGraph) {
  const box = currentNode.getBBox();
  currentGraph.scrollLeft = box.x + box.width / 2 - currentGraph.clientWidth / 2;
}

// Relative times stay correct while the page is open. They follow the store's clock.
const clockOffset = new Date(html.dataset.moment).getTime() - Date.now();
function updateTimes() {
  for (const time of $$("time:not(.clock)")) {
    const seconds = (new Date(time.dateTime).getTime() - Date.now() - clockOffset) / 1000;
    if (Math.abs(seconds) < 1.5) time.textContent = html.dataset.now;
    else {
      const phrase = seconds > 0 ? html.dataset.in : html.dataset.ago;
      time.textContent = phrase.replace("{time}", duration(seconds));
    }
  }
}
setInterval(updateTimes, 5000);

// The map: live counts, and dots along the arrows.
const formatCount = (count, exact) => numbers.format(count) + (exact ? "" : "+");

function animateMove(svg, from, to, amount) {
  const edge = $$(".edge", svg).find((e) => e.dataset.from === from && e.dataset.to === to);
  if (!edge) return;
  edge.classList.add("moving");
  setTimeout(() => edge.classList.remove("moving"), 1000);
  if (reducedMotion.matches) return;
  const dots = Math.min(6, Math.ceil(Math.log2(amount + 1)));
  for (let i = 0; i < dots; i++) {
    const dot = document.createElementNS(svg.namespaceURI, "circle");
    dot.setAttribute("r", "4");
    dot.setAttribute("class", "mover");
    const motion = document.createElementNS(svg.namespaceURI, "animateMotion");
    motion.setAttribute("path", edge.getAttribute("d"));
    motion.setAttribute("dur", "0.9s");
    motion.setAttribute("begin", "indefinite");
    motion.setAttribute("fill", "freeze");
    dot.append(motion);
    setTimeout(() => {
      svg.append(dot);
      motion.beginElement();
      setTimeout(() => dot.remove(), 900);
    }, i * 130);
  }
}

// Squeeze the line below a state's count if it is wider than its box.
function fitLine(line) {
  const room = $(".box", line.closest(".node")).width.baseVal.value - 22;
  line.removeAttribute("textLength");
  if (line.getComputedTextLength() > room) {
    line.setAttribute("textLength", room);
    line.setAttribute("lengthAdjust", "spacingAndGlyphs");
  }
}
for (const line of $$(".node .sub")) fitLine(line);

function updateNode(node, [count, exact], stage, dueText) {
  const number = $("[data-count]", node), text = formatCount(count, exact);
  if (number.textContent !== text) {
    number.textContent = text;
    node.classList.add("changed");
    setTimeout(() => node.classList.remove("changed"), 900);
  }
  node.classList.toggle("none", !count);
  const line = $("[data-sub]", node);
  node.dataset.role ??= stage && stage.due ? "" : line.textContent;
  if (stage && stage.due) {
    const age = stage.oldest_due_seconds;
    line.textContent = dueText
      .replace("{n}", formatCount(stage.due, stage.due_exact))
      .replace("{age}", duration(age ?? 0));
    node.classList.toggle("stuck", age > Number(node.dataset.stuckAfter ?? 300));
  } else if (stage) {
    node.classList.remove("stuck");
    line.textContent = node.dataset.role;
  }
  fitLine(line);
}

function startLive() {
  const sign = $("[data-live]");
  if (!sign) return;
  const status = $("[data-live-status]", sign);
  const source = new EventSource(sign.dataset.live);
  source.onerror = () => { sign.classList.remove("on"); status.textContent = sign.dataset.off; };
  source.onmessage = (event) => {
    const data = JSON.parse(event.data);
    if (data.unavailable) {
      sign.classList.remove("on");
      status.textContent = sign.dataset.unavailable;
      return;
    }
    sign.classList.add("on");
    status.textContent = sign.dataset.on;
    for (const svg of $$("[data-graph]")) {
      const table = svg.dataset.graph, counts = data.kinds[table] ?? {};
      for (const node of $$(".node", svg)) {
        const takes = (s) => s.table === table && s.take[0] === node.dataset.state;
        const stage = data.stages.find(takes);
        updateNode(node, counts[node.dataset.state] ?? [0, true], stage, sign.dataset.due);
      }
      for (const [from, to, amount] of data.moves[table] ?? []) animateMove(svg, from, to, amount);
    }
    for (const total of $$("[data-total]")) {
      const counts = Object.values(data.kinds[total.dataset.total] ?? {});
      const all = counts.reduce((sum, c) => sum + c[0], 0);
      total.textContent = formatCount(all, counts.every((c) => c[1]));
    }
    for (const number of $$("[data-states]")) {
      const counts = Object.entries(JSON.parse(number.dataset.states)).flatMap(
        ([table, states]) => states.map((state) => data.kinds[table]?.[state] ?? [0, true]));
      const all = counts.reduce((total, c) => total + c[0], 0);
      number.textContent = formatCount(all, counts.every((c) => c[1]));
      number.closest("li").classList.toggle("none", !all);
      const words = number.nextElementSibling.dataset;
      number.nextElementSibling.textContent = all === 1 ? words.one : words.many;
    }
    const sum = (name) => data.stages.reduce((total, s) => total + (s[name] ?? 0), 0);
    const oldest = Math.max(-1, ...data.stages.map((s) => s.oldest_due_seconds ?? -1));
    const figure = (name, text) => {
      const dd = $(`[data-figure="${name}"]`);
      if (dd) dd.textContent = text;
    };
    figure("due", formatCount(sum("due"), data.stages.every((s) => s.due_exact)));
    figure("oldest", oldest < 0 ? "—" : duration(oldest));
    figure("rate", numbers.format(Math.round(sum("per_minute") * 10) / 10));
  };
  addEventListener("pagehide", () => source.close(), { once: true });
}
startLive();
addEventListener("pageshow", (event) => {
  if (event.persisted) startLive(); // restored from the back-forward cache
});

// Repeat a task; the next one starts when the last has ended, because an answer may take long.
function repeat(seconds, task) {
  setTimeout(async () => { await task().catch(() => {}); repeat(seconds, task); }, seconds * 1000);
}
const fetchPage = () => fetch(location.href, { headers: { accept: "text/html" } });

// Other pages are refreshed from time to time, unless the visitor is working on them.
const main = $("main[data-refresh]");
if (main) {
  const focused = () => document.activeElement !== main && main.contains(document.activeElement);
  repeat(Number(main.dataset.refresh), async () => {
    const reading = focused() || $("details[open]", main) || String(getSelection()).length;
    if (document.hidden || reading) return;
    const answer = await fetchPage();
    if (answer.redirected) return; // to the sign-in page; an error page is shown like any other
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!focused()) main.replaceChildren(...$("main", page).childNodes);
  });
}

// An error page is loaded again as soon as the server can answer.
const failed = $("main[data-retry]");
if (failed) {
  repeat(Number(failed.dataset.retry), async () => {
    if (!document.hidden && (await fetchPage()).ok) location.reload();
  });
}

// Send a form only once: a second click would repeat the action.
const sent = new WeakSet();
addEventListener("submit", (event) => {
  if (event.target.method !== "post") return;
  if (sent.has(event.target)) event.preventDefault();
  sent.add(event.target);
});
addEventListener("pageshow", () => { for (const form of $$("form")) sent.delete(form); });

// "/" moves the focus to the search field.
addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.ctrlKey && !event.metaKey && !isTyping()) {
    const search = $("#search");
    if (search) { event.preventDefault(); search.focus(); }
  }
});

// Bulk actions: show how many records are selected, and select all of the page.
for (const form of $$("[data-bulk]")) {
  const label = $("[data-selected]", form);
  if (!label) continue;
  const update = () => {
    const n = $$("input[name=ids]:checked", form).length;
    const some = label.dataset.some.replace("{n}", numbers.format(n));
    label.textContent = n ? some : label.dataset.all;
  };
  const head = $("thead .box", form);
  if (head) {
    const selectAll = document.createElement("input");
    selectAll.type = "checkbox";
    selectAll.setAttribute("aria-label", head.textContent.trim());
    selectAll.addEventListener("change", () => {
      for (const box of $$("input[name=ids]", form)) box.checked = selectAll.checked;
      update();
    });
    head.replaceChildren(selectAll);
  }
  form.addEventListener("change", update);
  update();
}
