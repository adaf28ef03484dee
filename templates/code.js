"use strict";
{
  // Searches the trees of calls and the table of hottest places; shows only own code, or only library code.
  const section = document.getElementById("code");
  const [search, kind] = section.querySelectorAll(".code-tools input, .code-tools select");
  const trees = [...section.querySelectorAll("details.tree")];
  const open = new Map([...section.querySelectorAll(".tree, .calls details")].map((one) => [one, one.open]));
  const named = (item) => item.querySelector(":scope > summary, :scope > .call, :scope > details > summary");

  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const filtered = words.length > 0 || kind.value !== "";
    const fits = (text) => words.every((word) => text.includes(word));
    let shown = 0;
    // A call stays if any call below it stays; it matches by its own name or by the names of its callers.
    const keep = (item, path) => {
      const head = named(item), text = `${path} ${head.textContent.toLowerCase()}`;
      const name = head.querySelector("code");
      const own = !name || !name.classList.contains("library");
      let kept = name !== null && fits(text) && (kind.value === "" || (kind.value === "own") === own);
      shown += kept;
      for (const one of item.querySelectorAll(":scope > .calls > li, :scope > details > .calls > li")) {
        if (keep(one, text)) kept = true;
      }
      item.hidden = !kept;
      return kept;
    };
    for (const tree of trees) keep(tree, "");
    for (const [one, was] of open) one.open = filtered || was;
    for (const row of section.querySelectorAll(".places tbody tr")) row.hidden = !fits(row.textContent.toLowerCase());
    section.querySelector(".code-tools [role=status]").textContent = filtered ? `${shown} calls` : "";
  };
  for (const one of [search, kind]) one.addEventListener("input", show);
  section.querySelector(".code-tools").hidden = false;
}
