"use strict";
// Draws the figures of the report. Everything it needs is in the page.
(() => {
  const root = document.documentElement;
  const errors = [];
  const report = (what) => {
    errors.push(String(what));
    root.dataset.errors = JSON.stringify(errors);
  };
  addEventListener("error", (event) => report(event.message));
  addEventListener("unhandledrejection", (event) => report(event.reason));
  document.addEventListener("securitypolicyviolation", (event) => report(event.violatedDirective + " " + event.blockedURI));

  const figures = JSON.parse(document.getElementById("figure-data").textContent);
  const light = document.createElement("div");
  light.className = "light";
  light.hidden = true;
  document.body.append(light);
  const PRINT_WIDTH = 690; // what is left of A4 and of US letter between the margins
  const GAP = 56;          // between panels: room for tick labels and titles

  // ---- colours ---------------------------------------------------------------------------------------------------
  // Only keys that hold colours are looked at, so that a subject called "var(--ink)" keeps its name.
  function painted(value, style, key = "") {
    if (Array.isArray(value)) return value.map((item) => painted(item, style, key));
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, painted(item, style, name)]));
    if (typeof value === "string" && /color/i.test(key) && value.startsWith("var("))
      return style.getPropertyValue(value.slice(4, -1)).trim();
    return value;
  }

  // ---- layout ----------------------------------------------------------------------------------------------------
  function arranged(figure, width, style, title) {
    const layout = painted(figure.layout, style);
    const narrow = width < 560;
    const columns = narrow ? 1 : figure.panels;
    const rows = Math.ceil(figure.panels / columns);
    const top = figure.panels > 1 || layout.annotations.some((note) => note.yanchor === "bottom" && note.y === 1) ? 28 : 10;
    const margin = { l: !figure.axes ? 2 : narrow ? 44 : 52, r: figure.axes ? 14 : 2, t: top + (title ? 44 : 0), b: figure.axes ? 46 : 6, ...layout.margin };
    const room = labelRoom(layout);
    const gapX = GAP + Math.max(0, room.left - margin.l + 14);
    margin.l = Math.max(margin.l, room.left);
    const inner = width - margin.l - margin.r;
    const wide = (inner - (columns - 1) * gapX) / columns;
    const upright = room.total > (figure.square ? Math.min(wide, figure.height) : wide) ? room.longest : 0; // names that would run into each other are turned
    margin.b += upright;
    const low = width === PRINT_WIDTH || (narrow && figure.panels > 1) ? 0.75 : 1; // fewer pages, less to scroll
    const high = figure.square ? Math.min(wide, figure.height) : figure.height * low;
    const gap = GAP + upright + (figure.axes ? 30 : -12);
    const all = rows * high + (rows - 1) * gap;
    for (let i = 0; i < figure.panels; i++) {
      const [column, row, suffix] = [i % columns, Math.floor(i / columns), i ? i + 1 : ""];
      const left = (column * (wide + gapX)) / inner;
      const right = left + (figure.square ? high : wide) / inner;
      const bottom = 1 - (row * (high + gap) + high) / all;
      Object.assign(layout["xaxis" + suffix], { domain: [left, Math.min(right, 1)], anchor: "y" + suffix, tickangle: upright ? -90 : 0 });
      Object.assign(layout["yaxis" + suffix], { domain: [Math.max(0, bottom), bottom + high / all], anchor: "x" + suffix });
    }
    for (const axis of upright ? Object.keys(layout).filter((key) => key.startsWith("xaxis")).map((key) => layout[key]) : []) {
      const every = Math.ceil((axis.tickvals.length * 14) / (figure.square ? high : wide)); // names of 14 pixels each that fit
      for (const key of ["tickvals", "ticktext"]) axis[key] = axis[key].filter((_, i) => i % every === 0);
    }
    const color = (name) => style.getPropertyValue(name).trim();
    const legend = figure.legend ? legendBelow(figure, width) : 0;
    return {
      ...layout, margin: { ...margin, b: margin.b + legend }, width, height: all + margin.t + margin.b + legend,
      paper_bgcolor: title ? color("--background") : "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: narrow ? 11 : 12, color: color("--ink") },
      hoverlabel: { bgcolor: color("--surface"), bordercolor: color("--grid"), font: { color: color("--ink") }, align: "left" },
      showlegend: figure.legend, bargap: 0.5, uirevision: "keep", hovermode: "closest", autosize: false,
      legend: { orientation: "h", x: 0, xanchor: "left", y: 0, yref: "container", yanchor: "bottom", traceorder: "normal", itemsizing: figure.axes ? "trace" : "constant" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: color("--muted"), activecolor: color("--accent") },
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      title: title ? { text: title, x: 0, xref: "paper", xanchor: "left", y: 1, yref: "container", yanchor: "top", pad: { t: 14 } } : undefined,
    };
  }

  // Pixels that names at the axes need; plotly makes room for them only at the cost of the panels' sizes.
  function labelRoom(layout) {
    const pixels = (axis) => (axis.automargin ? [] : axis.ticktext || []).map((text) => 12 + 6.6 * text.replace(/&\w+;/g, "x").length);
    const along = pixels(layout.xaxis);
    const beside = pixels(layout.yaxis);
    return {
      left: beside.length ? 26 + Math.max(...beside) : 0,
      total: along.reduce((sum, size) => sum + size, 0),
      longest: Math.max(0, ...along) - 12,
    };
  }

  // Its height has to be guessed before it is drawn: one row if all names fit, else columns as wide as the longest.
  function legendBelow(figure, width) {
    const names = figure.data.filter((trace) => trace.showlegend !== false).map((trace) => trace.name || "");
    const sizes = names.map((name) => 6.6 * name.length + 48);
    const fits = sizes.reduce((sum, size) => sum + size, 0) < width - 60;
    const rows = fits ? 1 : Math.ceil(names.length / Math.max(1, Math.floor((width - 60) / Math.max(...sizes))));
    return 14 + 19 * rows;
  }

  // ---- drawing ---------------------------------------------------------------------------------------------------
  const place = (figure) => document.querySelector(`[data-figure="${figure.key}"]`);
  const button = (figure, kind, icon) => ({ name: kind, title: "Save as " + kind.toUpperCase(), icon, click: () => save(figure, kind) });

  function draw(figure, width, style) {
    const plot = place(figure).querySelector(".plot");
    const config = {
      displaylogo: false, responsive: false,
      modeBarButtons: [[button(figure, "png", Plotly.Icons.camera), button(figure, "svg", Plotly.Icons.drawline),
        button(figure, "csv", Plotly.Icons.disk), "resetScale2d"]],
    };
    figure.width = width;
    return Plotly.react(plot, painted(figure.data, style), arranged(figure, width, style), config);
  }

  // Figures in closed sections are drawn when their section opens. With a width: all, to be printed.
  const room = (figure) => (place(figure).closest("details:not([open])") ? 0 : place(figure).querySelector(".plot").clientWidth);
  let style; // that the figures were drawn in

  async function drawAll(width, wanted) {
    for (const figure of figures) {
      const wide = width || room(figure);
      if (!wide || (!width && figure.width === wide && figure.style === style)) continue;
      figure.style = width ? "print" : style;
      await draw(figure, wide, wanted || getComputedStyle(place(figure))); // the first one lies on another ground
      root.dataset.rendered = figures.filter((one) => one.width).length;
      if (!width) await new Promise((next) => setTimeout(next)); // lets the page scroll while it draws
    }
  }
  let drawing = Promise.resolve();
  const drawSoon = () => (drawing = drawing.then(() => drawAll()));
  const scheme = matchMedia("(prefers-color-scheme: dark)");

  // ---- saving ----------------------------------------------------------------------------------------------------
  function save(figure, kind) {
    if (kind === "csv") return download(figure.key + ".csv", csv(figure.table));
    const style = getComputedStyle(light); // pictures go into papers and slides: always on white
    const layout = arranged(figure, 900, style, figure.title);
    const options = { format: kind, filename: figure.key, width: 900, height: layout.height, scale: kind === "png" ? 2 : 1 };
    return Plotly.downloadImage({ data: painted(figure.data, style), layout }, options);
  }

  const FORMULA = /^'*[=+\-@\t\r\n＝＋－＠]/; // what a spreadsheet would compute, or run
  const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;

  function csv(table) {
    const cell = (value) => {
      if (value === null || value === undefined) return "";
      let text = String(value);
      if (typeof value === "string" && FORMULA.test(text) && !NUMBER.test(text)) text = "'" + text; // as csv_tables.py
      return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
    };
    return [table.columns, ...table.rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
  }

  function download(name, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function fillTable(figure, box) {
    const table = document.createElement("table");
    const first = figure.table.rows[0] || [];
    const add = (parent, kind, values) => {
      const row = parent.insertRow();
      values.forEach((value, place) => { // a head stands where the numbers below it do
        const cell = row.appendChild(document.createElement(kind));
        cell.textContent = value ?? "–";
        if (typeof (kind === "th" ? first[place] : value) === "number") cell.className = "n";
      });
    };
    add(table.createTHead(), "th", figure.table.columns);
    const body = table.createTBody();
    figure.table.rows.slice(0, 500).forEach((row) => add(body, "td", row));
    if (figure.table.rows.length > 500) add(body, "td", ["The rest is in the CSV."]);
    box.replaceChildren(table);
  }

  // ---- start -----------------------------------------------------------------------------------------------------
  async function unpacked() {
    const bytes = Uint8Array.from(atob(document.getElementById("plotly-packed").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  function listen() {
    scheme.addEventListener("change", () => { style = scheme.matches; drawSoon(); });
    let printing = null; // what was closed before
    document.addEventListener("toggle", (event) => !printing && event.target.matches("details:not(.tools *)") && drawSoon(), true);
    addEventListener("beforeprint", () => {
      const closed = [...document.querySelectorAll("details:not(.tools *)")].filter((box) => !box.open);
      printing = [...(printing || []), ...closed];
      closed.forEach((box) => (box.open = true));
      drawAll(PRINT_WIDTH, getComputedStyle(light));
    });
    addEventListener("afterprint", () => {
      (printing || []).forEach((box) => (box.open = false));
      printing = null;
      drawSoon();
    });
    let waiting;
    addEventListener("resize", () => {
      clearTimeout(waiting);
      waiting = setTimeout(drawSoon, 150);
    });
  }

  // A link to something inside a closed section opens it.
  function reveal() {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    for (let box = target && target.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
    if (target) target.scrollIntoView();
  }

  async function start() {
    root.dataset.figures = figures.length;
    addEventListener("hashchange", reveal);
    document.querySelector("[data-open]")?.addEventListener("click", () =>
      document.querySelectorAll(".part").forEach((part) => (part.open = true)));
    reveal();
    for (const figure of figures) {
      const box = place(figure);
      box.querySelectorAll("[data-save]").forEach((b) => b.addEventListener("click", () => save(figure, b.dataset.save)));
      box.querySelector("details").addEventListener("toggle", (event) => fillTable(figure, event.target.querySelector(".table")), { once: true });
    }
    if (figures.length) {
      const script = document.createElement("script");
      script.textContent = await unpacked();
      document.head.append(script);
      script.remove();
      style = scheme.matches;
      listen();
      await drawSoon();
    }
    root.dataset.ready = "true";
  }
  start().catch((reason) => {
    report(reason);
    document.querySelectorAll(".plot").forEach((plot) => (plot.textContent = "This browser cannot draw the figure; open “Numbers” instead."));
  });
})();
