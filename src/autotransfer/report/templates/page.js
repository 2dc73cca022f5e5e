"use strict";
// Draw the figures of the report. The page contains all data and plotly.
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
  const light = document.createElement("div"); // element with the light colors, for pictures and print
  light.className = "light";
  light.hidden = true;
  document.body.append(light);
  const plotOf = (figure) => document.querySelector(`[data-figure="${figure.key}"] .plot`);

  // Only keys that hold colors are replaced, so that a subject called "var(--ink)" keeps its name.
  function replaceColors(value, style, key = "") {
    if (Array.isArray(value)) return value.map((item) => replaceColors(item, style, key));
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, replaceColors(item, style, name)]));
    if (typeof value === "string" && /color/i.test(key) && value.startsWith("var("))
      return style.getPropertyValue(value.slice(4, -1)).trim();
    return value;
  }

  function layoutOf(figure, width, style) {
    const color = (name) => style.getPropertyValue(name).trim();
    const font = { family: getComputedStyle(document.body).fontFamily, size: width < 560 ? 11 : 12, color: color("--ink") };
    return {
      margin: { l: 44, r: 14, t: figure.legend ? 44 : 28, b: 46 },
      ...replaceColors(figure.layout, style), width, height: figure.height, font,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest",
      hoverlabel: { bgcolor: color("--surface"), bordercolor: color("--grid"), font: { color: color("--ink") }, align: "left" },
      showlegend: figure.legend, legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", traceorder: "normal" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: color("--muted"), activecolor: color("--accent") },
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    };
  }

  // Pictures go into papers and slides, so they are always drawn on white.
  function save(figure, format) {
    const style = getComputedStyle(light);
    const layout = { ...layoutOf(figure, 900, style), paper_bgcolor: "#ffffff" };
    const options = { format, filename: figure.key, width: 900, height: layout.height, scale: format === "png" ? 2 : 1 };
    return Plotly.downloadImage({ data: replaceColors(figure.data, style), layout }, options);
  }

  // A figure in a closed section is drawn when the section opens.
  async function draw(figure, style, width = plotOf(figure).clientWidth) {
    if (plotOf(figure).closest("details:not([open])")) return;
    const button = (format, icon) => ({ name: "Save as " + format.toUpperCase(), icon, click: () => save(figure, format) });
    const buttons = [button("png", Plotly.Icons.camera), button("svg", Plotly.Icons.drawline), "resetScale2d"];
    const look = { displaylogo: false, responsive: false, modeBarButtons: [buttons] };
    const colors = style || getComputedStyle(plotOf(figure));
    await Plotly.react(plotOf(figure), replaceColors(figure.data, colors), layoutOf(figure, width, colors), look);
    figure.drawn = true;
    root.dataset.rendered = figures.filter((figure) => figure.drawn).length;
  }

  let drawing = Promise.resolve();
  const drawAll = (style, width) => (drawing = drawing.then(async () => {
    for (const figure of figures) {
      await draw(figure, style, width);
      await new Promise((next) => setTimeout(next)); // lets the page scroll while it draws
    }
  }));

  function listen() {
    const boxes = "details:not(.numbers)";
    let closed = []; // sections that were closed before the page was printed
    document.addEventListener("toggle", (event) => {
      if (!closed.length && event.target.matches(boxes) && event.target.open)
        figures.filter((figure) => event.target.contains(plotOf(figure))).forEach((figure) => draw(figure));
    }, true);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll());
    addEventListener("beforeprint", () => {
      closed.push(...[...document.querySelectorAll(boxes)].filter((box) => !box.open));
      closed.forEach((box) => (box.open = true));
      figures.forEach((figure) => draw(figure, getComputedStyle(light), 690)); // between the margins of A4 and US letter
    });
    addEventListener("afterprint", () => {
      closed.forEach((box) => (box.open = false));
      closed = [];
      drawAll();
    });
    let waiting;
    addEventListener("resize", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => drawAll(), 150);
    });
  }

  async function unpackPlotly() {
    const bytes = Uint8Array.from(atob(document.getElementById("plotly-packed").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  async function start() {
    root.dataset.figures = figures.length;
    if (figures.length) {
      const script = document.createElement("script");
      script.textContent = await unpackPlotly();
      document.head.append(script);
      script.remove();
      listen();
      await drawAll();
    }
    root.dataset.ready = "true";
  }
  start().catch((reason) => {
    report(reason);
    const words = "This browser cannot draw the figure; open “Numbers” instead.";
    document.querySelectorAll(".plot").forEach((plot) => (plot.textContent = words));
  });
})();
