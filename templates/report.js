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
        // Some browsers do not give local files clipboard access: leave the code selected instead.
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; button.classList.remove("done"); }, 1500);
    });
  }

  for (const field of all("input[data-search]")) {
    field.closest("label").hidden = false;
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/);
      for (const row of all(field.dataset.search)) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
    });
  }

  // Only boxes that can be scrolled are tab stops.
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

  // A word's meaning is shown next to it, above anything that would cut it off.
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
}
