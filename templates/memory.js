"use strict";
{
  const group = document.getElementById("what-if");
  const controls = [...group.querySelectorAll("input, select")];
  const run = JSON.parse(document.getElementById("memory-data").textContent);
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];

  // Formats sizes like advisor/units.py.
  const size = (bytes) => {
    const step = bytes >= 1 ? Math.min(Math.floor(Math.log2(bytes) / 10), 4) : 0;
    const value = bytes / 1024 ** step;
    const digits = value ? Math.max(0, 2 - Math.floor(Math.log10(value))) : 0;
    return `${value.toLocaleString("en-US", { maximumFractionDigits: digits })} ${units[step]}`;
  };

  // A setting without a control keeps its value.
  const asked = () => {
    const given = Object.fromEntries(controls.map((one) => [one.name, one.value]));
    const number = (name) => (name in given ? Number(given[name]) : run.now[name]);
    return {
      batch: number("batch"),
      ranks: number("ranks"),
      stage: number("stage"),
      every: given.every ? Number(given.every) : run.now.every,
      moments: given.moments ?? run.now.moments,
      autocast: Boolean(given.autocast),
    };
  };

  const sentence = (total, set) => {
    const free = run.capacity - total;
    const fits = free < 0
      ? `does not fit: ${size(-free)} too large`
      : total > run.safe
        ? `barely fits: ${size(free)} free, less than peaks vary`
        : `fits, ${size(free)} free`;
    const most = memoryModel.largest(run, set);
    const batch = controls.some((one) => one.name === "batch") && most !== null ? ` Largest batch size per GPU that fits: ${most.toLocaleString("en-US")}.` : "";
    const alone = set.stage > 0 && set.ranks === 1 ? " With one GPU, ZeRO changes nothing." : "";
    return `${size(total)} of ${size(run.capacity)}: ${fits}.${batch}${alone}`;
  };

  const draw = (parts, total) => {
    const bar = document.getElementById("what-if-bar");
    const shown = [...Object.entries(parts), ["free", Math.max(0, run.capacity - total)]].filter(([, bytes]) => bytes > 0);
    bar.replaceChildren(...shown.map(([name, bytes]) => {
      const part = document.createElement("span");
      part.className = `part ${name}`;
      part.style.flexGrow = 100 * bytes / Math.max(total, run.capacity);
      return part;
    }));
    // If more memory is needed than there is, mark the end of the device's memory.
    if (total > run.capacity) {
      const end = document.createElement("i");
      end.className = "end";
      end.style.left = `${100 * run.capacity / total}%`;
      bar.append(end);
    }
  };

  const fill = (column, parts) => {
    const bytes = { ...parts, total: memoryModel.total(parts) };
    for (const row of group.querySelectorAll("tr[data-part]")) {
      const amount = bytes[row.dataset.part];
      row.querySelector(`.${column}`).textContent = size(amount);
      if (column === "then" && row.dataset.part === "gathered") row.hidden = !amount && !now.gathered;
    }
  };

  const now = memoryModel.parts(run, run.now);
  const answer = () => {
    const set = asked();
    const parts = memoryModel.parts(run, set);
    const total = memoryModel.total(parts);
    fill("then", parts);
    draw(parts, total);
    const said = document.getElementById("what-if-answer");
    said.textContent = sentence(total, set);
    said.classList.toggle("over", total > run.capacity);
    const samples = document.getElementById("what-if-samples");
    if (samples) samples.textContent = set.batch;
  };

  fill("now", now);
  group.addEventListener("input", answer);
  document.getElementById("what-if-reset").addEventListener("click", () => {
    for (const one of controls) {
      if (one.options) one.selectedIndex = Math.max(0, [...one.options].findIndex((option) => option.defaultSelected));
      else one.value = one.defaultValue;
    }
    answer();
  });
  group.hidden = false;
  answer();
}
