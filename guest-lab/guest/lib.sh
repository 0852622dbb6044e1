# What the tests of the guests share. A test says `@ok TEXT` or `@bad TEXT` for each thing it looks at.
ok() { echo "@ok $*"; }
bad() { echo "@bad $*"; }

# check TEXT COMMAND...: whether the command succeeds.
check() {
    what=$1
    shift
    if "$@" >/dev/null 2>&1; then ok "$what"; else bad "$what"; fi
}

# run COMMAND...: at most $LIMIT seconds (60); its exit code in $code, what it printed in $last and on the console.
last=/tmp/last
run() {
    echo "\$ $*"
    timeout -s INT "${LIMIT:-60}" "$@" >$last 2>&1
    code=$?
    # What was killed is put back by its guardian.
    [ $code = 137 ] && sleep 3
    tr '\r' '\n' <$last | sed 's/\x1b\[[0-9;?]*[a-zA-Z]//g' >$last.clean
    mv $last.clean $last
    cat $last
    echo "[exit $code at $(cut -d' ' -f1 /proc/uptime)]"
}

said() { grep -qE -- "$1" $last; }
said_not() { ! said "$1"; }

# The threads of programs that have other policies or CPUs than they began with.
changed() { task list | grep '^thread' | grep -cvE "^thread [0-9]+ of [0-9]+ (${confined:-none}) policy 0 "; }

# confine_shell MASK: the shell and what it starts keep to these CPUs, which does not count as a change.
confine_shell() {
    taskset -p $1 $$ >/dev/null
    confined='sh|ash|busybox|exe|timeout|task|grep|tr|sed|sleep'
}

# wait_for SECONDS COMMAND...: until it succeeds.
wait_for() {
    turns=$(($1 * 10))
    shift
    while [ $turns -gt 0 ]; do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.1
        turns=$((turns - 1))
    done
    return 1
}

none_changed() { [ "$(changed)" = 0 ]; }

# Whether huge pages stay away from a process, and from every process of schedlab.
without_huge_pages() { grep -q 'THP_enabled:.*0' /proc/$1/status; }
all_without_huge_pages() {
    [ -n "$(pidof schedlab)" ] || return 1
    for pid in $(pidof schedlab); do without_huge_pages $pid || return 1; done
}

# The kernel's own trace of switches, wakeups, ends and forks.
trace=/sys/kernel/tracing/instances/x
trace_on() {
    mkdir -p $trace
    echo mono >$trace/trace_clock
    echo 8000 >$trace/buffer_size_kb
    for event in sched_switch sched_waking sched_process_exit sched_process_fork; do
        echo 1 >$trace/events/sched/$event/enable
    done
    echo 1 >$trace/tracing_on
}
# trace_off FILE: what concerns the threads whose names begin with c_.
trace_off() {
    echo 0 >$trace/tracing_on
    check "$name: ftrace lost nothing" sh -c "! grep -h overrun $trace/per_cpu/cpu*/stats | grep -qv ': 0$'"
    grep -E 'c_' $trace/trace >$1
    echo 0 >$trace/events/enable
    rmdir $trace
}

# At the end of a test: its loads end, and nothing that schedlab changed may be left.
tidy_up() {
    killall -9 load 2>/dev/null
    wait_for 5 none_changed || { bad "nothing is left changed"; task list; schedlab restore; }
}
