"use strict";
{
  // Sorts, filters and searches the operator table that the page holds.
  const table = document.getElementById("operators-table");
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, text: row.textContent.toLowerCase(), at: row.sectionRowIndex }));
  const search = document.getElementById("operators-search");
  const filters = [...document.querySelectorAll(".operator-tools select")];
  const heads = [...table.tHead.rows[0].cells];

  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const { row, text } of rows) {
      const fits = words.every((word) => text.includes(word))
        && filters.every((filter) => !filter.value || row.dataset[filter.dataset.column] === filter.value);
      row.hidden = !fits;
      shown += fits;
    }
    document.getElementById("operators-shown").textContent = `${shown} of ${rows.length}`;
  };

  // Rows without a value come last in both directions.
  const value = ({ row }, column) => {
    const given = row.cells[column].dataset.value;
    return given === undefined ? null : Number(given);
  };
  const sort = (column, up) => {
    const order = up ? 1 : -1;
    rows.sort((one, other) => {
      if (column === 0) return order * one.text.localeCompare(other.text);
      const [a, b] = [value(one, column), value(other, column)];
      if (a === null || b === null) return (a === null) - (b === null) || one.at - other.at;
      return order * (a - b) || one.at - other.at;
    });
    body.append(...rows.map(({ row }) => row));
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[column].ariaSort = up ? "ascending" : "descending";
  };

  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sort(column, head.ariaSort === "descending" || (column === 0 && head.ariaSort !== "ascending")));
  });
  for (const one of [search, ...filters]) one.addEventListener("input", show);
  document.querySelector(".operator-tools").hidden = false;
  show();
}
