"use strict";
{
  // Adds up the cells that the filters leave, and hides the rows that they or the search leave out.
  const { causes, most, nameless, names, cells } = JSON.parse(document.getElementById("fleet-data").textContent);
  const dimensions = Object.keys(names);
  const RUNS = dimensions.length + 1, HOURS = RUNS + 1, MEASURED = HOURS + 1, MONEY = MEASURED + 2, FIRST = MONEY + 1;
  const form = document.getElementById("filters");
  const filters = [...form.querySelectorAll("select")];
  const search = document.getElementById("fleet-search");
  const listed = [...document.querySelectorAll(".shown, article.card")];
  const bars = [...document.querySelectorAll("#weeks li")];
  const labels = new Map([...document.querySelectorAll("#by-cause tbody tr")].map((row) => [row.dataset.cause, row.cells[0].textContent]));

  const number = (value) => value === null ? "not measured"
    : value.toLocaleString("en-US", value >= 1000 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 });
  const share = (value) => value > 0 && value < 0.001 ? "under 0.1%"
    : `${(100 * value).toLocaleString("en-US", { maximumFractionDigits: value < 0.0995 ? 1 : 0 })}%`;
  const money = (value) => value.toLocaleString("en-US", value < 100 ? { minimumFractionDigits: 2, maximumFractionDigits: 2 } : { maximumFractionDigits: 0 });
  const sum = (some, column) => {
    const known = some.map((cell) => cell[column]).filter((value) => value !== null);
    return known.length ? known.reduce((one, other) => one + other, 0) : null;
  };
  const lost = (some) => causes.map((_, index) => sum(some, FIRST + index));
  const total = (values) => values.reduce((one, other) => one + (other ?? 0), 0);
  const name = (dimension, index) => names[dimension][index] ?? nameless;

  for (const select of filters) {
    const column = select.dataset.column;
    const values = column === "week" ? [...new Set(cells.map((cell) => cell[0]))] : [...new Set(names[column].map((each) => each ?? nameless))];
    for (const value of values.sort()) select.add(new Option(value, value));
  }

  const fill = (dimension, column, some, words) => {
    const groups = new Map();
    for (const cell of some) {
      const key = name(dimension, cell[column]);
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(cell);
    }
    const rows = [...groups].map(([key, group]) => ({ key, group, hours: sum(group, HOURS) ?? 0 }));
    rows.sort((one, other) => other.hours - one.hours || one.key.localeCompare(other.key));
    const body = document.querySelector(`#by-${dimension} tbody`);
    body.replaceChildren(...rows.slice(0, most).map(({ key, group, hours }) => {
      const away = lost(group), measured = sum(group, MEASURED), paid = sum(group, MONEY);
      const worst = away.reduce((best, value, index) => (value ?? 0) > (away[best] ?? 0) ? index : best, 0);
      const row = document.createElement("tr");
      const head = document.createElement("th");
      head.scope = "row";
      head.textContent = key;
      row.append(head);
      const texts = [number(sum(group, RUNS)), number(hours), measured ? number(total(away)) : "not measured",
        measured ? share(Math.min(1, total(away) / measured)) : "", paid === null ? "" : money(paid), away[worst] ? labels.get(causes[worst]) : ""];
      texts.forEach((text, index) => {
        const cell = row.insertCell();
        cell.textContent = text;
        if (index < texts.length - 1) cell.className = "right";
      });
      row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
      return row;
    }));
  };

  const show = () => {
    const chosen = Object.fromEntries(filters.map((select) => [select.dataset.column, select.value]));
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const some = cells.filter((cell) => (!chosen.week || cell[0] >= chosen.week)
      && dimensions.every((dimension, index) => !chosen[dimension] || name(dimension, cell[index + 1]) === chosen[dimension]));
    dimensions.forEach((dimension, index) => fill(dimension, index + 1, some, words));
    const away = lost(some), measured = sum(some, MEASURED) ?? 0;
    [...document.querySelectorAll("#by-cause tbody tr")].forEach((row, index) => {
      const part = measured ? (away[index] ?? 0) / measured : 0;
      row.cells[1].textContent = number(away[index]);
      row.cells[2].textContent = away[index] === null ? "" : share(part);
      row.querySelector("i").style.width = `${100 * part}%`;
    });
    const weeks = bars.map((bar) => some.filter((cell) => cell[0] === bar.dataset.week));
    const busiest = Math.max(...weeks.map((week) => sum(week, HOURS) ?? 0), 0);
    bars.forEach((bar, index) => {
      const hours = sum(weeks[index], HOURS) ?? 0, gone = total(lost(weeks[index])), known = sum(weeks[index], MEASURED);
      const [, whole, text] = bar.children;
      whole.style.width = `${busiest ? 100 * hours / busiest : 0}%`;
      whole.firstElementChild.style.width = `${hours ? 100 * gone / hours : 0}%`;
      text.textContent = `${number(hours)}, ${known ? share(Math.min(1, gone / known)) : "not measured"} lost`;
    });
    for (const one of listed) {
      const fits = dimensions.every((dimension) => !chosen[dimension] || !one.dataset[dimension] || one.dataset[dimension] === chosen[dimension]);
      one.hidden = !fits || !words.every((word) => one.textContent.toLowerCase().includes(word));
    }
    document.getElementById("fleet-shown").textContent = `${number(sum(some, RUNS) ?? 0)} runs, ${number(sum(some, HOURS) ?? 0)} hours`;
  };

  for (const one of [search, ...filters]) one.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(show));
  form.hidden = false;
  document.documentElement.dataset.fleet = "ready";
}
