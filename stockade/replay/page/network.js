// The network as a picture: subnets, hosts, routes; on each host what is true beside what blue believes.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const CARD = { height: 66, gap: 12, pad: 10, title: 40 };
const VERBS = {
  DiscoverRemoteSystems: "discover", DiscoverNetworkServices: "scan", ExploitRemoteService: "exploit",
  PrivilegeEscalate: "escalate", Impact: "impact",
};
const SAME_LEVEL = { none: "no", user: "user", root: "privileged" };

/** An element with attributes and children; text is always text. */
function make(name, attributes = {}, ...children) {
  const inSvg = /^(svg|g|rect|circle|path|line|text|polyline|title)$/.test(name);
  const element = inSvg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Places of subnets and hosts for a width in pixels: three columns, or one below the other. */
function layout(content, width) {
  const wide = width >= 660;
  const nets = ["User", "Enterprise", "Operational"];
  const members = nets.map((net) => content.hosts.map((host, h) => h).filter((h) => content.hosts[h].subnet === net));
  const boxes = [], hosts = [];
  const gap = wide ? Math.min(64, width * 0.07) : 26;
  const boxWidth = wide ? (width - 2 * gap) / 3 : width;
  const columns = wide ? 1 : 2;
  const rows = members.map((group) => Math.ceil(group.length / columns));
  const heightOf = (count) => CARD.title + count * (CARD.height + CARD.gap) + CARD.pad - CARD.gap + 6;
  const tallest = Math.max(...rows.map(heightOf));
  let top = 0;
  nets.forEach((net, n) => {
    const height = heightOf(rows[n]);
    const box = wide ? { x: n * (boxWidth + gap), y: (tallest - height) / 2 } : { x: 0, y: top };
    Object.assign(box, { name: net, width: boxWidth, height });
    boxes.push(box);
    const cardWidth = (boxWidth - 2 * CARD.pad - (columns - 1) * 8) / columns;
    members[n].forEach((h, k) => {
      hosts[h] = {
        x: box.x + CARD.pad + (k % columns) * (cardWidth + 8),
        y: box.y + CARD.title + Math.floor(k / columns) * (CARD.height + CARD.gap),
        width: cardWidth, height: CARD.height,
      };
    });
    top += height + gap;
  });
  return { wide, boxes, hosts, columns, width, height: wide ? tallest : top - gap };
}

/** Draws everything that does not change from step to step; returns what does. In a blind picture there is no truth. */
function drawNetwork(content, place, width, select) {
  const picture = layout(content, width);
  const svg = make("svg", { viewBox: `0 0 ${width} ${picture.height + 8}`, role: "group", "aria-label": "Network" });
  const middle = (box) => [box.x + box.width / 2, box.y + box.height / 2];
  for (const [a, b] of [[0, 1], [1, 2]]) {
    const [from, to] = [middle(picture.boxes[a]), middle(picture.boxes[b])];
    svg.append(make("line", { class: "route", x1: from[0], y1: from[1], x2: to[0], y2: to[1] }));
  }
  for (const box of picture.boxes) {
    svg.append(make("rect", { class: "subnet", x: box.x, y: box.y, width: box.width, height: box.height, rx: 12 }));
    svg.append(make("text", { class: "net-title", x: box.x + CARD.pad, y: box.y + 18 }, `${box.name} subnet`));
    const cardWidth = (box.width - 2 * CARD.pad - (picture.columns - 1) * 8) / picture.columns;
    for (let column = 0; column < picture.columns; column++) {
      const x = box.x + CARD.pad + column * (cardWidth + 8);
      if (!content.blind) svg.append(make("text", { class: "column", x: x + 6, y: box.y + 34 }, "true"));
      const left = content.blind ? 6 : cardWidth / 2 + 4;
      svg.append(make("text", { class: "column", x: x + left, y: box.y + 34 }, "blue believes"));
    }
  }
  const parts = content.hosts.map((host, h) => drawHost(host.name, picture.hosts[h], () => select(h), content.blind));
  const acts = make("g", { "aria-hidden": "true", "pointer-events": "none" });
  svg.append(...parts.map((part) => part.group), acts);
  const focused = place.contains(document.activeElement) ? document.activeElement.dataset.host : null;
  place.replaceChildren(svg);
  const again = parts.find((part) => part.group.dataset.host === focused);
  if (again) setTimeout(() => again.group.focus()); // when the caller has what is drawn
  return { picture, parts, acts };
}

function drawHost(name, at, select, blind) {
  const inner = blind ? at.width - 12 : (at.width - 12 - 6) / 2;
  const half = (x) => {
    const level = make("text", { class: "level", x: x + inner / 2, y: 40, "text-anchor": "middle" });
    const note = make("text", { class: "note", x: x + inner / 2, y: 53, "text-anchor": "middle" });
    const group = make("g", {}, make("rect", { class: "half", x, y: 25, width: inner, height: 35, rx: 6 }), level, note);
    return { group, level, note };
  };
  const truth = blind ? null : half(6), belief = half(blind ? 6 : 6 + inner + 6);
  const extra = make("text", { class: "extra", x: at.width - 8, y: 17, "text-anchor": "end" });
  const clash = make("g", { class: "clash" }, make("circle", { cx: at.width / 2, cy: 42, r: 9 }),
    make("text", { x: at.width / 2, y: 46.5 }, "≠"));
  const group = make("g", { class: "host", tabindex: 0, role: "button", transform: `translate(${at.x} ${at.y})` },
    make("rect", { class: "body", width: at.width, height: at.height, rx: 9 }),
    make("text", { class: "name", x: 8, y: 17 }, name), extra, truth && truth.group, belief.group, clash);
  group.dataset.host = name;
  group.addEventListener("click", select);
  group.addEventListener("focus", select);
  group.addEventListener("keydown", (event) => { if (event.key === "Enter") select(); });
  return { group, truth, belief, extra };
}

/** Shows what blue believes and sees on a host; returns what it sees, in words. `chance` is of red there, in percent. */
function showBelief(drawn, state, h, chance) {
  const { belief } = drawn.parts[h], activity = state.activity[h];
  belief.group.setAttribute("class", state.belief[h]);
  belief.level.textContent = state.belief[h];
  const seen = activity === "none" ? "" : `sees ${activity}`;
  const both = chance && drawn.picture.wide ? `${activity} · ${chance}%` : seen;
  belief.note.textContent = seen ? both : chance ? `${chance}% red` : "";
  belief.level.setAttribute("y", belief.note.textContent ? 40 : 47);
  Object.assign(drawn.parts[h].group.dataset, { belief: state.belief[h], activity, decoys: state.n_decoys[h] });
  return seen;
}

/** Shows a state and what was done in the step that led to it; `held` is how likely red is on each host. */
function showNetwork(drawn, content, state, step, held) {
  drawn.parts.forEach((part, h) => {
    const access = state.access[h], belief = state.belief[h], data = part.group.dataset;
    const sure = SAME_LEVEL[access] === belief || belief === "unsure";
    const differs = !sure && h !== content.foothold;
    part.truth.group.setAttribute("class", access);
    part.group.classList.toggle("differs", differs);
    part.truth.level.textContent = access === "none" ? "no red" : access;
    const sessions = state.sessions[h];
    const service = h === content.service_host ? `service ${state.service_down ? "down" : "up"}` : "";
    part.truth.note.textContent = h === content.foothold ? "foothold" : state.service_down && service ? service :
      sessions ? count(sessions, "session") : service;
    part.truth.level.setAttribute("y", part.truth.note.textContent ? 40 : 47);
    const seen = showBelief(drawn, state, h, h === content.foothold ? 0 : Math.round(100 * held[h]));
    const extras = [];
    if (state.n_decoys[h]) extras.push(count(state.n_decoys[h], "decoy"));
    if (state.files[h]) extras.push("files");
    part.extra.textContent = extras.join(" · ");
    Object.assign(data, { access, sessions, files: state.files[h] });
    part.group.setAttribute("aria-label", `${content.hosts[h].name}: true access ${access}, blue believes ${belief}` +
      `${differs ? " (differs)" : ""}, ${count(sessions, "session")} of red, ` +
      `${count(state.n_decoys[h], "decoy")}${state.files[h] ? ", files of red" : ""}${seen ? `, blue ${seen}` : ""}`);
  });
  drawn.acts.replaceChildren(...(step ? [...blueActs(drawn, step), ...redActs(drawn, content, state, step)] : []));
}

function count(n, word) {
  return `${n} ${word}${n === 1 ? "" : "s"}`;
}

/** A label whose left or, if it is red's, right edge is at x. */
function tag(x, y, words, kind) {
  const width = 14 + 6.8 * words.length, left = kind === "red" ? x - width : x;
  return make("g", { class: `tag ${kind}` }, make("rect", { x: left, y: y - 9, width, height: 18, rx: 9 }),
    make("text", { x: left + width / 2, y: y + 4 }, words));
}

function blueActs(drawn, step) {
  if (step.blue_host < 0) return [];
  const at = drawn.picture.hosts[step.blue_host], verb = (step.chosen || step.blue).split(" ")[0];
  return [make("rect", { class: "ring", x: at.x - 3, y: at.y - 3, width: at.width + 6, height: at.height + 6, rx: 11 }),
    tag(at.x + 8, at.y + at.height + 2, verb + (step.blue_failed ? ", fails" : ""), "blue")];
}

/** Red's action: an arrow from its foothold, through a gateway that it holds into the Operational subnet. */
function redActs(drawn, content, state, step) {
  const verb = VERBS[step.red_type], target = step.red_target;
  if (!verb || target < 0) return [];
  const { hosts, boxes, wide } = drawn.picture;
  const words = verb + (step.red_failed ? ", fails" : "");
  const onHost = target < hosts.length;
  const subnet = onHost ? null : boxes.find((box) => step.red.endsWith(` ${box.name}`));
  const end = onHost ? hosts[target] : { x: subnet.x, y: subnet.y, width: subnet.width, height: 24 };
  const made = [];
  const foothold = hosts[content.foothold];
  const where = onHost ? content.hosts[target].subnet : subnet.name;
  const gateway = content.gateways.find((h) => state.sessions[h] > 0);
  const stops = [foothold];
  if (where === "Operational" && gateway !== undefined && gateway !== target) stops.push(hosts[gateway]);
  stops.push(end);
  if (end !== foothold && !["PrivilegeEscalate", "Impact"].includes(step.red_type)) {
    for (let k = 0; k + 1 < stops.length; k++) made.push(...arrow(stops[k], stops[k + 1], wide, step.red_failed));
  }
  made.push(tag(end.x + end.width - 4, end.y - 1, words, "red"));
  return made;
}

function arrow(from, to, wide, failed) {
  const sameColumn = Math.abs(from.x - to.x) < 20;
  let start, control1, control2, end;
  if (wide || sameColumn) {
    const rightwards = to.x > from.x + 20;
    start = [from.x + from.width, from.y + from.height / 2];
    end = [rightwards ? to.x : to.x + to.width, to.y + to.height / 2];
    const bend = rightwards ? (end[0] - start[0]) * 0.5 : 34;
    control1 = [start[0] + bend, start[1]];
    control2 = [rightwards ? end[0] - bend : end[0] + bend, end[1]];
  } else {
    start = [from.x + from.width / 2, from.y + from.height];
    end = [to.x + to.width / 2, to.y];
    control1 = [start[0], (start[1] + end[1]) / 2];
    control2 = [end[0], (start[1] + end[1]) / 2];
  }
  const angle = Math.atan2(end[1] - control2[1], end[0] - control2[0]);
  const wing = (turn) => `${end[0] - 11 * Math.cos(angle + turn)} ${end[1] - 11 * Math.sin(angle + turn)}`;
  return [
    make("path", { class: failed ? "arrow failed" : "arrow", d: `M${start} C${control1} ${control2} ${end}` }),
    make("path", { class: "tip", d: `M${end[0]} ${end[1]} L${wing(0.45)} L${wing(-0.45)} Z` }),
  ];
}
