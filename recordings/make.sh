#!/usr/bin/env bash
# Makes the shipped recordings anew: recordings/make.sh [NAME...]   (no NAME: all of them; `list` prints them)
#
# Needs root, two CPUs and Debian's redis-server, sysbench and rt-tests (installed when missing). Everything
# runs in one session, so that one autogroup holds it all and nice values mean what they say. What is started
# here is ended here, by process id. No setting of the machine is changed; the session's own autogroup gets
# nice -20, and an open-loop client SCHED_FIFO 1 for its 5 seconds, so that what else runs on the machine
# delays them little.
#
# The tasks under test are pinned on CPU $SUT (1), the load client and the recorder on CPU $SIDE (0).
# QUIET may name a command under which each recording runs, e.g. one that pauses other work meanwhile.
# OUT is where the files go (default: this folder), TARGET a cargo folder with built binaries and examples
# (default: target/release, built first).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
SUT=${SUT:-1} SIDE=${SIDE:-0} OUT=${OUT:-$here} QUIET=${QUIET:-} TARGET=${TARGET:-}
bin=${TARGET:-$root/target/release}
PORT=${PORT:-7777} SECONDS_RECORDED=3 RATE=${RATE:-10000} CONNECTIONS=${CONNECTIONS:-16}
policies="other-other other-idle fifo-other"
all="two-yes $(for load in open closed closed8; do for p in $policies; do echo "redis-$p-$load"; done; done) hackbench compile redis-perf"

pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    [ -z "${work:-}" ] || rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM HUP

# Starts its arguments in the background with their output in $work/NAME.
start() { local name=$1; shift; "$@" >"$work/$name" 2>&1 & pids+=($!); }

need() {
    command -v "$1" >/dev/null && return
    echo "installing $2"
    apt-get install -y -q "$2" >/dev/null
    # Debian starts a server when it installs one; the one of a recording has a port of its own.
    if [ "$2" = redis-server ]; then systemctl disable --now redis-server 2>/dev/null || true; fi
}

