// What the page does beyond standing still: choosers, the curve's figures under the pointer, tabs, sorting, filtering.
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const data = JSON.parse(document.getElementById("data").textContent);

  // Numbers as the page has them (report/format.rs).
  const percent = (ratio) => {
    const p = ratio * 100;
    if (p === 0) return "0 %";
    if (p < 0.01) return "<0.01 %";
    return p.toFixed(p < 9.995 ? 2 : p < 99.95 ? 1 : 0) + " %";
  };
  const interval = (low, high) => {
    const wide = (high - low) * 100;
    const digits = wide >= 10 ? 0 : wide >= 0.2 ? 1 : 2;
    return (low * 100).toFixed(digits) + "–" + (high * 100).toFixed(digits);
  };

  function curve(process) {
    const svg = process.querySelector("svg.curve");
    if (!svg) return;
    const section = svg.closest("section");
    const tip = section.querySelector(".tip");
    const cross = svg.querySelector(".cross");
    const figures = data[Number(process.dataset.number)];
    const box = Object.fromEntries(["left", "right", "top", "floor"].map((k) => [k, Number(svg.dataset[k])]));
    const chosen = { line: "64", stream: "own", log: false, bands: true, lru: true };
    let at = -1;

    function show() {
      const key = chosen.stream + "-" + chosen.line;
      for (const g of all("g.variant", svg)) g.classList.toggle("on", g.dataset.v === key + (chosen.log ? "-log" : "-lin"));
      for (const t of all("table.variant", section)) t.classList.toggle("on", t.dataset.v === key);
      svg.classList.toggle("no-bands", !chosen.bands);
      svg.classList.toggle("no-lru", !chosen.lru);
      point(at);
    }

    // Marks the size of this number, -1 for none.
    function point(index) {
      at = index;
      const hidden = at < 0 || at >= figures.sizes.length;
      cross.setAttribute("visibility", hidden ? "hidden" : "visible");
      tip.hidden = hidden;
      if (hidden) return;
      const { top, bottom } = svg.querySelector("g.variant.on").dataset;
      const part = (ratio) => {
        const p = chosen.log ? Math.log(Math.max(ratio, 1e-6) / bottom) / Math.log(top / bottom) : ratio / top;
        return Math.min(Math.max(p, 0), 1);
      };
      const x = figures.x[at];
      cross.querySelector(".wire").setAttribute("transform", `translate(${x} 0)`);
      tip.replaceChildren();
      const name = document.createElement("b");
      name.textContent = figures.names[at];
      tip.append(name);
      const both = figures.curves[chosen.stream + "-" + chosen.line];
      for (const policy of chosen.lru ? ["random", "lru"] : ["random"]) {
        const [ratio, low, high, weak] = both[policy][at];
        const dot = cross.querySelector("circle." + policy);
        dot.setAttribute("cx", x);
        dot.setAttribute("cy", box.floor - part(ratio) * (box.floor - box.top));
        const line = document.createElement("i");
        line.className = policy;
        const said = ((weak ? "~" : "") + percent(ratio)).padStart(9);
        line.textContent = (policy === "lru" ? "LRU   " : "random") + said + "  " + interval(low, high) + "\n";
        tip.append(line);
      }
      // Beside the wire, on the side that has room.
      const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
      const right = x > (box.left + box.right) / 2;
      tip.style.left = right ? "auto" : x * scale + 14 + "px";
      tip.style.right = right ? svg.parentElement.clientWidth - x * scale + 14 + "px" : "auto";
      tip.style.top = svg.getBoundingClientRect().top - svg.parentElement.getBoundingClientRect().top + box.top * scale + 12 + "px";
    }

    for (const input of all("[data-set]", section)) {
      const set = () => {
        if (input.type === "radio" && !input.checked) return;
        chosen[input.dataset.set] = input.type === "radio" ? input.value : input.checked;
        show();
      };
      input.addEventListener("change", set);
      set(); // A browser may have kept what was chosen before.
    }
    svg.addEventListener("pointermove", (event) => {
      const width = svg.getBoundingClientRect().width;
      const x = (event.clientX - svg.getBoundingClientRect().left) * svg.viewBox.baseVal.width / width;
      let best = 0;
      figures.x.forEach((of, i) => { if (Math.abs(of - x) < Math.abs(figures.x[best] - x)) best = i; });
      point(best);
    });
    svg.addEventListener("pointerleave", () => point(-1));
    svg.addEventListener("blur", () => point(-1));
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") point(-1);
      if (!step) return;
      event.preventDefault();
      point(Math.min(Math.max(at + step, 0), figures.sizes.length - 1));
    });
  }

  function sortable(table) {
    const body = table.tBodies[0];
    const heads = all("[data-sort]", table);
    const keys = new Map(all("tr", body).map((row) => [row, row.dataset.k.split(" ").map(Number)]));
    heads.forEach((head, column) => {
      const sort = () => {
        const text = head.dataset.sort === "t";
        const was = head.getAttribute("aria-sort");
        const down = was ? was === "ascending" : !text;
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const of = (row) => text ? row.lastElementChild.textContent : keys.get(row)[column];
        const order = (a, b) => text ? of(a).localeCompare(of(b), undefined, { numeric: true }) : of(a) - of(b);
        const rows = [...keys.keys()].sort((a, b) => down ? order(b, a) : order(a, b));
        body.append(...rows);
      };
      head.tabIndex = 0;
      head.addEventListener("click", sort);
      head.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        sort();
      });
    });
  }

  function filter(process) {
    const input = process.querySelector(".filter");
    if (!input) return;
    const rows = all(".panel tbody tr", process).map((row) => [row, row.lastElementChild.textContent.toLowerCase()]);
    const apply = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const [row, text] of rows) row.hidden = !words.every((word) => text.includes(word));
      for (const panel of all(".panel", process)) {
        panel.querySelector(".none").hidden = !words.length || all("tbody tr", panel).some((row) => !row.hidden);
      }
    };
    input.addEventListener("input", apply);
    apply();
  }

  // One of these is on.
  const choose = (of, one) => of.forEach((each) => {
    each.classList.toggle("on", each === one);
    if (each.matches("a")) each.setAttribute("aria-current", each === one);
  });

  function choosePanel(process, panel) {
    choose(all(".panel", process), panel);
    choose(all(".tab", process), process.querySelector(`.tab[href="#${panel.id}"]`));
  }

  function chooseProcess(process) {
    choose(all(".process"), process);
    choose(all(".processes a"), document.querySelector(`.processes a[href="#${process.id}"]`));
  }

  // Brings what an address names to sight, wherever it is hidden.
  function go(id) {
    const target = document.getElementById(id);
    const process = target?.closest(".process");
    if (!process) return false;
    chooseProcess(process);
    const panel = target.closest(".panel");
    if (panel) choosePanel(process, panel);
    const sheet = target.closest("details");
    if (sheet) sheet.open = true;
    for (const before of all(".hit")) before.classList.remove("hit");
    const line = target.matches("tr");
    if (line) target.classList.add("hit");
    if (target === process) scrollTo(0, 0);
    else if (!panel) target.scrollIntoView({ block: line ? "center" : "start" });
    return true;
  }

  for (const process of all(".process")) {
    curve(process);
    all("table.list[data-primary]", process).forEach(sortable);
    filter(process);
    const panel = process.querySelector(".panel.on");
    if (panel) choosePanel(process, panel);
  }
  const first = document.querySelector(".process");
  if (first) chooseProcess(first);
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    const id = link.getAttribute("href").slice(1);
    if (!go(id)) return;
    event.preventDefault();
    if (location.hash !== "#" + id) history.pushState(null, "", "#" + id);
  });
  addEventListener("popstate", () => { if (location.hash) go(location.hash.slice(1)); });
  // After the browser has gone there itself, which knows nothing of what covers the line.
  addEventListener("load", () => setTimeout(() => { if (location.hash) go(location.hash.slice(1)); }));
})();
