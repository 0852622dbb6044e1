#!/bin/sh
# Does my sched_ext scheduler make a workload worse than the kernel's own scheduler does? An answer by exit code, for CI.
#
# usage: sched-ext-gate.sh SCHEDULER LOAD GATE [ROUNDS] [FOLDER]
#   SCHEDULER  the command that loads the scheduler and stays until it is sent SIGTERM, such as 'scx_lavd'
#   LOAD       the command to be recorded, such as './bench.sh'
#   GATE       what must not happen, as `schedlab diff --fail-if` reads it, such as 'server response p99 > +5%'
#   ROUNDS     recordings of each kind, made in turns; at least 3 (default 5)
#   FOLDER     where the recordings are kept (default: sched-ext-gate)
#
# Exit code: that of `schedlab diff` (0 the gate did not fail, 1 it failed, 3 the recordings cannot tell), or 2: it could not be tried.
set -u
[ $# -ge 3 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
scheduler=$1 load=$2 gate=$3 rounds=${4:-5} folder=${5:-sched-ext-gate}
class=${SCHED_EXT:-/sys/kernel/sched_ext}
loaded=

fail() { echo "sched-ext-gate: $*" >&2; exit 2; }
state() { cat "$class/state" 2>/dev/null; }
# The class needs a moment to come up, and to let its tasks go.
wait_for() {
    i=0
    until [ "$(state)" = "$1" ]; do
        i=$((i + 1))
        [ $i -le 100 ] || return 1
        [ "$1" = disabled ] || kill -0 "$loaded" 2>/dev/null || return 1
        sleep 0.1
    done
}
unload() {
    [ -n "$loaded" ] || return 0
    kill "$loaded" 2>/dev/null
    wait "$loaded" 2>/dev/null
    loaded=
}
trap unload EXIT
trap 'exit 2' INT TERM

[ -e "$class/state" ] || fail "this kernel has no sched_ext (Linux 6.12 or later with CONFIG_SCHED_CLASS_EXT)"
[ "$(state)" = disabled ] || fail "a scheduler is loaded: $(cat "$class/root/ops" 2>/dev/null) ($(state)); stop it first"
mkdir -p "$folder/before" "$folder/after" || exit 2
rm -f "$folder"/before/*.slt "$folder"/after/*.slt
round=1
while [ "$round" -le "$rounds" ]; do
    schedlab record -o "$folder/before/$round.slt" -- sh -c "$load" || fail "round $round: the recording without it failed"
    sh -c "exec $scheduler" &
    loaded=$!
    wait_for enabled || fail "round $round: the scheduler did not come up: state $(state)"
    schedlab record -o "$folder/after/$round.slt" -- sh -c "$load" || fail "round $round: the recording under it failed"
    # The kernel throws a scheduler out that starves a task; then it is not the scheduler that was recorded.
    [ "$(state)" = enabled ] || fail "round $round: the kernel ended the scheduler while the load ran (see dmesg)"
    unload
    wait_for disabled || fail "round $round: the scheduler did not end: state $(state)"
    round=$((round + 1))
done
schedlab diff "$folder/before" "$folder/after" --fail-if "$gate"
