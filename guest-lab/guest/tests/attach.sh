# Threads that run already, and a command with its children, under a scheduler on three CPUs, at the kernel's own level of
# perf_event_paranoid and at 2: wakeups are heard, sleepers get the CPU, nothing is left behind. It is the first test after a
# boot: the kernel's random generator is not ready in most of its first run, and nothing in a real-time class may wait for it.
level=/proc/sys/kernel/perf_event_paranoid
load hog at1 0 - other 300 & a=$!
load hog at2 0 - other 300 & b=$!
load sleeper at3 0 - other 300 500 3000 & c=$!
load sleeper at4 0 - other 300 500 3100 & d=$!
sleep 0.3
for paranoid in $(cat $level) 2; do
    echo $paranoid >$level
    for scheduler in rr fifo-centralized; do
        name="$scheduler, paranoid $paranoid"
        run schedlab attach --scheduler $scheduler --cpus 1-3 --pid $a,$b,$c,$d --for 4s
        check "$name: it ends well" [ $code = 0 ]
        check "$name: wakeups are heard" said ' [1-9][0-9]+ wakeups'
        for sleeper in at3 at4; do
            check "$name: $sleeper gets a part of the CPU" said "$sleeper +chosen +([1-9]|[1-9][0-9])[.]"
        done
        check "$name: nothing is left changed" none_changed
    done
    run schedlab run --scheduler rr --cpus 1-3 --for 4s -- sh -c 'for i in 1 2 3; do load hog busy$i 0 - other 2 & done; wait'
    check "run, paranoid $paranoid: it ends well" [ $code = 0 ]
    for i in 1 2 3; do
        check "run, paranoid $paranoid: child $i is managed" said "busy$i +chosen +([1-9]|[1-9][0-9])[.]"
    done
done
