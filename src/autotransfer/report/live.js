"use strict";
// Every text goes through textContent: names are users' text and never markup.
const $ = (id) => document.getElementById(id);
const score = (value) => value.toFixed(3).replace(/^0/, "");
const SVG = "http://www.w3.org/2000/svg";

function element(parent, name, attributes, text) {
  const made = document.createElementNS(parent.namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

function drawCurves(curves, chance) {
  const svg = $("curves"), legend = $("legend");
  svg.replaceChildren();
  legend.replaceChildren();
  const points = curves.flatMap((curve) => curve.points);
  svg.style.display = points.length ? "" : "none";
  if (!points.length) {
    element(legend, "li", {}, "").textContent = "None yet: the first trainings are on their way.";
    return;
  }
  const box = { left: 64, right: 750, top: 12, bottom: 262 };
  const last = Math.max(2, ...points.map((point) => point[0]));
  const values = [...points.map((point) => point[1]), chance];
  const low = Math.max(0, Math.min(...values) - 0.03), high = Math.min(1, Math.max(...values) + 0.03);
  const x = (epoch) => box.left + (box.right - box.left) * (epoch - 1) / (last - 1);
  const y = (value) => box.bottom - (box.bottom - box.top) * (value - low) / (high - low || 1);
  const step = [0.01, 0.02, 0.05, 0.1, 0.2].find((one) => (high - low) / one <= 6) || 0.2;
  for (let value = Math.ceil(low / step) * step; value <= high + 1e-9; value += step) {
    element(svg, "line", { class: "grid", x1: box.left, x2: box.right, y1: y(value), y2: y(value) });
    element(svg, "text", { x: box.left - 8, y: y(value) + 4, "text-anchor": "end" }, value.toFixed(2).replace(/^0/, ""));
  }
  const wide = Math.max(1, Math.round(last / 5));
  for (let epoch = 1; epoch <= last; epoch += wide) {
    const anchor = epoch === 1 ? "start" : "middle";
    element(svg, "text", { x: x(epoch), y: box.bottom + 24, "text-anchor": anchor }, epoch === 1 ? "epoch 1" : String(epoch));
  }
  element(svg, "line", { class: "chance", x1: box.left, x2: box.right, y1: y(chance), y2: y(chance) });
  curves.forEach((curve, place) => {
    const line = curve.points.map((point, n) => `${n ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[1]).toFixed(1)}`);
    element(svg, "path", { class: `k${place} ${curve.running ? "running" : ""}`, d: line.join("") });
    element(element(legend, "li", { class: `k${place}` }), "span", {}, curve.name + (curve.running ? " (now)" : ""));
  });
}

function drawRanking(rows, more) {
  const body = $("ranking");
  body.replaceChildren();
  for (const row of rows) {
    const line = element(body, "tr", {});
    element(line, "th", { scope: "row" }, row.name);
    element(line, "td", { class: "n" }, score(row.mean));
    element(line, "td", { class: "n" }, score(row.quartile));
    element(line, "td", { class: "n less" }, String(row.people));
    element(line, "td", { class: "n less" }, String(row.trainings));
  }
  $("more").textContent = rows.length ? (more ? `and ${more} more` : "") : "Nothing is ranked before the first training ends.";
}

function draw(state) {
  $("problem").hidden = !state.problem;
  if (state.problem) {
    $("problem").textContent = state.problem;
    return;
  }
  document.title = `${Math.floor(100 * state.share)} % ${state.name} – AutoTransfer`;
  $("name").textContent = state.name;
  $("state").textContent = state.state + (state.started ? ` · started ${state.started.replace("T", " ").slice(0, 16)} UTC` : "");
  document.querySelector("progress").value = state.share;
  $("jobs").textContent = state.jobs;
  $("share").textContent = `${Math.floor(100 * state.share)} %`;
  $("spent").textContent = state.spent;
  $("left").textContent = state.complete ? "0:00" : state.left === null ? "not known yet" : state.left;
  $("known").textContent = state.complete || state.left === null ? "" : "for the known jobs";
  const first = state.ranking[0];
  $("best").textContent = first ? score(first.mean) : "–";
  $("leader").textContent = first ? `chance ${score(state.chance)}; ${first.name}` : "";
  $("answer").hidden = !state.answer.length;
  $("answer").textContent = state.answer.join("\n");
  drawCurves(state.curves, state.chance);
  drawRanking(state.ranking, state.more);
  $("failed").hidden = !state.failures.length;
  $("failures").replaceChildren();
  for (const failure of state.failures) element($("failures"), "li", {}, failure);
  $("when").textContent = `Last news ${new Date().toLocaleTimeString()}.`;
}

async function ask() {
  let wait = 2000;
  try {
    const answer = await fetch("state", { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    draw(await answer.json());
  } catch {
    $("when").textContent = "The command in the terminal has ended, so this page stays as it is. The report is in the run's folder.";
    wait = 10000;
  }
  document.documentElement.dataset.ready = "yes";
  setTimeout(ask, wait);
}

ask();
