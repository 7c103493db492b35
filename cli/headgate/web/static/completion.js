/* What fits at the cursor of the editor, as a list of options below it: Ctrl+Space asks, and so does typing a word.
   The server knows what fits. Every text is set as text, never as HTML. */
"use strict";
addEventListener("DOMContentLoaded", () => {
  const bench = document.querySelector(".workbench");
  const area = document.getElementById("yaml");
  if (!bench || !area) return;
  const sheet = bench.querySelector(".sheet");
  const box = bench.querySelector(".completions");
  const list = document.getElementById("completions");
  const about = box.querySelector(".about");
  const TYPED_MS = 60;
  let options = [];
  let start = 0; // of the word to replace, in the text
  let askedAt = ""; // the cursor for which the options are
  let at = 0;
  let asked = 0;
  let timer = 0;
  let taking = false;

  const make = (name, kind, text) => {
    const made = document.createElement(name);
    made.className = kind;
    made.textContent = text;
    return made;
  };
  const close = () => {
    asked += 1;
    clearTimeout(timer);
    options = [];
    box.hidden = true;
    area.removeAttribute("aria-activedescendant");
    area.removeAttribute("aria-controls");
  };
  const mark = () => {
    [...list.children].forEach((item, index) => item.setAttribute("aria-selected", String(index === at)));
    list.children[at].scrollIntoView({ block: "nearest" });
    area.setAttribute("aria-activedescendant", list.children[at].id);
    about.textContent = options[at].about;
    about.hidden = !options[at].about;
  };
  /* Below the first letter of the word: the text under the area has the same places. */
  const move = (line, column) => {
    const row = bench.querySelectorAll(".under .line")[line - 1];
    const own = sheet.getBoundingClientRect();
    let left = column - 1;
    let place = row.getBoundingClientRect();
    for (const one of row.querySelectorAll("span:not(.gutter, .note)")) {
      const text = one.firstChild;
      if (text && left < text.length) {
        const range = document.createRange();
        range.setStart(text, left);
        range.setEnd(text, left + 1);
        place = range.getBoundingClientRect();
        break;
      }
      left -= text ? text.length : 0;
      place = { left: one.getBoundingClientRect().right, bottom: one.getBoundingClientRect().bottom };
    }
    box.style.top = `${place.bottom - own.top + 2}px`;
    box.style.left = `${Math.max(0, Math.min(place.left - own.left, own.width - box.offsetWidth - 4))}px`;
  };
  const show = (line, answer) => {
    options = answer.options;
    if (!options.length) { close(); return; }
    at = 0;
    list.replaceChildren(...options.map((one, index) => {
      const item = make("li", `option ${one.kind}`, "");
      item.id = `completion-${index}`;
      item.setAttribute("role", "option");
      item.append(make("span", "kind", one.kind), make("span", "label", one.label), make("span", "detail", one.detail));
      item.addEventListener("mousedown", (event) => { event.preventDefault(); at = index; take(); });
      return item;
    }));
    box.hidden = false;
    area.setAttribute("aria-controls", "completions");
    move(line, answer.start);
    mark();
  };
  const cursor = () => `${area.selectionStart}-${area.selectionEnd}`;
  const ask = async () => {
    asked += 1;
    const number = asked;
    const place = cursor();
    askedAt = place;
    const before = area.value.slice(0, area.selectionStart).split("\n");
    const column = before.at(-1).length + 1;
    try {
      const answer = await fetch(`${bench.dataset.api}/completions`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ yaml: area.value, line: before.length, column }),
      });
      if (number !== asked || !answer.ok) return;
      const found = await answer.json();
      if (number !== asked || cursor() !== place) return;
      start = area.selectionStart - (column - found.start);
      show(before.length, found);
    } catch { /* the check says that the console does not answer */ }
  };
  const take = () => {
    const { text } = options[at];
    const moved = cursor() !== askedAt;
    close();
    if (moved) return;
    taking = true;
    area.setSelectionRange(start, area.selectionStart);
    // unlike setRangeText it can be undone
    if (!document.execCommand("insertText", false, text)) {
      area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
      area.dispatchEvent(new Event("input"));
    }
    taking = false;
    if (text.endsWith(": ")) ask();
  };

  area.addEventListener("input", (event) => {
    if (taking) return;
    const before = area.value.slice(0, area.selectionStart);
    const wanted = event.inputType === "insertText" || event.inputType === "deleteContentBackward" && !box.hidden;
    if (!wanted || !/[\w{'[]$|: $/.test(before)) { close(); return; }
    askedAt = cursor();
    clearTimeout(timer);
    timer = setTimeout(ask, TYPED_MS);
  });
  document.addEventListener("selectionchange", () => { if (cursor() !== askedAt) close(); });
  area.addEventListener("keydown", (event) => {
    if (event.key === " " && event.ctrlKey) { event.preventDefault(); ask(); return; }
    if (box.hidden || event.ctrlKey || event.metaKey || event.altKey) return;
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) {
      event.preventDefault();
      at = (at + by + options.length) % options.length;
      mark();
    } else if (event.key === "Enter" || event.key === "Tab" && !event.shiftKey) {
      event.preventDefault();
      take();
    } else if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      close();
    } else if (["ArrowLeft", "ArrowRight", "Home", "End", "PageUp", "PageDown"].includes(event.key)) close();
  });
  area.addEventListener("blur", close);
  area.addEventListener("mousedown", close);
});
