#!/usr/bin/env python3
"""Draws how often intervals of each level hold, one CPU and several, from the table of docs/predictions.md (which `cargo xtask pairs --write` makes).

usage: experiments/calibration_plot.py [docs/stated-and-held.svg]
"""
import pathlib, re, sys

LEVELS = [50, 80, 90, 95, 99]
ONE, MANY = "one CPU", "several CPUs"
COLOURS = {ONE: "#0072b2", MANY: "#d55e00"}
root = pathlib.Path(__file__).resolve().parent.parent
text = (root / "docs/predictions.md").read_text()
row = re.compile(r"^\| recordings/(\S+) \| (\d+) \|" + r" (\d+) % \|" * len(LEVELS) + "$", re.M)
sums = {ONE: [0] * 6, MANY: [0] * 6}
for name, figures, *held in row.findall(text):
    sum_of = sums[MANY if name in ("pairs/cpus", "pairs/smt", "pairs/busy") else ONE]
    sum_of[5] += int(figures)
    for level, part in enumerate(held):
        sum_of[level] += int(part) * int(figures) / 100
if not all(of[5] for of in sums.values()):
    sys.exit("docs/predictions.md has no table of levels: run cargo xtask pairs --write")
x, y = (lambda stated: 60 + (stated - 40) * 7), (lambda held: 420 - (held - 40) * 6.5)
out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 520 480" font-family="sans-serif" font-size="13" role="img" aria-label="How often intervals hold, by the level that is stated">',
       '<rect width="520" height="480" fill="#fff"/>', f'<path d="M{x(40)} {y(40)}L{x(100)} {y(100)}" stroke="#999" stroke-dasharray="4 4"/>']
for level in [50, 60, 70, 80, 90, 100]:
    out.append(f'<text x="{x(level)}" y="444" text-anchor="middle">{level} %</text><text x="52" y="{y(level) + 4}" text-anchor="end">{level} %</text>')
    out.append(f'<path d="M{x(level)} 420V424M56 {y(level)}H60" stroke="#333"/>')
out.append(f'<path d="M60 {y(100)}V420H{x(100)}" fill="none" stroke="#333"/><text x="270" y="470" text-anchor="middle">stated</text><text x="64" y="22">held</text>')
for place, (name, of) in enumerate(sums.items()):
    points = [(x(level), y(100 * of[at] / of[5])) for at, level in enumerate(LEVELS)]
    path = "L".join(f"{px:.0f} {py:.0f}" for px, py in points)
    out.append(f'<path d="M{path}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>')
    out += [f'<circle cx="{px:.0f}" cy="{py:.0f}" r="4" fill="{COLOURS[name]}"/>' for px, py in points]
    out.append(f'<text x="300" y="{360 + 20 * place}" fill="{COLOURS[name]}">{name}: {of[5]} figures</text>')
    print(f"{name}: {of[5]} figures; stated " + ", ".join(f"{level} %: held {100 * of[at] / of[5]:.0f} %" for at, level in enumerate(LEVELS)))
path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "docs/stated-and-held.svg"
path.write_text("\n".join(out) + "\n</svg>\n")
