# The same load under elevation and under sched_ext, beside the kernel's own trace: guest-lab/src/guest/drivers.rs plays it in the simulator, too, and
# compares shares, turns and orders. Then what a hand-over costs under each, beside the kernel's own class and a bare sched_ext FIFO.
LIMIT=60
# The shell and what it starts would go before threads that are managed by sched_ext.
confine_shell 1
# attach DRIVER POLICY OPTIONS...: in the background, until all threads of $all have the policy.
attach() {
    by=$1 policy=$2
    shift 2
    taskset f schedlab attach --driver $by --pid ${all#,} --starve-after 10s "$@" >attach.txt 2>&1 &
    owner=$!
    count=$(echo $all | tr -cd , | wc -c)
    managed() { [ "$(task list | grep c_ | grep -c "policy $policy ")" = $count ]; }
    check "$name: all $count threads are managed" wait_for 60 managed
}
gone() { ! pidof load; }
for scheduler in rr:slice_ns=20ms fifo-centralized shinjuku:quantum=20ms layers linux-6.12 edf; do
    for k in 2 3; do
        for by in elevation sched-ext; do
            name="$scheduler on 1-$k by $by"
            rm -f /tmp/gate /tmp/moment
            all= tasks=
            late=batch soon=other
            [ $scheduler = edf ] && soon=deadline:1ms/20ms/20ms late=deadline:1ms/500ms/500ms
            # Six that compute begin 10 ms apart; one that goes first where the scheduler knows that comes when all CPUs are busy.
            for i in 1 2 3 4 5 6; do
                # A queue for each CPU: which threads share one is given, because it depends on where each slept before.
                case $scheduler in rr* | linux*) mask=$((2 << (i - 1) % k)) ;; *) mask=15 ;; esac
                load once c_$i 0 $(printf %x $mask) other 60 900000 ${i}0000 &
                all=$all,$! tasks="$tasks --task c_$i=$late"
            done
            load once c_s 0 $(case $scheduler in rr* | linux*) echo 2 ;; *) echo f ;; esac) other 60 5000 150000 &
            all=$all,$! tasks="$tasks --task c_s=$soon"
            attach $by $([ $by = elevation ] && echo 1 || echo 7) --scheduler $scheduler --cpus 1-$k $tasks --for 60s
            trace_on
            load go go 0 - other 0 100000
            check "$name: all threads come to their end" wait_for 30 gone
            wait_for 20 sh -c "! kill -0 $owner" || schedlab detach
            wait $owner
            check "$name: it ends well" [ $? = 0 ]
            cat attach.txt
            trace_off ${scheduler%%:*}.$k.$by.ftrace
        done
    done
done

# Two threads on CPU 1 that wake each other and block: the time of a hand-over is the run's by the number of times that they blocked.
blocked() { cat /proc/$1/status /proc/$2/status | awk '/^voluntary_ctxt/ { sum += $2 } END { print sum }'; }
# cost NAME: a line for the judge.
cost() {
    first=$(pidof load | tr ' ' '\n' | sort -n | head -1)
    second=$(pidof load | tr ' ' '\n' | sort -n | tail -1)
    before=$(blocked $first $second)
    from=$(cut -d' ' -f1 /proc/uptime)
    sleep 2
    to=$(cut -d' ' -f1 /proc/uptime)
    count=$(($(blocked $first $second) - before))
    echo "$1 $from $to $count" >>costs.txt
    check "$1: the two hand over ($count times from $from to $to)" [ $count -gt 100 ]
}
pair() {
    load pipe c_p 0 2 other 600 0 0 &
    all=,$!
    sleep 0.3
}
pair
cost kernel
killall -9 load
for by in elevation sched-ext; do
    pair
    taskset f schedlab attach --driver $by --scheduler fifo-per-cpu --cpus 1 --pid ${all#,} --starve-after 10s --for 600s --json >attach.txt 2>&1 &
    owner=$!
    all_managed() { [ "$(task list | grep c_p | grep -c "policy [127] ")" = 2 ]; }
    check "cost by $by: both are managed" wait_for 30 all_managed
    sleep 0.5
    cost $by
    schedlab detach >/dev/null
    wait $owner
    killall -9 load
    echo "$by $(tr -d '\n ' <attach.txt | sed 's/.*"agent_cpu_ns":\([0-9]*\).*/\1/') $(tr -d '\n ' <attach.txt | sed 's/.*"decisions":\([0-9]*\).*/\1/')" >>agents.txt
    cat attach.txt
done
# Four threads on CPU 1 that compute for 2 ms and sleep for 3: one waits nearly always when another blocks. How long is the CPU empty then?
for by in kernel elevation sched-ext; do
    all=
    for i in 1 2 3 4; do
        load sleeper c_$i 0 2 other 600 2000 3000 &
        all=$all,$!
    done
    if [ $by != kernel ]; then
        taskset f schedlab attach --driver $by --scheduler fifo-per-cpu --cpus 1 --pid ${all#,} --starve-after 10s --for 600s >attach.txt 2>&1 &
        owner=$!
        four_managed() { [ "$(task list | grep c_ | grep -c "policy [127] ")" = 4 ]; }
        check "sleepers by $by: all are managed" wait_for 30 four_managed
    fi
    trace_on
    sleep 1
    trace_off sleepers.$by.ftrace
    if [ $by != kernel ]; then
        schedlab detach >/dev/null
        wait $owner
        cat attach.txt
    fi
    killall -9 load
    wait_for 5 sh -c '! pidof load'
done
# A thread with SCHED_EXT that schedlab does not manage goes from the BPF part straight to the kernel's global queue, first in, first out.
load hog c_idle 0 2 idle 600 &
idle=$!
taskset f schedlab attach --driver sched-ext --scheduler fifo-per-cpu --cpus 2 --pid $idle --starve-after 10s --for 600s >attach.txt 2>&1 &
owner=$!
check "bare: the scheduler is loaded" wait_for 30 grep -q enabled /sys/kernel/sched_ext/state
kill -STOP $idle
sleep 0.5
load pipe c_p 0 2 other 600 0 0 &
sleep 0.3
task policy 'c_p*' ext
bare() { [ "$(task show 'c_p*' | grep -c "policy 7 ")" = 2 ]; }
check "bare: both have SCHED_EXT" wait_for 5 bare
sleep 0.5
pidof() { busybox pidof "$@" | tr ' ' '\n' | grep -vx $idle; }
cost bare
unset -f pidof
schedlab detach >/dev/null
wait $owner
cat attach.txt
killall -9 load
rm -f attach.txt
