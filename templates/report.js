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

  // Paper shows what is folded away.
  let folded = [];
  addEventListener("beforeprint", () => { folded = all("details:not([open])"); for (const one of folded) one.open = true; });
  addEventListener("afterprint", () => { for (const one of folded) one.open = false; });

  const data = document.getElementById("charts-data");
  if (data) drawCharts(JSON.parse(data.textContent));

  async function drawCharts(item) {
    Bokeh.set_log_level("warn");
    await Bokeh.embed.embed_item(item);
    const figures = Bokeh.documents[0].roots()[0].children;
    // On a touch screen a finger across a chart zooms; up and down it scrolls the page, as everywhere else.
    for (const view of Bokeh.index.roots[0].child_views) view.canvas_view.events_el.style.touchAction = "pan-y";
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
      const room = document.getElementById("charts").clientWidth - 90;
      figures.forEach((figure, number) => {
        const legend = figure.above.find((part) => "ncols" in part);
        const widths = legend.items.map((entry) => 38 + pen.measureText(entry.label.value).width);
        const fits = widths.reduce((sum, one) => sum + one, 0) <= room;
        const columns = fits ? widths.length : Math.max(1, Math.floor(room / Math.max(...widths)));
        legend.setv({ ncols: columns, spacing: fits ? 14 : 6 });
        figure.height = heights[number] + 22 * (Math.ceil(widths.length / columns) - 1);
      });
    };
    fit();
    addEventListener("resize", fit);
    paint();
    dark.addEventListener("change", paint);
    const reset = document.getElementById("charts-reset");
    reset.hidden = false;
    reset.addEventListener("click", () => figures[0].x_range.reset());
    document.documentElement.dataset.charts = "drawn";
  }
}
