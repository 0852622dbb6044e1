// Opens every fold, waits for the charts, and writes what is wrong into the document.
addEventListener("load", () => {
  const root = document.documentElement, wrong = [];
  document.querySelectorAll("details").forEach((d) => { d.open = true; });
  const look = () => {
    if (root.dataset.ready !== "yes") return setTimeout(look, 100);
    const wide = root.clientWidth;
    if (root.scrollWidth > wide) wrong.push("the page is " + root.scrollWidth + " wide of " + wide);
    for (const e of document.querySelectorAll("main *, footer *")) {
      if (e.closest(".scroll") && !e.matches(".scroll")) continue;
      const box = e.getBoundingClientRect();
      if (!box.width) continue;
      if (box.right > wide + 1 || box.left < -1) wrong.push(e.tagName + "." + e.className + " from " + Math.round(box.left) + " to " + Math.round(box.right));
      const style = getComputedStyle(e);
      if (e.scrollWidth > e.clientWidth + 1 && e.clientWidth && style.overflowX === "visible" && style.display !== "inline" && !e.closest("svg") && !e.closest(".u-wrap"))
        wrong.push(e.tagName + "." + e.className + " holds " + e.scrollWidth + " in " + e.clientWidth);
    }
    for (const box of document.querySelectorAll(".scroll")) {
      const first = box.querySelector("tbody tr > :first-child");
      box.scrollLeft = 10000;
      if (first && box.scrollWidth > box.clientWidth + 1 && Math.abs(first.getBoundingClientRect().left - box.getBoundingClientRect().left) > 2) wrong.push("the first column moves");
      box.scrollLeft = 0;
    }
    const keys = new Map();
    document.querySelectorAll(".key").forEach((k) => {
      const style = getComputedStyle(k.querySelector("path")), sign = style.stroke + " " + style.strokeDasharray;
      if (keys.has(sign) && keys.get(sign) !== k.dataset.key) wrong.push("keys " + keys.get(sign) + " and " + k.dataset.key + " look alike: " + sign);
      keys.set(sign, k.dataset.key);
    });
    for (const svg of document.querySelectorAll(".ladder svg")) {
      const names = [...svg.querySelectorAll(".name")].map((n) => n.getBoundingClientRect()).sort((a, b) => a.top - b.top);
      names.forEach((n, i) => { if (i && n.top < names[i - 1].bottom - 3) wrong.push("names of the ladder overlap"); });
      const rungs = [...svg.querySelectorAll(".axis.mid")].map((n) => n.getBoundingClientRect());
      rungs.forEach((a, i) => rungs.slice(i + 1).forEach((b) => { if (a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom) wrong.push("rungs of the ladder overlap"); }));
      const box = svg.getBoundingClientRect();
      if (names.some((n) => n.right > box.right + 1 || n.bottom > box.bottom + 1)) wrong.push("a name of the ladder is cut off");
      const whole = JSON.parse(svg.closest("figure").querySelector("script").textContent).curves.map((c) => c.name.replaceAll(" ", ""));
      const shown = [...svg.querySelectorAll(".name")].map((n) => [...n.querySelectorAll("tspan")].map((t) => t.textContent).join("").replaceAll(" ", ""));
      if (whole.sort().join() !== shown.sort().join()) wrong.push("the ladder has " + shown + " for " + whole);
    }
    // What is seen before anything is opened, in order.
    root.dataset.sections = [...document.querySelectorAll("main > section")].map((s) => (s.matches(".verdict") ? "verdict" : (s.querySelector("h2").textContent + (s.matches(".folded") ? " (folded)" : "")))).join("; ");
    root.dataset.width = innerWidth;
    root.dataset.keys = keys.size;
    root.dataset.lines = document.querySelectorAll(".ladder polyline").length;
    root.dataset.wrong = wrong.slice(0, 8).join("; ");
    root.dataset.checked = "yes";
    parent.postMessage({ ...root.dataset, unused: document.querySelector(".unused")?.textContent, asked: location.hash }, "*");
  };
  look();
});
