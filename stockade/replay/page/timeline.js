// The timeline: what each step cost by cause, the running return, the moves that are marked.
"use strict";

const CHART = { height: 124, edge: 8, marks: 14, middle: 60, floor: 108 };
const SYMBOLS = { inaccuracy: "?!", mistake: "?", blunder: "??" };

/** Draws it for a width in pixels; `labels` has one label per step, or is empty. Returns the cursor. */
function drawTimeline(content, place, width, labels, go) {
  const total = content.steps.length, span = width - 2 * CHART.edge;
  const x = (t) => CHART.edge + (span * t) / total;
  const svg = make("svg", { viewBox: `0 0 ${width} ${CHART.height}`, "aria-hidden": "true" });
  const highest = Math.max(1, ...content.steps.map((step) => -step.reward));
  const scale = (points) => (CHART.floor - CHART.middle - 4) * Math.sqrt(points / highest);
  svg.append(make("line", { class: "axis", x1: CHART.edge, x2: width - CHART.edge, y1: CHART.floor, y2: CHART.floor }));
  const barWidth = Math.max(1, Math.min(10, span / total - 1));
  content.steps.forEach((step, t) => {
    let below = 0;
    for (const cause of ["root", "service", "restore"]) {
      const points = step.costs.filter((cost) => cost[0] === cause).reduce((sum, cost) => sum + cost[2], 0);
      if (!points) continue;
      const [low, high] = [scale(below), scale(below + points)];
      svg.append(make("rect", { class: `bar-${cause}`, x: x(t + 1) - barWidth / 2, width: barWidth,
        y: CHART.floor - high, height: Math.max(1.5, high - low) }));
      below += points;
    }
  });
  const places = []; // the worst first; others only where there is room
  for (const label of ["blunder", "mistake", "inaccuracy"]) {
    labels.forEach((each, t) => {
      if (each !== label || places.some((place) => Math.abs(place - x(t + 1)) < 13)) return;
      places.push(x(t + 1));
      svg.append(make("text", { class: `mark ${label}`, x: x(t + 1), y: CHART.marks - 3 }, SYMBOLS[label]));
    });
  }
  const returns = running(content), lowest = Math.min(...returns, -0.1);
  const points = returns.map((value, t) => `${x(t)},${CHART.marks + 4 + (CHART.middle - CHART.marks - 4) * (value / lowest)}`);
  svg.append(make("polyline", { class: "curve", points: points.join(" ") }));
  const end = returns[total].toFixed(1).replace("-", "−");
  svg.append(make("text", { class: "axis-text", x: width - CHART.edge, y: CHART.middle - 6, "text-anchor": "end" }, end));
  const every = [1, 2, 5, 10, 20, 50, 100, 200].find((n) => (span * n) / total > 38) || 500;
  for (let t = 0; t <= total; t += every) {
    svg.append(make("text", { class: "axis-text", x: x(t), y: CHART.height - 1,
      "text-anchor": t === 0 ? "start" : "middle" }, String(t)));
  }
  const cursor = make("line", { class: "cursor", y1: CHART.marks, y2: CHART.floor });
  svg.append(cursor);
  svg.addEventListener("click", (event) => {
    const at = svg.getBoundingClientRect();
    go(Math.round(((event.clientX - at.left - CHART.edge) / span) * total));
  });
  place.replaceChildren(svg);
  return (t) => { cursor.setAttribute("x1", x(t)); cursor.setAttribute("x2", x(t)); };
}

/** The return after each step, the start included. Sums are of tenths, so that they are exact. */
function running(content) {
  let tenths = 0;
  return [0, ...content.steps.map((step) => (tenths += Math.round(10 * step.reward)) / 10)];
}
