// The game: shows what blue sees, sends the player's actions, asks for advice, waits until the moves are judged.
"use strict";

(() => {
  const content = JSON.parse(document.getElementById("content").textContent);
  const at = (id) => document.getElementById(id);
  const total = content.horizon;
  let view = content.view, selected = content.service_host, busy = false, waiting = false, network;

  function begin() {
    at("title").textContent = `You against ${content.red}`;
    const facts = [["steps", total], ["rules", content.rules], ["advice", content.advisor || "none"]];
    at("facts").replaceChildren(...facts.map(([name, value]) => make("li", {}, `${name} `, make("b", {}, String(value)))));
    at("advice").hidden = !content.advisor;
    at("advice-title").textContent = `Advice of ${content.advisor}`;
    at("anywhere").replaceChildren(...content.anywhere.map(([action, name], k) => button(action, name, k ? "" : "0")));
    at("ask").addEventListener("click", ask);
    at("end").addEventListener("click", () => {
      if (confirm(`End the game after step ${view.step} of ${total} and see the truth?`)) send("end", {});
    });
    document.addEventListener("keydown", press);
    new ResizeObserver(draw).observe(at("network"));
    draw();
  }

  function draw() {
    const width = at("network").clientWidth;
    if (!width) return;
    network = drawNetwork(content, at("network"), width, choose);
    show();
  }

  // ---------------------------------------------------------------------------------------------------- the server
  /** JSON of the server; null, with the reason on the page, if it gave none. */
  async function request(path, body) {
    const post = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
    try {
      const response = await fetch(path, body ? post : {}), answer = await response.json();
      at("problem").hidden = response.ok;
      if (response.ok) return answer;
      at("problem").textContent = answer.error;
      return response.status === 409 && path !== "state" ? request("state") : null; // played on in another window
    } catch {
      at("problem").hidden = false;
      at("problem").textContent = "The game does not answer: was the command ended?";
      return null;
    }
  }

  /** Act, or end the game; one request at a time. */
  async function send(path, numbers) {
    if (busy || view.over) return;
    busy = true;
    const answer = await request(path, { step: view.step, ...numbers });
    busy = false;
    if (!answer) return;
    view = answer;
    at("moves").replaceChildren();
    at("value").textContent = "";
    show();
  }

  async function ask() {
    if (busy || view.over) return;
    busy = true;
    const { step } = view, answer = await request("advice", { step });
    busy = false;
    if (!answer || !answer.moves) return;
    at("moves").replaceChildren(...answer.moves.map(([action, name, chance]) => {
      const fill = make("span", { class: "fill" });
      fill.style.width = `${100 * (chance === null ? 1 : chance)}%`;
      return make("li", {}, button(action, name, ""), make("span", { class: "track" }, fill),
        make("span", { class: "number" }, chance === null ? "" : `${(100 * chance).toFixed(1)}%`));
    }));
    at("value").textContent = answer.value === null ? "It knows what you know." : "It knows what you know, and " +
      `expects ${answer.value.toFixed(2).replace("-", "−")} from here on (discounted).`;
  }

  // ------------------------------------------------------------------------------------------------------- a step
  function show() {
    const last = view.log[view.step - 1] || null;
    content.hosts.forEach((host, h) => {
      const seen = showBelief(network, view, h, 0), decoys = view.n_decoys[h];
      network.parts[h].extra.textContent = decoys ? count(decoys, "decoy") : "";
      network.parts[h].group.setAttribute("aria-label", `${host.name}: blue believes ${view.belief[h]}` +
        `${seen ? `, blue ${seen}` : ""}, ${count(decoys, "decoy")}`);
    });
    network.acts.replaceChildren(...(last ? blueActs(network, last) : []));
    at("step-title").textContent = view.step ? `After step ${view.step} of ${total}` : `Before step 1 of ${total}`;
    at("blue").textContent = last ? did(last) : "have not acted yet";
    at("sees").textContent = last ? saw(last) : "nothing yet";
    at("restores").textContent = view.restores.toFixed(1);
    at("end").hidden = view.over || !view.step;
    at("log").replaceChildren(...view.log.map((step) =>
      make("li", {}, did(step), make("span", { class: "muted" }, step.sees.length ? `; blue sees ${saw(step)}` : ""))).reverse());
    at("act").hidden = view.over;
    at("advice").hidden = view.over || !content.advisor;
    at("over").hidden = !view.over;
    showHost();
    if (view.over && !waiting) wait();
  }

  const did = (step) => step.blue + (step.blue_failed ? ", which fails" : "");
  const saw = (step) => step.sees.map(([host, what]) => `${what} on ${host}`).join(", ") || "nothing";

  function button(action, name, digit) {
    const made = make("button", { type: "button", "data-action": action }, name,
      digit ? make("kbd", { class: "digit", "aria-hidden": "true" }, digit) : null);
    made.addEventListener("click", () => send("act", { action }));
    return made;
  }

  function choose(h) {
    selected = h;
    showHost();
  }

  function showHost() {
    const h = selected, host = content.hosts[h];
    network.parts.forEach((part, k) => part.group.classList.toggle("selected", k === h));
    at("act-title").textContent = `Step ${view.step + 1} of ${total}: act on ${host.name}`;
    const decoys = content.decoys.filter((name, d) => (view.decoys[h] >> d) & 1).map((name) => name.replace("Decoy", ""));
    const ever = view.ever[h].length ? ` So far: ${view.ever[h].join(", ")}.` : "";
    at("known").textContent = `Blue believes: ${view.belief[h]}.${ever} ${decoys.length ? `Decoys: ${decoys.join(", ")}. ` : ""}` +
      `Red’s root here costs ${host.cost.toFixed(1)} per step.`;
    if (at("actions").dataset.host === host.name) return; // the buttons, and the focus in them, stay
    at("actions").dataset.host = host.name;
    at("actions").replaceChildren(...content.actions[h].map(([action, kind], k) => button(action, kind.replace(/^Decoy/, "Decoy "), String(k + 1))));
  }

  // ------------------------------------------------------------------------------------------------------- keys
  /** Digits act while the focus is on a host or its actions: a stray key does nothing elsewhere. */
  function press(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const onHost = at("network").contains(event.target), near = onHost || at("act").contains(event.target);
    const [first] = at("actions").children, acts = /^(Enter|\d)$/.test(event.key) && near;
    if (acts && event.repeat) event.preventDefault(); // a key that is held down acts once
    if (event.repeat) return;
    if (event.key === "Enter" && onHost) first.focus();
    else if (event.key === "Escape" && near) network.parts[selected].group.focus();
    else if (/^\d$/.test(event.key) && near) {
      const pressed = event.key === "0" ? at("anywhere").firstChild : at("actions").children[Number(event.key) - 1];
      if (pressed) pressed.click();
    } else if (event.key.toLowerCase() === "h" && content.advisor) ask();
    else return;
    event.preventDefault();
  }

  // -------------------------------------------------------------------------------------------------------- the end
  /** Until all moves are judged; then this address is that of the replay. */
  async function wait() {
    waiting = true;
    at("over").focus(); // also brings it into view
    at("over-text").textContent = `${view.total ? "Your moves are being judged. Then" : "Now"} you see the truth.`;
    while (!view.ready) {
      if (view.total) Object.assign(at("progress"), { max: view.total, value: view.judged });
      await new Promise((then) => { setTimeout(then, 300); });
      const answer = await request("state");
      if (!answer) return;
      view = answer;
    }
    location.reload();
  }

  begin();
})();
