"use strict";
{
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  for (const button of all("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const code = button.closest("figure").querySelector("code");
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
        button.classList.add("done");
      } catch {
        // Some browsers give a local file no clipboard: leave the code selected instead.
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; button.classList.remove("done"); }, 1500);
    });
  }

  // Only what can be scrolled is a stop of the tabulator.
  const stops = () => { for (const box of all(".scroll, .code pre")) box.tabIndex = box.scrollWidth > box.clientWidth ? 0 : -1; };
  stops();
  addEventListener("resize", stops);
  for (const one of all("details")) one.addEventListener("toggle", stops);

  // A part of a bar and its row in the table light up together.
  for (const section of all("section")) {
    const parts = all("[data-part]", section);
    for (const part of parts) {
      const light = (on) => {
        section.classList.toggle("linked", on);
        for (const other of parts) other.classList.toggle("lit", on && other.dataset.part === part.dataset.part);
      };
      part.addEventListener("mouseenter", () => light(true));
      part.addEventListener("mouseleave", () => light(false));
    }
  }

  // A word's meaning is shown beside it, over whatever would cut it off.
  const meaning = document.createElement("div");
  meaning.className = "meaning";
  meaning.role = "tooltip";
  meaning.hidden = true;
  document.body.append(meaning);
  let leaving = 0;
  const explain = (word) => {
    clearTimeout(leaving);
    meaning.textContent = document.getElementById(word.getAttribute("aria-describedby")).textContent;
    meaning.hidden = false;
    const box = word.getBoundingClientRect();
    const below = box.bottom + meaning.offsetHeight < innerHeight;
    meaning.style.top = `${below ? box.bottom : box.top - meaning.offsetHeight}px`;
    meaning.style.left = `${Math.max(12, Math.min(box.left, document.body.clientWidth - meaning.offsetWidth - 12))}px`;
  };
  const leave = () => { clearTimeout(leaving); leaving = setTimeout(() => { meaning.hidden = true; }, 150); };
  for (const word of all("button.term")) {
    word.addEventListener("mouseenter", () => explain(word));
    word.addEventListener("focus", () => explain(word));
    word.addEventListener("click", () => explain(word));
    word.addEventListener("mouseleave", leave);
    word.addEventListener("blur", leave);
  }
  meaning.addEventListener("mouseenter", () => clearTimeout(leaving));
  meaning.addEventListener("mouseleave", leave);
  addEventListener("keydown", (event) => { if (event.key === "Escape") meaning.hidden = true; });
  addEventListener("scroll", () => { meaning.hidden = true; }, { passive: true });

  // Paper shows what is folded away.
  const PAPER = 690;  // of the narrower of A4 and Letter, between its margins, in pixels
  let folded = [];
  const drawn = document.getElementById("charts");
  addEventListener("beforeprint", () => {
    folded = all("details:not([open])");
    for (const one of folded) one.open = true;
    // Charts keep their width, which is the screen's.
    if (drawn) drawn.style.zoom = Math.min(1, PAPER / drawn.clientWidth);
  });
  addEventListener("afterprint", () => {
    for (const one of folded) one.open = false;
    if (drawn) drawn.style.zoom = "";
  });

  const data = document.getElementById("charts-data");
  if (data) drawCharts(JSON.parse(data.textContent));

  async function drawCharts(item) {
    Bokeh.set_log_level("warn");
    await Bokeh.embed.embed_items({ charts: item.doc }, []);  // reads it, draws nothing
    const [charts] = Bokeh.documents;
    const figures = charts.roots()[0].children;
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const paint = () => {
      const ink = getComputedStyle(document.documentElement).getPropertyValue("--soft").trim();
      for (const figure of figures) {
        figure.title.text_color = ink;
        for (const part of [...figure.below, ...figure.left]) {
          if ("major_label_text_color" in part) Object.assign(part, { major_label_text_color: ink, axis_label_text_color: ink });
        }
        for (const part of figure.above) if ("label_text_color" in part) part.label_text_color = ink;
      }
    };
    // A legend that is wider than its chart goes on in further rows, for which the chart grows.
    const heights = figures.map((figure) => figure.height);
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = "12px Helvetica, Arial, sans-serif";
    const fit = () => {
      const room = drawn.clientWidth - 90;
      figures.forEach((figure, number) => {
        const legend = figure.above.find((part) => "ncols" in part);
        const widths = legend.items.map((entry) => 38 + pen.measureText(entry.label.value).width);
        const fits = widths.reduce((sum, one) => sum + one, 0) <= room;
        const columns = fits ? widths.length : Math.max(1, Math.floor(room / Math.max(...widths)));
        legend.setv({ ncols: fits ? "auto" : columns, spacing: fits ? 14 : 6 });
        figure.height = heights[number] + 22 * (Math.ceil(widths.length / columns) - 1);
      });
    };
    // Before there is anything on the screen, or it would all be laid out twice.
    fit();
    paint();
    await Bokeh.embed.add_document_standalone(charts, drawn);
    addEventListener("resize", fit);
    dark.addEventListener("change", paint);
    // On a touch screen a finger across a chart zooms; up and down it scrolls the page, as everywhere else. No key does
    // anything in a chart, so that the tabulator passes by: what there is to do has its buttons.
    for (const { canvas_view: { events_el: events } } of Bokeh.index.roots[0].child_views) {
      events.style.touchAction = "pan-y";
      events.tabIndex = -1;
    }
    const range = figures[0].x_range;
    const [first, last] = range.bounds;
    const look = (from, width) => {
      const start = Math.max(first, Math.min(from, last - width));
      range.setv({ start, end: start + width });
    };
    const moves = {
      closer: (start, width) => look(start + width / 4, Math.max(width / 2, range.min_interval)),
      wider: (start, width) => look(start - width / 2, Math.min(2 * width, last - first)),
      earlier: (start, width) => look(start - width / 2, width),
      later: (start, width) => look(start + width / 2, width),
      all: () => range.reset(),
    };
    for (const button of all("[data-move]")) {
      button.hidden = false;
      button.addEventListener("click", () => moves[button.dataset.move](range.start, range.end - range.start));
    }
    document.documentElement.dataset.charts = "drawn";
  }
}
