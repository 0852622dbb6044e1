// What is wrong with the page as it is now: a list of sentences.
(() => {
  const wrong = [], wide = document.documentElement.clientWidth;
  if (document.documentElement.dataset.errors) wrong.push(document.documentElement.dataset.errors);
  if (document.documentElement.scrollWidth > wide) wrong.push("the page is " + document.documentElement.scrollWidth + " wide of " + wide);
  const light = ([r, g, b]) => [r, g, b].map((c) => { const v = c / 255; return v <= 0.04045 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4); }).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const numbers = (text) => { const all = text.match(/[\d.]+/g).map(Number); return text.startsWith("color(srgb") ? [...all.slice(0, 3).map((v) => v * 255), all[3] ?? 1] : [...all.slice(0, 3), all[3] ?? 1]; };
  const behind = (e) => { for (let at = e; at; at = at.parentElement) { const [r, g, b, a] = numbers(getComputedStyle(at).backgroundColor); if (a > 0.9) return [r, g, b]; } return [255, 255, 255]; };
  for (const e of document.querySelectorAll("header *, main *")) {
    if (e.closest("[hidden], noscript, .u-wrap") || !e.getClientRects().length) continue;
    const box = e.getBoundingClientRect(), where = e.tagName + "." + (e.getAttribute("class") ?? "");
    if (!e.closest(".scroll, pre, svg, header") && (box.right > wide + 1 || box.left < -1)) wrong.push(where + " from " + Math.round(box.left) + " to " + Math.round(box.right));
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (own && !e.closest("svg") && !e.matches(":disabled, option, optgroup") && !e.closest(".stale")) {
      const [x, y] = [light(numbers(getComputedStyle(e).color)), light(behind(e))], contrast = (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
      if (contrast < 4.5) wrong.push(where + " '" + e.textContent.slice(0, 30) + "' has a contrast of " + contrast.toFixed(2));
    }
    // The edge of a field tells where it is: WCAG 2.1, 1.4.11.
    if (e.matches("select, input[type=text], input:not([type])")) {
      const [x, y] = [light(numbers(getComputedStyle(e).borderTopColor)), light(behind(e.parentElement))], contrast = (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
      if (contrast < 3) wrong.push(where + " has an edge with a contrast of " + contrast.toFixed(2));
    }
    if (e.matches("button, input, select, a, canvas[tabindex]") && !e.matches("[aria-hidden=true]")) {
      const name = e.getAttribute("aria-label") || e.textContent.trim() || [...(e.labels ?? [])].map((l) => l.textContent.trim()).join("");
      if (!name) wrong.push(where + " has no name");
    }
  }
  // Colours of programs and rows on both grounds: the same rule.
  const ink = getComputedStyle(document.documentElement), named = (name) => light(ink.getPropertyValue(name).trim().match(/[0-9a-f]{2}/gi).map((hex) => parseInt(hex, 16)));
  for (const name of [..."01234567"].map((k) => "--c" + k).concat([..."012345678"].map((k) => "--v" + k))) {
    for (const ground of ["--paper", "--raise"]) {
      const [x, y] = [named(name), named(ground)], contrast = (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
      if (contrast < 3) wrong.push(name + " on " + ground + " has a contrast of " + contrast.toFixed(2));
    }
  }
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  ids.filter((id, i) => ids.indexOf(id) !== i).forEach((id) => wrong.push("two have the id " + id));
  return wrong.slice(0, 8);
})()
