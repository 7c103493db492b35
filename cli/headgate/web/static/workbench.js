/* The editor of a rule: its text is checked while it is typed, mistakes are underlined, tests stand beside their lines.
   The text is drawn under a textarea whose own letters are transparent. Every text is set as text, never as HTML. */
"use strict";
addEventListener("DOMContentLoaded", () => {
  const bench = document.querySelector(".workbench");
  const area = document.getElementById("yaml");
  if (!bench || !area) return;
  const under = bench.querySelector(".under");
  const verdict = document.getElementById("verdict");
  const found = bench.querySelector(".found");
  const TYPED_MS = 120;
  const TESTS_MS = 350;
  let state = { problems: [], warnings: [], tests: [], cost: null, cheap: null };
  let asked = 0;
  let timer = 0;

  const make = (name, kind, text) => {
    const made = document.createElement(name);
    if (kind) made.className = kind;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const value = (one) => one === null ? "NULL" : typeof one === "object" ? JSON.stringify(one) : String(one);
  const words = (entries) => Object.entries(entries || {}).map(([name, one]) => `${name} ${value(one)}`).join(", ");

  /* A line in parts: the name of an entry, a comment, and what a mistake underlines. */
  const parts = (line, problems) => {
    const entry = /^(\s*(?:- )*)([A-Za-z_][\w.]*)(?=:(\s|$))/.exec(line);
    const comment = /(^|\s)#.*$/.exec(line);
    const marks = problems.filter((one) => one.column).map((one) => {
      const from = Math.min(one.column - 1, Math.max(0, line.length - 1));
      const token = /^[\w.]+|^\S+/.exec(line.slice(from));
      return [from, from + (token ? token[0].length : 1)];
    });
    const kind = (at) => {
      const classes = [];
      if (marks.some(([from, to]) => at >= from && at < to)) classes.push("fault");
      if (comment && at >= comment.index) classes.push("remark");
      else if (entry && at >= entry[1].length && at < entry[0].length) classes.push("name");
      return classes.join(" ");
    };
    const made = [];
    let start = 0;
    for (let at = 1; at <= line.length; at += 1) {
      if (at === line.length || kind(at) !== kind(start)) {
        made.push(make("span", kind(start), line.slice(start, at)));
        start = at;
      }
    }
    return made;
  };

  const note = (line, number) => {
    const wrong = state.problems.find((one) => one.line === number);
    if (wrong) return make("span", "note bad", wrong.message);
    const warned = state.warnings.find((one) => one.line === number);
    if (warned) return make("span", "note warn", warned.message);
    const test = state.tests.find((one) => one.line === number);
    if (!test) return null;
    // of a test that saw no alert: what its last event lacks
    const last = test.seen.length ? [] : test.why.filter((one) => one.event === test.why.at(-1).event);
    const missed = last.flatMap((one) => one.clauses).find((one) => one.decided && one.truth !== "TRUE");
    const seen = !test.passed && missed ? `${missed.text} is ${missed.truth}, ${words(missed.values)}` : test.seen.length ? `${test.seen.length} ${test.seen.length === 1 ? "alert" : "alerts"}: ${words(test.seen[0].key)}` : "no alert";
    return make("span", `note ${test.passed ? "good" : "bad"}`, `${test.passed ? "✓ passed" : "✗ failed"}, ${seen}`);
  };

  const draw = () => {
    const lines = area.value.split("\n");
    under.replaceChildren(...lines.map((line, index) => {
      const number = index + 1;
      const problems = state.problems.filter((one) => one.line === number);
      const test = state.tests.find((one) => one.line === number);
      const row = make("div", "line");
      if (problems.length) row.classList.add("wrong");
      if (test) row.classList.add(test.passed ? "passed" : "failed");
      row.append(make("span", "gutter", number), ...parts(line, problems));
      if (!line) row.append("\u200b");
      const said = note(line, number);
      if (said) {
        // what is written is never covered: the note has the room that the line leaves
        said.style.maxWidth = `calc(100% - ${Math.ceil(line.length * 1.2) + 3}ch)`;
        row.append(said);
      }
      return row;
    }));
    bench.classList.add("drawn");
  };

  const listed = (title, tone, places) => {
    const section = make("section", `places ${tone}`);
    const list = make("ol");
    section.append(make("h3", "", title), list);
    for (const one of places) {
      const item = make("li");
      const place = make("button", "place quiet", one.line ? `${one.line}:${one.column}` : "");
      place.type = "button";
      place.addEventListener("click", () => goTo(one.line, one.column));
      const text = make("span", "", one.message);
      if (one.path) text.prepend(make("code", "", one.path), " ");
      item.append(place, text);
      list.append(item);
    }
    return section;
  };
  /* A clause with its truth and the values that it saw, as the server writes it. */
  const clause = (one, name = "li") => {
    const made = make(name, "clause");
    const seen = make("span", "seen");
    made.append(make("span", `truth ${one.truth.toLowerCase()}`, one.truth), " ", make("code", "", one.text), " ", seen);
    for (const [text, shown] of Object.entries(one.values)) {
      const pair = make("span", "value");
      pair.append(make("span", "muted", text), ` ${shown}`);
      seen.append(pair);
    }
    if (one.note) made.append(" ", make("span", "muted", one.note));
    return made;
  };
  const conditions = (all) => {
    const list = make("ul", "conditions");
    for (const one of all) {
      const item = make("li");
      const line = make("p", "", `${one.condition === "having" ? "the window of event" : "event"} ${one.event}: `);
      line.append(make("code", "", one.condition), " is ", make("span", `truth ${one.truth.toLowerCase()}`, one.truth));
      const clauses = make("ul");
      clauses.append(...one.clauses.filter((part) => part.decided).map((part) => clause(part)));
      item.append(line, clauses);
      list.append(item);
    }
    return list;
  };
  const tested = (tests) => {
    const list = make("ul", "tests");
    for (const test of tests) {
      const item = make("li", test.passed ? "passed" : "failed");
      item.append(make("span", "sign", test.passed ? "✓" : "✗"), make("span", "name", test.name));
      const place = make("button", "place quiet", `${test.passed ? "passed" : "failed"} · line ${test.line}`);
      place.type = "button";
      place.addEventListener("click", () => goTo(test.line, 1));
      item.append(place);
      if (test.diff.length) item.append(make("pre", "", test.diff.join("\n")));
      if (test.why.length) item.append(conditions(test.why));
      for (const alert of test.seen) item.append(make("p", "gave muted", `gave ${words(alert.key)}: ${alert.message} ${words(alert.values)}`));
      list.append(item);
    }
    return list;
  };
  const goTo = (line, column) => {
    const at = area.value.split("\n").slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0) + (column || 1) - 1;
    area.focus();
    area.setSelectionRange(at, at);
  };

  const show = (testsAwaited) => {
    const { problems, warnings, tests, cost, cheap } = state;
    const failed = tests.filter((one) => !one.passed).length;
    const count = (number, name) => `${number} ${name}${number === 1 ? "" : "s"}`;
    verdict.className = `verdict ${problems.length || failed ? "bad" : "good"}`;
    verdict.textContent = problems.length ? count(problems.length, "mistake")
      : testsAwaited ? "Sound; its tests run"
      : failed ? `Sound; ${count(failed, "test")} of ${tests.length} failed`
      : tests.length ? `Sound; ${count(tests.length, "test")} passed` : "Sound; it has no tests";
    const shown = [];
    if (problems.length) shown.push(listed("Mistakes", "bad", problems));
    if (warnings.length) shown.push(listed("Warnings", "warn", warnings));
    if (cost) {
      const section = make("section", `places ${cheap ? "good" : "warn"}`);
      section.append(make("h3", "", cheap ? "Cost: cheap" : "Cost: dear"), make("p", "", cost));
      shown.push(section);
    }
    if (tests.length) shown.push(make("h3", "", "Tests"), tested(tests));
    found.replaceChildren(...shown);
    draw();
  };

  const ask = async (number, tests) => {
    try {
      const answer = await fetch(`${bench.dataset.api}/rule-checks`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ yaml: area.value, tests }),
      });
      if (number !== asked) return null;
      if (!answer.ok) {
        const said = await answer.json().catch(() => ({}));
        verdict.className = "verdict warn";
        verdict.textContent = `Not checked: ${said.detail || answer.status}`;
        return null;
      }
      return await answer.json();
    } catch {
      verdict.className = "verdict warn";
      verdict.textContent = "Not checked: the console does not answer";
      return null;
    }
  };
  const check = async () => {
    asked += 1;
    const number = asked;
    const first = await ask(number, false);
    if (!first || number !== asked) return;
    state = { ...first, tests: [] };
    show(!first.problems.length);
    if (first.problems.length) return;
    await new Promise((done) => { setTimeout(done, TESTS_MS - TYPED_MS); });
    if (number !== asked) return;
    const second = await ask(number, true);
    if (!second || number !== asked) return;
    state = second;
    show(false);
  };

  /* Events like this: pieces of the topic are searched one after the other, until enough is found or the person cancels. */
  const similar = bench.querySelector(".similar");
  const part = (selector) => similar.querySelector(selector);
  const FOUND = 50;
  let search = null;

  const event = (one) => {
    const item = make("li", one.satisfied ? "fits" : "near");
    const head = make("p", "top");
    const time = make("time", "muted", new Date(one.time_ms).toISOString().replace("T", " ").slice(0, 19));
    const truth = one.satisfied ? "satisfies it" : "all but one clause";
    head.append(make("span", `tag ${one.satisfied ? "good" : "warn"}`, truth), time, make("span", "muted", one.at));
    item.append(head);
    if (one.condition !== "where") head.append(make("code", "", one.condition));
    item.append(...one.clauses.map((part) => clause(part, "p")));
    const values = make("p", "seen");
    for (const [name, shown] of Object.entries(one.values)) {
      const pair = make("span", "value");
      pair.append(make("span", "muted", name), ` ${shown}`);
      values.append(pair);
    }
    item.append(values);
    return item;
  };
  const count = (number) => number.toLocaleString("en");
  const say = (sum, ended) => {
    const share = sum.decoded ? ` (${(100 * sum.candidates / sum.decoded).toFixed(1)} %)` : "";
    const cost = sum.candidates === null ? "" : ` The index passes ${count(sum.candidates)} of them to the rule${share}: its cost.`;
    part(".sum").textContent = `${count(sum.satisfied)} of ${count(sum.decoded)} events satisfy it, ${count(sum.near)} all clauses but one.${cost}${ended}`;
  };
  const look = async () => {
    search = new AbortController();
    const yaml = area.value; // the places of the pages are those of this text's topics
    const sum = { decoded: 0, satisfied: 0, near: 0, candidates: null };
    const found = [];
    let read = 0;
    let before = null;
    let ended = "";
    part(".cancel").hidden = part(".progress").hidden = false;
    part(".search").disabled = true;
    part(".progress").value = 0;
    part(".events").replaceChildren();
    part(".sum").textContent = "Reading the newest records";
    try {
      do {
        const answer = await fetch(`${bench.dataset.api}/similar-events`, {
          method: "POST",
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify({ yaml, before }),
          signal: search.signal,
        });
        const page = await answer.json();
        if (!answer.ok) { ended = page.detail; break; }
        read += page.read;
        for (const name of ["decoded", "satisfied", "near"]) sum[name] += page[name];
        if (page.candidates !== null) sum.candidates = (sum.candidates || 0) + page.candidates;
        found.push(...page.events);
        found.sort((one, other) => other.satisfied - one.satisfied || other.time_ms - one.time_ms);
        part(".events").replaceChildren(...found.slice(0, FOUND).map(event));
        part(".progress").max = Math.max(1, read + page.left);
        part(".progress").value = read;
        say(sum, "");
        before = page.next;
      } while (before && found.length < FOUND);
      if (!ended) say(sum, found.length >= FOUND && before ? " The search ends here: there are enough." : "");
      else part(".sum").textContent = ended;
    } catch {
      ended = search.signal.aborted ? " Cancelled." : " The console does not answer.";
      if (read) say(sum, ended); else part(".sum").textContent = ended.trim();
    }
    part(".cancel").hidden = part(".progress").hidden = true;
    part(".search").disabled = false;
  };
  similar.hidden = false;
  part(".search").addEventListener("click", look);
  part(".cancel").addEventListener("click", () => search.abort());

  area.addEventListener("input", () => {
    asked += 1;
    state = { ...state, problems: [], warnings: [], tests: [] };
    draw();
    clearTimeout(timer);
    timer = setTimeout(check, TYPED_MS);
  });
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) area.form.querySelector("button.first").click();
  });
  document.querySelectorAll("[data-insert]").forEach((button) => button.addEventListener("click", () => {
    area.setRangeText(button.dataset.insert, area.selectionStart, area.selectionEnd, "end");
    area.dispatchEvent(new Event("input"));
    area.focus();
  }));
  draw();
  check();
});
