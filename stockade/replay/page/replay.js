// The page: reads the episode, shows a step, reacts to buttons, keys and the slider.
"use strict";

(() => {
  const content = JSON.parse(document.getElementById("content").textContent);
  const at = (id) => document.getElementById(id);
  const total = content.steps.length, returns = running(content);
  const slider = at("slider");
  let now = 0, timer = null, selected = content.service_host, picked = false, view = 0, network, cursor;

  const points = (value) => value.toFixed(1).replace("-", "−");
  const two = (value) => value.toFixed(2).replace("-", "−");
  const percent = (share) => `${Math.round(100 * share)}%`;
  const signed = (value) => (value > 0 ? "+" : "") + two(value);

  function begin() {
    at("title").textContent = `${content.policy} against ${content.red}`;
    const facts = [["return", points(content.return)], ["steps", total], ["rules", content.rules], ["seed", content.seed],
      ["plays", content.style], ["simulator", content.source]];
    if (content.green !== "sleep") facts.push(["green", content.green]);
    if (content.order) facts.push(["order", content.order]);
    at("facts").replaceChildren(...facts.map(([name, value]) => make("li", {}, `${name} `, make("b", {}, String(value)))));
    slider.max = total;
    at("policy").hidden = !content.steps[0].likely;
    if (content.advisor) at("policy-title").textContent = `What ${content.advisor} would do`;
    at("judged").hidden = at("worst-card").hidden = !content.analyses.length;
    at("marked").hidden = !content.analyses.length;
    at("views").replaceChildren(...content.analyses.map((analysis, k) => {
      const button = make("button", { type: "button", role: "radio" }, analysis.view);
      button.addEventListener("click", () => { view = k; choose(); });
      return button;
    }));
    showSums();
    listen();
    const asked = /^#step=(\d+)$/.exec(location.hash);
    now = asked ? Math.min(total, Number(asked[1])) : 0;
    new ResizeObserver(draw).observe(at("network"));
    choose();
  }

  /** Another judgement is shown: its marks, its list. */
  function choose() {
    const analysis = content.analyses[view];
    [...at("views").children].forEach((button, k) => {
      button.setAttribute("aria-checked", String(k === view));
      button.tabIndex = 0;
    });
    if (analysis) {
      at("knows").textContent = `${analysis.knows} ${analysis.rollouts} rollouts of each move, on common random ` +
        `numbers; ${analysis.continued_by} plays on.`;
      at("worst").replaceChildren(...analysis.worst.map((entry) => {
        const button = make("button", { type: "button" }, make("span", { class: `badge ${entry.label}` },
          `${SYMBOLS[entry.label]} ${entry.label}`), entry.text);
        button.addEventListener("click", () => go(entry.step));
        return make("li", {}, button);
      }));
      const found = (label) => analysis.steps.filter((step) => step.label === label).length;
      at("counts").textContent = `${count(found("blunder"), "blunder")}, ${count(found("mistake"), "mistake")}, ` +
        `${found("inaccuracy")} ${found("inaccuracy") === 1 ? "inaccuracy" : "inaccuracies"}`;
      if (!analysis.worst.length) {
        at("worst").append(make("li", { class: "none" }, `No move lost ${Math.min(...Object.values(analysis.labels))} ` +
          "points or more beyond its interval: what was lost, chance took."));
      }
    }
    showAll();
    draw();
  }

  function draw() {
    const width = at("network").clientWidth;
    if (!width) return;
    network = drawNetwork(content, at("network"), width, (h) => { selected = h; picked = true; showHost(); });
    const labels = content.analyses.length ? content.analyses[view].steps.map((step) => step.label) : [];
    cursor = drawTimeline(content, at("timeline"), at("timeline").clientWidth, labels, go);
    show();
  }

  // ---------------------------------------------------------------------------------------------------- a step
  function go(step) {
    now = Math.max(0, Math.min(total, step));
    show();
  }

  function show() {
    const step = now ? content.steps[now - 1] : null, state = content.states[now];
    slider.value = now;
    slider.setAttribute("aria-valuetext", `step ${now} of ${total}, return ${points(returns[now])}`);
    at("step-title").textContent = now ? `Step ${now} of ${total}` : `Start, before step 1 of ${total}`;
    at("when").textContent = now ? `after step ${now}` : "at the start";
    const service = at("service");
    service.textContent = `Operational service ${state.service_down ? "down" : "up"}`;
    service.classList.toggle("down", state.service_down);
    at("blue").textContent = step ? blueWords(step) : "has not acted yet";
    at("red").textContent = step ? redWords(step) : "holds User0, its foothold";
    at("reward").textContent = step ? points(step.reward) : "–";
    at("return").textContent = points(returns[now]);
    at("costs").replaceChildren(...costItems(step));
    showNetwork(network, content, state, step, content.belief.access[now]);
    at("suspects").textContent = suspects();
    cursor(now);
    showPolicy(step);
    showJudgement(step);
    showHost();
    for (const row of at("steps").tBodies[0].rows) row.classList.toggle("now", Number(row.dataset.step) === now);
    at("first").disabled = at("back").disabled = now === 0;
    at("last").disabled = at("forward").disabled = now === total;
    at("loss").disabled = nextLoss() === null;
    at("marked").disabled = nextMarked() === null;
  }

  /** Who probably attacks, and by which rules; what is missing to 100% acts as none of them does. */
  function suspects() {
    const { attacker, leaderboard } = content.belief;
    const others = ["nobody", "B_line", "Meander"].map((name, k) => [name, attacker[now][k]]);
    const unknown = 1 - attacker[now].reduce((sum, chance) => sum + chance);
    const shown = [...others, ["somebody else", unknown]].filter(([, chance]) => chance >= 0.005);
    return `Given all that blue has seen: ${shown.map(([name, chance]) => `${name} ${percent(chance)}`).join(", ")}; ` +
      `rules leaderboard ${percent(leaderboard[now])}.`;
  }

  function blueWords(step) {
    if (step.chosen) return `${step.chosen}: refused, the order forbids it now; Sleep instead`;
    return step.blue + (step.blue_failed ? ", which fails" : "");
  }

  function redWords(step) {
    const means = step.exploit ? ` by ${step.exploit}` : "";
    const seen = step.noticed === null ? "" : step.noticed ? "; blue notices" : "; blue does not notice";
    return step.red + means + (step.red_failed ? ", which fails" : seen) +
      (step.green ? ` (green scans ${step.green})` : "");
  }

  const CAUSES = { root: "red’s root on", service: "service down on", restore: "Restore of" };

  function costItems(step) {
    if (!step || !step.costs.length) return [make("li", { class: "none" }, "no cost")];
    return step.costs.map(([cause, host, cost]) => make("li", { class: cause }, `−${cost.toFixed(1)} ${CAUSES[cause]} ${host}`));
  }

  function bar(name, share, number, kind) {
    const fill = make("span", { class: "fill" });
    fill.style.width = `${(100 * share).toFixed(1)}%`;
    return make("li", { class: kind }, make("span", {}, name), make("span", { class: "track" }, fill),
      make("span", { class: "number" }, number));
  }

  function showPolicy(step) {
    if (!content.steps[0].likely) return;
    at("likely").replaceChildren(...(step ? step.likely.map(([name, chance]) =>
      bar(name, chance, `${(100 * chance).toFixed(1)}%`, name === (step.chosen || step.blue) ? "chosen" : "")) : []));
    at("value").textContent = step ? `Before this step it expected ${two(step.value)} from here on (discounted).` : "Nothing to decide yet.";
  }

  function showJudgement(step) {
    const analysis = content.analyses[view];
    if (!analysis) return;
    const verdict = at("verdict"), body = at("moves").tBodies[0];
    if (!step) {
      verdict.textContent = "No move yet.";
      body.replaceChildren();
      return;
    }
    const judged = analysis.steps[now - 1];
    const best = judged.moves.find((move) => move[0] === judged.best);
    const words = judged.label === "best" ? "no other move is worth more" : best[3] <= best[4] ?
      `about as good as ${judged.best}` : `${two(judged.lost)} points worse than ${judged.best}`;
    const badge = make("span", { class: `badge ${judged.label}` }, `${SYMBOLS[judged.label] || (judged.label === "best" ? "✓" : "")} ${judged.label}`.trim());
    const doubt = judged.exact ? "" : " No sampled state agrees with all that blue saw; the nearest were taken.";
    verdict.replaceChildren(badge, `${step.blue}: ${words}.${doubt}`);
    const low = Math.min(...judged.moves.map((move) => move[1] - move[2]));
    const high = Math.max(...judged.moves.map((move) => move[1] + move[2]));
    const x = (value) => 4 + (108 * (value - low)) / Math.max(1e-9, high - low);
    body.replaceChildren(...judged.moves.map(([name, value, half, gain, gainHalf], k) => {
      const whisker = make("svg", { viewBox: "0 0 116 13", "aria-hidden": "true" },
        make("line", { class: "whisker", x1: x(value - half), x2: x(value + half), y1: 6.5, y2: 6.5 }),
        make("circle", { class: "point", cx: x(value), cy: 6.5, r: 3.2 }));
      return make("tr", { class: k ? "" : "played" }, make("td", {}, name), make("td", {}, `${two(value)} ± ${half.toFixed(2)}`, whisker),
        make("td", {}, k ? `${signed(gain)} ± ${gainHalf.toFixed(2)}` : "played"));
    }));
  }

  function showHost() {
    const state = content.states[now], h = selected, host = content.hosts[h];
    network.parts.forEach((part, k) => part.group.classList.toggle("selected", picked && k === h));
    at("host-title").textContent = `${host.name}, ${now ? `after step ${now}` : "at the start"}`;
    const decoys = content.decoys.filter((name, d) => (state.decoys[h] >> d) & 1).map((name) => name.replace("Decoy", ""));
    const files = [state.files[h] & 1 ? "cmd" : "", state.files[h] & 2 ? "escalate" : ""].filter(Boolean);
    const rows = [
      ["Red’s access", state.access[h]], ["Blue believes", state.belief[h]],
      ["Red is here, given all that blue has seen", `${percent(content.belief.access[now][h])}, as root ${percent(content.belief.root[now][h])}`],
      ["Blue sees in this step", state.activity[h]],
      ["Red’s sessions", `${state.sessions[h]}, of which a Remove would end ${state.removable[h]}`],
      ["Decoys", decoys.join(", ") || "none"], ["Files of red", files.join(", ") || "none"],
      ["Red knows", [state.known[h] ? "its address" : "", state.scanned[h] ? "its ports" : ""].filter(Boolean).join(" and ") || "nothing"],
      ["Root here costs", `${host.cost.toFixed(1)} per step`],
    ];
    at("host").tBodies[0].replaceChildren(...rows.map(([name, value]) =>
      make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, value))));
  }

  // ----------------------------------------------------------------------------------------------- the whole episode
  function showSums() {
    const sums = new Map();
    for (const step of content.steps) {
      for (const [cause, host, cost] of step.costs) {
        const key = `${cause} ${host}`, entry = sums.get(key) || { cause, host, tenths: 0 };
        entry.tenths += Math.round(10 * cost);
        sums.set(key, entry);
      }
    }
    const all = [...sums.values()].sort((a, b) => b.tenths - a.tenths);
    at("sums").replaceChildren(...all.map(({ cause, host, tenths }) =>
      bar(`${CAUSES[cause]} ${host}`, tenths / all[0].tenths, `−${(tenths / 10).toFixed(1)}`, cause)));
    if (!all.length) at("sums").append(make("li", {}, "nothing was lost"));
  }

  function showAll() {
    const analysis = content.analyses[view];
    const names = ["Step", "Reward", "Return", "Blue", "Red", ...(analysis ? ["Judged"] : [])];
    at("steps").tHead.replaceChildren(make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name))));
    at("steps").tBodies[0].replaceChildren(...content.steps.map((step, t) => {
      const cells = [t + 1, points(step.reward), points(returns[t + 1]), blueWords(step), redWords(step)];
      if (analysis) {
        const judged = analysis.steps[t];
        cells.push(SYMBOLS[judged.label] ? `${judged.label}: ${two(judged.lost)} worse than ${judged.best}` : judged.label);
      }
      const row = make("tr", {}, ...cells.map((cell) => make("td", {}, String(cell))));
      row.dataset.step = t + 1;
      return row;
    }));
  }

  // ------------------------------------------------------------------------------------------------------- moving
  /** The next step with a cost that the step before it did not have: another host, another cause, or a Restore. */
  function nextLoss() {
    for (let t = now; t < total; t++) {
      const before = t ? content.steps[t - 1].costs.map(([cause, host]) => `${cause} ${host}`) : [];
      const fresh = content.steps[t].costs.some(([cause, host]) => cause === "restore" || !before.includes(`${cause} ${host}`));
      if (fresh) return t + 1;
    }
    return null;
  }

  function nextMarked() {
    if (!content.analyses.length) return null;
    const found = content.analyses[view].steps.findIndex((step, t) => t >= now && SYMBOLS[step.label]);
    return found < 0 ? null : found + 1;
  }

  function play(on) {
    clearInterval(timer);
    timer = null;
    if (on && now === total) go(0);
    if (on) {
      timer = setInterval(() => {
        go(now + 1);
        if (now === total) play(false);
      }, 900 / Number(at("speed").value));
    }
    at("play").textContent = on ? "Pause" : "Play";
    at("play").setAttribute("aria-pressed", String(on));
    at("said").setAttribute("aria-live", on ? "off" : "polite"); // a screen reader could not keep up
  }

  function stop(step) {
    play(false);
    if (step !== null) go(step);
  }

  function listen() {
    const actions = {
      first: () => stop(0), back: () => stop(now - 1), forward: () => stop(now + 1), last: () => stop(total),
      play: () => play(timer === null), loss: () => stop(nextLoss()), marked: () => stop(nextMarked()),
    };
    for (const [id, act] of Object.entries(actions)) at(id).addEventListener("click", act);
    slider.addEventListener("input", () => stop(Number(slider.value)));
    at("speed").addEventListener("change", () => { if (timer !== null) play(true); });
    const keys = { ArrowLeft: "back", ArrowRight: "forward", Home: "first", End: "last", " ": "play", n: "loss", m: "marked" };
    document.addEventListener("keydown", (event) => {
      const key = event.key.length === 1 ? event.key.toLowerCase() : event.key, name = event.target.tagName;
      if (!keys[key] || event.ctrlKey || event.altKey || event.metaKey || name === "SELECT") return;
      if (event.target === slider && /^(Arrow|Home|End)/.test(key)) return; // it moves by itself
      if (key === " " && (name === "BUTTON" || name === "SUMMARY")) return; // it presses the button
      event.preventDefault();
      actions[keys[key]]();
    });
  }

  begin();
})();
