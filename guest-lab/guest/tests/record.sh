# Each way to record, beside the kernel's own trace: the host compares them switch by switch.
load hog hogA 0 - other 300 &
load hog hogB 5 - other 300 &
load sleeper sleepy 0 - other 300 2000 8000 &
load pipe pip 0 - other 300 300 300 &
sleep 0.5
for way in bpf tracepoints switches; do
    trace=/sys/kernel/tracing/instances/x
    mkdir -p $trace
    echo mono >$trace/trace_clock
    echo 20000 >$trace/buffer_size_kb
    echo 1 >$trace/events/sched/sched_switch/enable
    echo 1 >$trace/tracing_on
    run schedlab record -o $way.slt --for 1s --all --no-calibration --backend $way
    check "$way: the recording is made" [ $code = 0 ]
    echo 0 >$trace/tracing_on
    check "$way: ftrace lost nothing" sh -c "! grep -h overrun $trace/per_cpu/cpu*/stats | grep -qv ': 0$'"
    cat $trace/trace >$way.ftrace
    echo 0 >$trace/events/enable
    rmdir $trace
    run schedlab show $way.slt
    check "$way: it can be shown" [ $code = 0 ]
done
run schedlab record -o own.slt --for 1s --backend own -- load sleeper own 0 - other 1 1000 2000
check "own: the recording is made" [ $code = 0 ]
