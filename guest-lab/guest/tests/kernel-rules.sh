# Rules of the kernel that the simulator has: cpu.max, throttling in the kernel (6.18), SCHED_IDLE and placement (7.1).
version=$(uname -r | sed 's/^\([0-9]*\)\.\([0-9]*\).*/\1 \2/')
since() { [ $((${version% *} * 1000 + ${version#* })) -ge $(($1 * 1000 + $2)) ]; }
# between LOW VALUE HIGH
between() { [ -n "$2" ] && [ "$1" -le "$2" ] && [ "$2" -le "$3" ]; }

group=/sys/fs/cgroup/limited
mkdir -p $group
echo "20000 100000" >$group/cpu.max
inside() { sh -c 'echo $$ >/sys/fs/cgroup/limited/cgroup.procs; exec "$@"' sh "$@"; }
count() { sed -n "s/^$1 //p" $group/cpu.stat; }

# A hog has a fifth of a CPU; it is throttled in each period.
inside load clock hog 0 2 other 4 >hog.txt
got=$(sed 's/^hog //; s/ us//' hog.txt)
echo "a hog with 20 ms in 100 ms had $got us of 4 s, throttled $(count nr_throttled) times in $(count nr_periods) periods"
check "cpu.max: the hog has a fifth of a CPU" between 760000 "$got" 860000
check "cpu.max: throttled in nearly each period" between 36 "$(count nr_throttled)" 42

# Four workers, each on its CPU, that stay below the limit: since 5.4 no slice expires, and none is throttled.
before=$(count nr_throttled)
echo "10000 100000" >$group/cpu.max
# They begin apart: four slices of 5 ms at once are more than the pool has.
for cpu in 1 2 4 8; do
    inside load periodic w$cpu 0 $cpu other 4 450 50000 &
    sleep 0.06
done
wait
echo "four workers below the limit were throttled $(($(count nr_throttled) - before)) times"
check "cpu.max: work below the limit is not throttled" between 0 $(($(count nr_throttled) - before)) 2

# A holder of a file's lock (the kernel's) with and without limit; a writer without limit wants it every 5 ms.
for limit in max 20000; do
    echo "$limit 100000" >$group/cpu.max
    rm -f /tmp/held
    inside load holds h$limit 0 2 other 4 40 60000 &
    load writes w$limit 0 4 other 4 5000 >w$limit.txt
    wait
done
free=$(sed 's/.*write //; s/ us//' wmax.txt) held=$(sed 's/.*write //; s/ us//' w20000.txt)
echo "the longest write beside a holder without limit took $free us, beside one with a fifth of a CPU $held us"
if since 6 18; then
    check "throttling waits for the return to user code: the lock is given back" between 0 "$held" $((free * 2))
else
    check "throttling takes the holder of a lock off its CPU" between $((free * 5 / 2)) "$held" 9999999
fi
echo max >$group/cpu.max

# Since 6.12 a sleeper may still be queued (delayed dequeue); then it wakes where it is.
# A SCHED_IDLE sleeper on CPU 1, where a SCHED_IDLE hog runs, may go to CPUs 2 and 3, which idle: where its wakeups put it.
load hog hog 0 2 idle 4 &
load sleeper idler 0 2 idle 4 100 20000 & sleeper=$!
mkdir -p $trace
echo 'comm == "idler"' >$trace/events/sched/sched_wakeup/filter
echo 1 >$trace/events/sched/sched_wakeup/enable
for turn in 1 2 3 4 5 6 7 8 9 10; do
    taskset -p 2 $sleeper >/dev/null
    sleep 0.1
    taskset -p e $sleeper >/dev/null
    echo 1 >$trace/tracing_on
    sleep 0.03
    echo 0 >$trace/tracing_on
done
all=$(grep -c target_cpu= $trace/trace) there=$(grep -c target_cpu=001 $trace/trace)
echo 0 >$trace/events/enable
rmdir $trace
wait
echo "of $all wakeups of a SCHED_IDLE sleeper $there were beside SCHED_IDLE work, while two CPUs idled"
check "the wakeups were seen" between 8 "$all" 40
if since 7 1; then
    check "a SCHED_IDLE wakeup goes to a CPU that idles" between 0 "$there" $((all * 2 / 5))
else
    check "a SCHED_IDLE wakeup stays beside SCHED_IDLE work" between $((all / 2)) "$there" "$all"
fi
rmdir $group