# record NAME NOTE SECONDS [COMMAND...]
record() {
    local name=$1 note=$2 seconds=$3; shift 3
    local which=(--all)
    [ $# = 0 ] || which=(-- "$@")
    "$bin/schedlab" record -o "$OUT/$name.slt" --recorder-cpu "$SIDE" --for "${seconds}s" --note "$note" "${which[@]}"
}

# redis NAME SERVER-PREFIX BATCH-PREFIX KIND CONNECTIONS
redis() {
    local name=$1 server=$2 batch=$3 kind=$4 connections=$5
    start redis taskset -c "$SUT" $server redis-server --port "$PORT" --bind 127.0.0.1 --save "" --appendonly no \
        --io-threads 1 --daemonize no
    for _ in $(seq 50); do redis-cli -p "$PORT" ping 2>/dev/null | grep -q PONG && break; sleep 0.05; done
    redis-cli -p "$PORT" set key:1 xxx >/dev/null
    head -c 131072 /dev/urandom | redis-cli -p "$PORT" -x set bits >/dev/null
    # Open loop: GET, as in the article; SCHED_FIFO lets the client send in time. Closed loop: a request that
    # costs the server some 20 us and the client little, so that the server is the bottleneck; a client in a
    # real-time class could starve the recorder then.
    local request="GET key:1" priority="chrt -f 1" client_is="fifo:1"
    [ "${kind%%:*}" = open ] || { request="BITCOUNT bits"; priority="nice -n -20"; client_is="nice -20"; }
    start sysbench taskset -c "$SUT" $batch sysbench cpu --threads=1 --time=6 run
    sleep 0.3
    start client $priority taskset -c "$SIDE" "$bin/examples/redload" "127.0.0.1:$PORT" "$kind" "$connections" 500ms \
        $((SECONDS_RECORDED + 1))500ms 1 $request
    local client=${pids[-1]} sysbench=${pids[-2]}
    sleep 0.4
    record "$name" "redis-server ${server:-(other)} and sysbench cpu ${batch:-(other)} on CPU $SUT; client ($client_is): \
$kind, $connections connections, $request, on CPU $SIDE over loopback" "$SECONDS_RECORDED"
    wait "$client" "$sysbench" || true
    cp "$work/client" "$OUT/$name.client.json"
    grep -E 'events per second|max:' "$work/sysbench" | tr -s ' ' | tr '\n' ' '; echo
}

# What a user has who records with perf and pins nothing: a file of perf, in which Redis needs more than its part
# of two CPUs beside four threads of sysbench. (perf writes 100 bytes an event: few requests, each of 0.5 ms.)
of_perf() {
    start redis redis-server --port "$PORT" --bind 127.0.0.1 --save "" --appendonly no --io-threads 1 --daemonize no
    start sysbench sysbench cpu --threads=4 --time=7 run
    sleep 0.8
    head -c 2097152 /dev/urandom | redis-cli -p "$PORT" -x set bits >/dev/null
    start client "$bin/examples/redload" "127.0.0.1:$PORT" open:700 16 500ms 4500ms 1 BITCOUNT bits
    sleep 1
    perf record -q -a $(printf -- '-e sched:sched_%s ' switch waking wakeup_new process_fork process_exit migrate_task) \
        -o "$OUT/$1.data" -- sleep "$SECONDS_RECORDED"
}

compile_tree() {
    mkdir -p "$work/tree"
    {
        printf 'CFLAGS = -O1\nobjects ='
        for i in $(seq 24); do printf ' f%d.o' "$i"; done
        printf '\nlib.a: $(objects)\n\tar rcs $@ $(objects)\n'
    } >"$work/tree/Makefile"
    local i j
    for i in $(seq 24); do
        for j in $(seq 110); do
            echo "int f${i}_$j(int a, int b) { int s = $j; for (int k = a; k < b; k++) s = s * 31 + k % ($j + 1); return s; }"
        done >"$work/tree/f$i.c"
    done
}

one() {
    work=$(mktemp -d)
    cd "$work"
    [ ! -e /proc/self/autogroup ] || [ "$1" = redis-perf ] || echo -20 >/proc/self/autogroup
    case $1 in
    two-yes)
        start a taskset -c "$SUT" sh -c 'exec yes >/dev/null'
        start b taskset -c "$SUT" sh -c 'exec yes >/dev/null'
        sleep 0.5
        record "$1" "two yes on CPU $SUT" "$SECONDS_RECORDED" ;;
    redis-perf) of_perf "$1" ;;
    redis-*)
        local server="" batch="" kind=closed connections=1
        case $1 in *-idle-*) batch="chrt -i 0" ;; *-fifo-*) server="chrt -f 1" ;; esac
        case $1 in *-open) kind=open:$RATE connections=$CONNECTIONS ;; *-closed8) connections=8 ;; esac
        redis "$1" "$server" "$batch" "$kind" "$connections" ;;
    # Some three messages of 64 KiB fill a socket: most of them wake a task, so that the recording shows them.
    hackbench) record "$1" "hackbench -g 2 -f 5 -s 65536 -l 2000 on both CPUs" 5 hackbench -g 2 -f 5 -s 65536 -l 2000 ;;
    compile) compile_tree; record "$1" "make -j4 of 24 generated C files" 9 make -s -C "$work/tree" -j4 ;;
    *) echo "unknown recording $1; there are: $all"; exit 2 ;;
    esac
}

if [ "${1:-}" = list ]; then echo $all; exit; fi
if [ "${1:-}" = one ]; then one "$2"; exit; fi
[ "$(id -u)" = 0 ] || { echo "recording the whole machine needs root"; exit 2; }
need redis-server redis-server; need redis-cli redis-tools; need sysbench sysbench; need hackbench rt-tests
need gcc gcc; need make make
[ -n "$TARGET" ] || (cd "$root" && cargo build --release -q -p schedlab-cli -p schedlab-study -p schedlab-measure --bins --examples)
for name in ${*:-$all}; do
    echo "== $name"
    $QUIET setsid -w "$here/make.sh" one "$name"
    [ "$name" = redis-perf ] || "$bin/examples/shares" "$OUT/$name.slt"
done
