"use strict";
{
  // Draws single steps: a row per stream, thread and kind, to zoom into.
  const data = JSON.parse(document.getElementById("one-step-data").textContent);
  const COLORS = {
    compute: "forward", communication: "communication", communication_exposed: "communication", memory: "h2d", memory_exposed: "h2d",
    idle_data: "data_wait", fetch: "data_wait", idle_sync: "sync", wait: "sync", idle_launch: "loader_overhead", idle_queued: "other",
  };
  const ROW = 16, GAP = 8, NAME = 15;
  const time = (ns) => {
    const [unit, size] = ns >= 1e9 ? ["s", 1e9] : ns >= 1e6 ? ["ms", 1e6] : ns >= 1e3 ? ["us", 1e3] : ["ns", 1];
    return `${Number((ns / size).toPrecision(4))} ${unit}`;
  };

  const looks = data.steps.map((step, number) => {
    const figure = document.getElementById(`look-${number}`);
    const canvas = figure.querySelector("canvas");
    const reading = figure.querySelector(".look-reading");
    const context = canvas.getContext("2d");
    figure.hidden = false;
    let [from, to] = [0, step.length];
    let held = null, at = null;
    const tops = [];
    let height = 0;
    for (const lane of step.lanes) {
      tops.push(height + NAME);
      height += NAME + lane.levels * ROW + GAP;
    }
    canvas.style.height = `${height}px`;

    const x = (ns) => ((ns - from) / (to - from)) * canvas.clientWidth;
    const ns = (pixel) => from + (pixel / canvas.clientWidth) * (to - from);
    const label = (item) => item[5] > 1 ? `${item[5]} pieces, longest ${title(item[2])}` : title(item[2]);
    const title = (name) => data.labels[step.names[name]] ?? step.names[name];

    const draw = () => {
      const width = canvas.clientWidth, ratio = devicePixelRatio || 1;
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      const style = getComputedStyle(document.documentElement);
      const color = (name) => style.getPropertyValue(`--${name}`).trim();
      const fills = step.kinds.map((kind) => color(COLORS[kind] ?? kind) || color("backward"));
      context.font = "11.5px system-ui, sans-serif";
      step.lanes.forEach((lane, row) => {
        context.fillStyle = color("soft");
        context.fillText(lane.name, 0, tops[row] - 4);
        context.fillStyle = color("code");
        context.fillRect(0, tops[row], width, lane.levels * ROW);
        for (const item of lane.items) {
          const left = Math.max(0, x(item[0])), right = Math.min(width, x(item[0] + item[1]));
          if (right < 0 || left > width || item[0] + item[1] < from || item[0] > to) continue;
          const wide = Math.max(right - left, 0.6);
          const top = tops[row] + item[4] * ROW;
          context.fillStyle = fills[item[3]];
          context.globalAlpha = item === at?.item ? 1 : 0.86;
          context.fillRect(left, top + 1, wide > 2 ? wide - 0.6 : wide, ROW - 2);
          context.globalAlpha = 1;
          if (wide > 46) {
            context.save();
            context.beginPath();
            context.rect(left, top, wide - 3, ROW);
            context.clip();
            context.fillStyle = "#fff";
            context.fillText(label(item), left + 4, top + 12);
            context.restore();
          }
        }
      });
      if (held) {
        context.fillStyle = color("accent");
        context.globalAlpha = 0.2;
        context.fillRect(Math.min(held.from, held.to), 0, Math.abs(held.to - held.from), height);
        context.globalAlpha = 1;
      }
      figure.querySelector(".look-range").textContent = `${time(from)} to ${time(to)}`;
    };
    const show = (begin, end) => {
      const wide = Math.min(step.length, Math.max(end - begin, 50));
      from = Math.max(0, Math.min(begin, step.length - wide));
      to = from + wide;
      draw();
    };
    const find = (event) => {
      const box = canvas.getBoundingClientRect();
      const moment = ns(event.clientX - box.left), down = event.clientY - box.top;
      const slack = (to - from) / canvas.clientWidth;
      for (const [row, lane] of step.lanes.entries()) {
        const level = Math.floor((down - tops[row]) / ROW);
        if (level < 0 || level >= lane.levels) continue;
        const item = lane.items.find((each) => each[4] === level && each[0] - slack <= moment && moment <= each[0] + each[1] + slack);
        return item && { lane, item };
      }
      return null;
    };
    const read = (event) => {
      at = find(event);
      if (at) reading.textContent = `${at.lane.name}: ${label(at.item)}, ${time(at.item[1])}, starting at ${time(at.item[0])}`;
    };

    canvas.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch") { read(event); draw(); return; }
      held = { from: event.offsetX, to: event.offsetX };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (held) held.to = event.offsetX; else read(event);
      draw();
    });
    canvas.addEventListener("pointerup", () => {
      const chosen = held;
      held = null;
      if (chosen && Math.abs(chosen.to - chosen.from) > 4) show(ns(Math.min(chosen.from, chosen.to)), ns(Math.max(chosen.from, chosen.to)));
      else draw();
    });
    canvas.addEventListener("dblclick", () => show(0, step.length));
    const act = (what) => {
      const middle = (from + to) / 2, half = (to - from) / 2;
      const moves = {
        in: () => show(middle - half / 2, middle + half / 2),
        out: () => show(middle - half * 2, middle + half * 2),
        left: () => show(from - half, to - half),
        right: () => show(from + half, to + half),
        all: () => show(0, step.length),
      };
      moves[what]?.();
    };
    for (const button of figure.querySelectorAll("button")) button.addEventListener("click", () => act(button.dataset.do));
    canvas.addEventListener("keydown", (event) => {
      const what = { ArrowLeft: "left", ArrowRight: "right", "+": "in", "-": "out", Home: "all" }[event.key];
      if (what) { act(what); event.preventDefault(); }
    });
    new ResizeObserver(draw).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    return { figure, place: (name) => { const [start, length] = step.places[name]; show(start - 2 * length, start + 3 * length); } };
  });

  for (const link of document.querySelectorAll("a[data-place]")) {
    link.addEventListener("click", (event) => {
      const look = looks[link.dataset.step];
      look.place(link.dataset.place);
      look.figure.scrollIntoView({ block: "center" });
      event.preventDefault();
    });
  }
  document.documentElement.dataset.steps = "drawn";
}
