#!/usr/bin/env bash
# `schedlab latency` beside cyclictest: the same policy, interval, CPUs, idle states; ten rounds, the two in random order
# in each; medians of the pairs with the interval that holds the true one (`latency merge`).
#   experiments/latency_vs_cyclictest.sh [POLICY [ROUNDS [SECONDS]]]        POLICY: fifo (default, priority 49) or other
#
# What makes the two comparable:
#  * cyclictest -N: nanoseconds. Without it every value is cut to whole microseconds, half a microsecond less on average.
#  * one interval for all threads (cyclictest with a histogram ignores -d), grids that begin apart on both sides. On one
#    grid (cyclictest -A 0, schedlab --aligned) the threads meet in every expiry: p50 is about 9 % longer here.
#  * /dev/cpu_dma_latency at 0 on both sides, which cyclictest does unless told otherwise. Idle states double p50 here.
#  * memory locked on both sides.
# Needs root, rt-tests, and schedlab (SCHEDLAB=path). Changes nothing on the machine. FILES=dir keeps the results.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
schedlab=${SCHEDLAB:-$root/target/release/schedlab}
policy=${1:-fifo} rounds=${2:-10} seconds=${3:-4}
command -v cyclictest >/dev/null || { echo "cyclictest is missing: apt install rt-tests" >&2; exit 2; }
work=${FILES:-$(mktemp -d)}
[ -n "${FILES:-}" ] || trap 'rm -rf "$work"' EXIT
case $policy in
    fifo) theirs=(--policy=fifo -p49) ours=fifo:49 ;;
    other) theirs=(--policy=other) ours=other ;;
    *) echo "POLICY: fifo or other" >&2; exit 2 ;;
esac
cpus=$(nproc)
theirs() {
    cyclictest -q -m -t "$cpus" -a "0-$((cpus - 1))" "${theirs[@]}" -i 1000 -d 0 -D "$seconds" -h 1000000 -N \
        --json="$work/c$1.json" >/dev/null 2>"$work/c$1.err" || { cat "$work/c$1.err" >&2; exit 2; }
}
ours() {
    "$schedlab" latency --policy "$ours" --interval 1ms --distance 0ns --for "${seconds}s" --dma-latency 0 --json \
        -o "$work/s$1.json" || [ $? = 3 ]
}
files=()
for round in $(seq "$rounds"); do
    if [ $((RANDOM % 2)) = 0 ]; then theirs "$round"; ours "$round"; else ours "$round"; theirs "$round"; fi
    files+=("cyclictest=$work/c$round.json" "schedlab=$work/s$round.json")
done
"$schedlab" latency merge "${files[@]}"
