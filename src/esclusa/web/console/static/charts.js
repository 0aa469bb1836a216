// Charts: the text of the step under the pointer, or that the arrow keys choose.

const readout = (chart) => document.querySelector(`[data-readout="${chart.dataset.chart}"]`);

function choose(chart, step) {
  for (const other of document.querySelectorAll(".chart .hit.on")) other.classList.remove("on");
  step?.classList.add("on");
  const output = readout(chart);
  if (output) output.textContent = step?.querySelector("title")?.textContent ?? "";
}

addEventListener("pointerover", (event) => {
  const step = event.target.closest?.(".chart .hit");
  if (step) choose(step.closest(".chart"), step);
});

addEventListener("pointerout", (event) => {
  const chart = event.target.closest?.(".chart");
  if (chart && !chart.contains(event.relatedTarget)) choose(chart, null);
});

addEventListener("keydown", (event) => {
  const chart = event.target.closest?.(".chart");
  if (!chart) return;
  const steps = [...chart.querySelectorAll(".hit")];
  const now = steps.findIndex((step) => step.classList.contains("on"));
  const last = steps.length - 1;
  const next = {
    ArrowLeft: now < 0 ? last : Math.max(0, now - 1),
    ArrowRight: now < 0 ? 0 : Math.min(last, now + 1),
    Home: 0,
    End: last,
  }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  choose(chart, steps[next]);
});
