"use strict";
{
  // Draws the data of advisor/report/render/charts.py with uPlot: one plot per chart, all over the same time.
  const box = document.getElementById("charts");
  const { end, tick, times, charts } = JSON.parse(document.getElementById("charts-data").textContent);
  const clocks = times.map((steps) => { let ticks = 0; return steps.map((step) => (ticks += step) * tick); });

  // In pixels.
  const LEFT = 64;  // for values and their unit: the same in each chart, so that times are aligned
  const LABEL = 16;
  const RIGHT = 14;
  const HEIGHT = 126;
  const BELOW = 44;  // for the times, below the last chart
  const LINE = 1.6;
  const MARK = 7;
  const NEAR = 8;  // counts as on a point
  const DRAG = 5;  // is no longer a click
  const PAPER = 670;  // printable width of the narrower of A4 and Letter, without the frame of the charts

  const CLOSEST = end / 1000;
  const ROOM = 1.06;  // factor above the highest value
  const RULE = "#808a98";  // of grid and limits: visible on white and on black
  const BLACK = "#333";
  const soft = () => getComputedStyle(document.documentElement).getPropertyValue("--soft").trim();
  const family = getComputedStyle(document.body).fontFamily;
  let ink = soft();

  const digits = (most, least = 0) => new Intl.NumberFormat("en-US", { minimumFractionDigits: least, maximumFractionDigits: most });
  const number = digits(2);
  const moment = digits(3);

  const make = (tag, name, ...inside) => {
    const made = document.createElement(tag);
    made.className = name;
    made.append(...inside);
    return made;
  };
  const swatch = (curve) => {
    const made = make("i", curve.kind);
    made.style.background = curve.color;
    return made;
  };

  // A line continues at a time that only another curve has; it breaks on both sides of its own time without a value.
  const NULLS = { line: 2, points: 0 };
  const aligned = (curves) => uPlot.join(
    curves.map((curve) => [clocks[curve.times], curve.values]),
    curves.map((curve) => [null, NULLS[curve.kind]]),
  );

  // Values between two gaps have no line: they are drawn as points.
  const alone = (column) => {
    const own = [...column.keys()].filter((at) => column[at] !== undefined);
    const gap = (at) => (column[at] ?? null) === null;
    return own.filter((at, i) => !gap(at) && gap(own[i - 1]) && gap(own[i + 1]));
  };

  // Circles, and triangles at the ceiling for values above it.
  const marks = (ceiling) => (u, index, from, to) => {
    const radius = MARK / 2 * uPlot.pxRatio;
    const { left, top, width, height } = u.bbox;
    const fill = new Path2D();
    const clip = new Path2D();
    clip.rect(left - radius, top - radius, width + 2 * radius, height + 2 * radius);
    for (let i = from; i <= to; i += 1) {
      const value = u.data[index][i] ?? null;
      if (value === null) continue;
      const x = u.valToPos(u.data[0][i], "x", true);
      const y = u.valToPos(Math.min(value, ceiling), "y", true);
      if (value > ceiling) {
        fill.moveTo(x, y - radius);
        fill.lineTo(x + radius, y + radius);
        fill.lineTo(x - radius, y + radius);
        fill.closePath();
      } else {
        fill.moveTo(x + radius, y);
        fill.arc(x, y, radius, 0, 2 * Math.PI);
      }
    }
    return { fill, clip, stroke: null, flags: 0 };
  };

  const dashed = (limit) => (u) => {
    if (limit === null) return;
    const { ctx, bbox: { left, width } } = u;
    const y = Math.round(u.valToPos(limit, "y", true));
    ctx.save();
    ctx.strokeStyle = RULE;
    ctx.lineWidth = uPlot.pxRatio;
    ctx.setLineDash([6 * uPlot.pxRatio, 4 * uPlot.pxRatio]);
    ctx.beginPath();
    ctx.moveTo(left, y);
    ctx.lineTo(left + width, y);
    ctx.stroke();
    ctx.restore();
  };

  const figures = charts.map((chart) => {
    const names = chart.curves.map((curve) => {
      const button = make("button", "", swatch(curve), curve.label);
      button.type = "button";
      button.ariaPressed = "true";
      return button;
    });
    const figure = make("figure", "chart", make("h3", "", chart.title), make("div", "names", ...names));
    box.append(figure);
    return figure;
  });

  const reading = make("div", "reading");
  reading.hidden = true;
  reading.ariaHidden = "true";  // it follows the mouse; the table has the same values
  box.append(reading);

  // Shows the reading next to the cursor, within the frame.
  const tell = (u, rows) => {
    reading.hidden = u.cursor.left < 0 || rows.length === 0;
    if (reading.hidden) return;
    const { min, max } = u.scales.x;
    const finer = Math.max(1, Math.ceil(2 - Math.log10(max - min)));
    const time = digits(finer, 1).format(u.data[0][u.cursor.idx]);
    reading.replaceChildren(make("p", "time", `at ${time} s`), ...rows);
    const frame = box.getBoundingClientRect();
    const over = u.over.getBoundingClientRect();
    const x = over.left - frame.left + u.cursor.left;
    const right = x + RIGHT + reading.offsetWidth <= box.clientWidth;
    reading.style.left = `${right ? x + RIGHT : Math.max(4, x - RIGHT - reading.offsetWidth)}px`;
    reading.style.top = `${Math.max(4, Math.min(over.top - frame.top, box.clientHeight - reading.offsetHeight - 4))}px`;
  };

  const plots = [];
  const unselect = () => { for (const u of plots) u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false); };
  const look = (from, to) => {
    const width = Math.min(Math.max(to - from, CLOSEST), end);
    const min = Math.max(0, Math.min(from, end - width));
    unselect();
    for (const u of plots) u.setScale("x", { min, max: min + width });
  };

  const plot = (chart, figure, last, width) => {
    const { title, unit, limit, curves } = chart;
    const ceiling = chart.ceiling ?? Infinity;
    const data = aligned(curves);

    const highest = curves.map(({ kind, values }) => {
      const most = values.reduce((found, value) => Math.max(found, value), 0);
      return kind === "points" ? Math.min(most, ceiling) : most;
    });
    const top = (u) => {
      const shown = highest.filter((_, i) => u.series[i + 1].show);
      return chart.top ?? (ROOM * Math.max(limit ?? 0, ...(shown.length ? shown : highest)) || 1);
    };

    const series = curves.map(({ label, kind, color }, i) => {
      const base = { label, stroke: color, pxAlign: 0 };
      if (kind === "points") {
        return { ...base, width: 0, paths: () => null, points: { show: true, paths: marks(ceiling), size: MARK, width: 0, fill: color } };
      }
      const single = alone(data[i + 1]);
      return { ...base, width: LINE, points: { show: false, filter: () => (single.length ? single : null), size: 5, width: 0, fill: color } };
    });

    // A line shows the value nearest in time, but none before it begins or after it has ended.
    const within = curves.map(({ kind, times: clock }) => {
      const [first, final] = [clocks[clock][0], clocks[clock].at(-1)];
      return (time) => kind === "line" && first <= time && time <= final;
    });

    // The event of a cursor is null if it only follows another chart's.
    const readout = (u) => {
      if (!u.cursor.event) return;
      tell(u, curves.flatMap((curve, i) => {
        const value = data[i + 1][u.cursor.idxs[i + 1]] ?? null;
        if (value === null || !u.series[i + 1].show) return [];
        const said = `${number.format(value)}${unit === "%" ? "" : " "}${unit}`;
        return [make("p", "", swatch(curve), make("span", "", curve.label), make("b", "", said))];
      }));
    };
    const chosen = (u) => {
      const { left, width: wide } = u.select;
      if (u.cursor.event && wide) look(u.posToVal(left, "x"), u.posToVal(left + wide, "x"));
    };

    const axis = { stroke: () => ink, font: `11px ${family}`, labelFont: `12px ${family}`, ticks: { show: false }, grid: { show: false } };
    const x = { ...axis, show: last, size: BELOW - 20, gap: 7, space: 60, label: "seconds since the start of the run", labelSize: 20, labelGap: 3 };
    const y = { ...axis, size: LEFT - LABEL, gap: 8, space: 22, label: unit, labelSize: LABEL, labelGap: -2, grid: { stroke: `${RULE}2e`, width: 1 } };
    const made = new uPlot({
      width,
      height: HEIGHT + (last ? BELOW : 0),
      padding: [6, RIGHT, last ? 0 : 8, 0],
      legend: { show: false },
      scales: { x: { time: false, min: 0, max: end }, y: { range: (u) => [0, top(u)] } },
      axes: [
        { ...x, values: (_, splits) => splits.map(moment.format) },
        { ...y, values: (_, splits) => splits.map(number.format) },
      ],
      cursor: {
        y: false,
        sync: { key: "time", scales: ["x", null] },
        drag: { x: true, y: false, setScale: false, dist: DRAG },
        bind: { dblclick: () => null },
        hover: { prox: (u, index, _, time) => (within[index - 1](time) ? null : NEAR) },
        points: { size: (u, index) => (curves[index - 1].kind === "line" ? 6 : 0) },
      },
      hooks: { draw: [dashed(limit)], setCursor: [readout], setSelect: [chosen] },
      series: [{}, ...series],
    }, data, figure);
    made.ctx.canvas.role = "img";
    made.ctx.canvas.ariaLabel = `${title}, over time: ${curves.map((curve) => curve.label).join(", ")}`;
    return made;
  };

  const room = figures[0].clientWidth;
  charts.forEach((chart, i) => plots.push(plot(chart, figures[i], i === charts.length - 1, room)));

  plots.forEach((u, i) => [...figures[i].querySelectorAll(".names button")].forEach((button, k) => {
    button.addEventListener("click", () => {
      const show = !u.series[k + 1].show;
      u.setSeries(k + 1, { show });
      button.ariaPressed = String(show);
    });
  }));

  for (const u of plots) {
    u.over.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const turned = event.deltaMode ? 20 * event.deltaY : event.deltaY;  // lines or pixels
      const factor = 2 ** (Math.max(-60, Math.min(turned, 60)) / 100);
      const at = u.posToVal(event.clientX - u.over.getBoundingClientRect().left, "x");
      const { min, max } = u.scales.x;
      look(at - (at - min) * factor, at + (max - at) * factor);
    }, { passive: false });

    // A finger moved sideways zooms, and a tap shows the values. Moved up or down, it scrolls the page, and the browser
    // cancels the pointer. uPlot ignores events without movement.
    const finger = (kinds) => (event) => {
      if (event.pointerType !== "touch") return;
      if (event.type === "pointercancel") unselect();
      const at = { clientX: event.clientX, clientY: event.clientY, movementX: 1, bubbles: true };
      for (const kind of kinds()) u.over.dispatchEvent(new MouseEvent(kind, at));
    };
    u.over.addEventListener("pointerdown", finger(() => ["mousedown"]));
    u.over.addEventListener("pointermove", finger(() => ["mousemove"]));
    u.over.addEventListener("pointerup", finger(() => ["mouseup", u.select.width ? "mouseleave" : "mousemove"]));
    u.over.addEventListener("pointercancel", finger(() => ["mouseup", "mouseleave"]));
  }
  addEventListener("pointerdown", ({ target }) => {
    if (!target.closest(".u-over")) for (const u of plots) u.setCursor({ left: -10, top: -10 });
  });

  const moves = {
    closer: (min, max, width) => look(min + width / 4, max - width / 4),
    wider: (min, max, width) => look(min - width / 2, max + width / 2),
    earlier: (min, max, width) => look(min - width / 2, max - width / 2),
    later: (min, max, width) => look(min + width / 2, max + width / 2),
    all: () => look(0, end),
  };
  for (const button of document.querySelectorAll("[data-move]")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const { min, max } = plots[0].scales.x;
      moves[button.dataset.move](min, max, max - min);
    });
  }

  // Synchronous (batch): printing does not wait.
  const sized = (width) => {
    for (const u of plots) if (u.width !== width) u.batch(() => u.setSize({ width, height: u.height }));
  };
  const painted = (color) => {
    ink = color;
    for (const u of plots) u.batch(() => u.redraw(false));
  };
  let printing = false;
  const fit = () => { if (!printing) sized(figures[0].clientWidth); };
  const tint = () => { if (!printing) painted(soft()); };
  addEventListener("beforeprint", () => { printing = true; sized(PAPER); painted(BLACK); });
  addEventListener("afterprint", () => { printing = false; fit(); tint(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tint);
  new ResizeObserver(fit).observe(box);

  queueMicrotask(() => { document.documentElement.dataset.charts = "drawn"; });  // after uPlot's drawing
}
