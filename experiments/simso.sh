#!/usr/bin/env bash
# W1 under SimSo (from PyPI) and under schedlab, CPU seconds of the same machine, one after the other, and their ratio.
#
#   experiments/simso.sh [SECONDS]      simulated seconds for SimSo, default 2 (about as many CPU seconds)
#
# SimSo 0.8.5 imports the module `imp`, which Python lost in 3.12: an older python3 is needed. Everything goes
# into a virtual environment below target/.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-2}
venv=target/simso-venv
if [ ! -x "$venv/bin/python" ]; then
    python3 -c 'import sys; sys.exit("simso 0.8.5 needs a Python before 3.12, this is %d.%d" % sys.version_info[:2]
        if sys.version_info >= (3, 12) else 0)'
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet simso==0.8.5
fi
simso=$("$venv/bin/python" experiments/simso_w1.py crates/sim/tests/data/w1.json "$seconds")
echo "$simso"
bench=$(cargo bench -q -p schedlab-sim --bench speed -- W1)
echo "$bench"
python3 - "$simso" "$bench" <<'PY'
import re, sys
rate = lambda text: float(re.search(r"([0-9.]+) sim s per CPU s", text).group(1))
theirs, ours = rate(sys.argv[1]), rate(sys.argv[2])
print(f"ratio: schedlab simulates {ours / theirs:.0f} times as much W1 in a CPU second as SimSo")
PY
