/* What pages do beyond HTML: theme, keys, copying, live alerts. Every text is set as text, never as HTML. */
"use strict";
(() => {
  const THEME = "headgate-theme";
  const TOUR = "headgate-tour"; // the step of the tour, or "left"
  const root = document.documentElement;
  const stored = () => { try { return localStorage.getItem(THEME); } catch { return null; } };
  const setTheme = (name) => {
    if (name) root.dataset.theme = name; else delete root.dataset.theme;
    try { if (name) localStorage.setItem(THEME, name); else localStorage.removeItem(THEME); } catch { /* private window */ }
  };
  if (stored()) setTheme(stored());

  const nextTheme = () => setTheme({ "": "dark", dark: "light", light: "" }[root.dataset.theme || ""]);
  const dialog = () => document.getElementById("keys");
  const writing = (target) => target.closest && target.closest("input, textarea, select, [contenteditable]");
  let gone = 0;
  let at = -1;

  const go = (key) => {
    const home = document.body.dataset.home;
    const pages = { r: "rules", a: "alerts", c: "decisions", k: "keys", d: "dead-letters", e: "releases", f: "features", p: "decision-policies", l: "lists", s: "streams", h: "health", u: "upgrades" };
    const path = key === "o" ? "/" : key in pages ? `${home}/${pages[key]}` : null;
    if (path) location.assign(path);
  };
  const step = (by) => {
    const rows = [...document.querySelectorAll(".rows tbody tr")];
    if (!rows.length) return;
    rows.forEach((row) => row.classList.remove("at"));
    at = Math.min(Math.max(at + by, 0), rows.length - 1);
    rows[at].classList.add("at");
    rows[at].scrollIntoView({ block: "nearest" });
    const link = rows[at].querySelector("a.row, a");
    if (link) link.focus({ preventScroll: true });
  };

  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (writing(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (gone && Date.now() - gone < 1500) { gone = 0; go(event.key); return; }
    gone = 0;
    switch (event.key) {
      case "?": dialog()?.showModal(); break;
      case "/": { const find = document.querySelector("[data-find]"); if (find) { event.preventDefault(); find.focus(); if (find.tagName === "INPUT") find.select(); } break; }
      case "g": gone = Date.now(); break;
      case "j": step(1); break;
      case "k": step(-1); break;
      case "n": location.assign(`${document.body.dataset.home}/new-rule`); break;
      case "t": nextTheme(); break;
    }
  });

  /* Live rows: the table says which kind; each kind knows the filter of its table and how a row is filled. */
  const text = (value) => value === null ? "null" : typeof value === "string" ? value : JSON.stringify(value);
  const path = (table, ...parts) => `/apps/${[table.dataset.app, ...parts].map(encodeURIComponent).join("/")}`;
  const hasKey = (key, wanted) => !wanted || Object.entries(key).some(([name, value]) => wanted === text(value) || wanted === `${name}=${text(value)}`);
  const addKeys = (table, cell, entries) => {
    for (const [name, value] of entries) {
      const key = document.createElement("a");
      key.href = `${path(table, "keys")}?${new URLSearchParams({ column: name, value: text(value) })}`;
      const label = document.createElement("span");
      key.className = "key";
      label.className = "muted";
      label.textContent = name;
      key.append(label, ` ${text(value)}`);
      cell.append(key);
    }
  };
  const KINDS = {
    alert: {
      wanted: ({ rule, key, severity }, alert) => (!rule || alert.rule === rule) && (!severity || alert.severity === severity) && hasKey(alert.key, key),
      fill: (table, alert, part) => {
        part("time").title = new Date(alert.raised_ms).toISOString();
        part(".severity").textContent = alert.severity;
        if (["low", "medium", "high", "critical"].includes(alert.severity)) part(".severity").classList.add(alert.severity);
        part(".rule").textContent = alert.rule;
        part(".rule").href = path(table, "rules", alert.rule);
        part(".version").textContent = alert.version;
        addKeys(table, part(".cell-key"), Object.entries(alert.key));
        part(".message").textContent = alert.message;
        part(".message").href = path(table, "alerts", alert.alert_id);
      },
    },
    decision: {
      wanted: ({ rule, key, outcome, policy }, one) => (!outcome || one.outcome === outcome) && (!policy || one.policy === policy)
        && (!rule || [...one.rules, ...one.shadow].some((fired) => fired.rule === rule)) && hasKey(one.key, key),
      fill: (table, one, part) => {
        part("time").title = new Date(one.decided_ms).toISOString();
        part(".outcome").textContent = one.outcome;
        const tones = JSON.parse(table.dataset.tones);
        if (Object.hasOwn(tones, one.outcome)) part(".outcome").classList.add(tones[one.outcome]);
        part(".number").textContent = one.score.toLocaleString("en");
        addKeys(table, part(".cell-key"), Object.entries(one.key).filter(([, value]) => value !== null));
        part(".message").textContent = one.rules.length ? one.rules[0].message : JSON.parse(table.dataset.causes)[one.cause] || one.cause;
        part(".message").href = path(table, "decisions", one.decision_id);
        part(".about").textContent = one.rules.map((fired) => fired.rule).join(", ") + (one.left_out ? ` and ${one.left_out} more` : "");
      },
    },
  };
  const live = () => {
    const address = document.body.dataset.live;
    const body = document.getElementById("live-rows");
    if (!address || !body || !window.EventSource) return;
    const table = body.closest("table");
    const kind = KINDS[table.dataset.kind];
    const sign = document.querySelector(".live");
    const template = document.getElementById("live-row");
    const held = [];
    let hover = false;
    const say = () => {
      const state = hover && held.length ? "held" : sign.dataset.link;
      sign.dataset.state = state;
      sign.querySelector(".say").textContent = { on: "live", off: "not live: connecting again", held: `${held.length} held while you look` }[state];
    };
    const row = (value) => {
      const made = template.content.cloneNode(true);
      made.querySelector("time").textContent = "now";
      kind.fill(table, value, (selector) => made.querySelector(selector));
      return made;
    };
    const show = () => {
      document.getElementById("none")?.remove();
      for (const value of held.splice(0)) body.prepend(row(value));
      while (body.rows.length > 200) body.deleteRow(-1);
    };
    const source = new EventSource(address);
    sign.dataset.link = "off";
    source.onopen = () => { sign.dataset.link = "on"; say(); };
    source.onerror = () => { sign.dataset.link = "off"; say(); };
    source.addEventListener(table.dataset.kind, (event) => {
      const value = JSON.parse(event.data);
      if (!kind.wanted(table.dataset, value)) return;
      held.push(value);
      if (held.length > 200) held.shift();
      if (!hover) requestAnimationFrame(show);
      say();
    });
    table.addEventListener("mouseenter", () => { hover = true; });
    table.addEventListener("mouseleave", () => { hover = false; show(); say(); });
    addEventListener("pagehide", () => source.close());
  };

  /* The tour begins on the overview, goes from page to page, and stays away when it was left or has ended. */
  const keep = (step) => { try { localStorage.setItem(TOUR, step); } catch { /* private window */ } };
  const tour = (begin) => {
    const box = document.getElementById("tour");
    const steps = [...box.querySelectorAll("li")];
    let kept = "left";
    try { kept = localStorage.getItem(TOUR) ?? "0"; } catch { /* nothing is kept: no tour that would come back */ }
    if (begin) kept = "0";
    const show = (step) => {
      keep(step);
      if (steps[step].dataset.at !== location.pathname) { location.assign(steps[step].dataset.at); return; }
      steps.forEach((one, index) => { one.hidden = index !== step; });
      box.querySelector(".steps").textContent = `${step + 1} of ${steps.length}`;
      box.querySelector("[data-tour=back]").hidden = step === 0;
      box.querySelector("[data-tour=next]").textContent = step === steps.length - 1 ? "Done" : "Next";
      box.querySelector("[data-tour=leave]").hidden = step === steps.length - 1;
      box.hidden = false;
      box.focus({ preventScroll: true });
    };
    const leave = () => { keep("left"); box.hidden = true; };
    box.onclick = (event) => {
      const what = event.target.dataset.tour;
      const step = steps.findIndex((one) => !one.hidden);
      if (what === "leave" || what === "next" && step === steps.length - 1) leave();
      else if (what) show(step + (what === "next" ? 1 : -1));
    };
    box.onkeydown = (event) => { if (event.key === "Escape") leave(); };
    const step = Number(kept);
    if (!(step >= 0 && step < steps.length)) return;
    if (begin || steps[step].dataset.at === location.pathname) show(step);
  };

  addEventListener("DOMContentLoaded", () => {
    tour(false);
    const here = document.querySelector(".side nav a[aria-current]");
    if (here) here.parentElement.scrollLeft = here.offsetLeft - here.parentElement.offsetLeft - 24; // on a phone the pages are beside each other
    document.querySelectorAll("[data-do]").forEach((button) => button.addEventListener("click", () => {
      if (button.dataset.do === "theme") nextTheme();
      else if (button.dataset.do === "tour") { dialog()?.close(); tour(true); }
      else dialog()?.showModal();
    }));
    document.querySelectorAll("[data-copy]").forEach((button) => button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    }));
    const reload = Number(document.body.dataset.reload || 0);
    if (reload) setInterval(() => { if (!document.hidden && !dialog()?.open && document.getElementById("tour").hidden && !getSelection().toString() && !document.querySelector("details:not([data-first])[open]")) location.reload(); }, reload * 1000);
    live();
  });
})();
