# The body of the conformance tests (crates/cli/tests/conformance) for schedulers on two and three managed CPUs. The kernel's own trace
# is the witness: what must hold of it is in guest-lab/src/guest/conformance.rs, by the names of the threads. Test sched-ext-conformance plays
# it with what it sets before: the driver, the policy of managed threads,
# and, where the shell is confined to a CPU because fair threads go before managed ones, the CPUs of the play's threads.
driver=${driver:-} policy=${policy:-1} any=${any:--} free=${free:-}
# start KIND NAME [A B [C]]: a thread of the play, in $all; times in ms.
start() {
    kind=$1 thread=c_$2 use=$3 begin=$4 more=$5
    load $kind $thread 0 $any other 60 ${use}000 ${begin}000 $more >>said.txt 2>&1 &
    all=$all,$!
}
# play NAME OPTIONS...: manages what was started, opens the gate, and waits until all have ended.
play() {
    count=$(echo $all | tr -cd , | wc -c)
    $free schedlab attach $driver --scheduler $scheduler --cpus $cpus --pid ${all#,} --for 60s --log calls "$@" >attach.txt 2>&1 &
    owner=$!
    managed() { [ "$(task list | grep c_ | grep -cE "policy $policy ")" = $count ]; }
    check "$name: all $count threads are managed" wait_for 60 managed
    trace_on
    load go go 0 - other 0 100000
    gone() { ! pidof load; }
    check "$name: all threads come to their end" wait_for 30 gone
    wait_for 20 sh -c "! kill -0 $owner" || schedlab detach
    wait $owner
    code=$?
    cat attach.txt
    check "$name: it ends well" [ $code = 0 ]
    last=attach.txt
    run schedlab verify calls
    check "$name: the log gives the same decisions again" [ $code = 0 ]
    check "$name: nothing is left changed" wait_for 5 none_changed
}
for scheduler in rr:slice_ns=5ms fifo-centralized shinjuku:quantum=100ms layers linux-6.12 edf; do
    for k in 2 3; do
        cpus=1-$k
        mask=$([ $k = 2 ] && echo 6 || echo e)
        short=${scheduler%%:*}
        name="$short on $cpus"
        rm -f /tmp/gate /tmp/moment said.txt
        all= tasks=
        # Who goes first is declared: by class, and for edf by deadline.
        soon=other late=batch
        [ $scheduler = edf ] && soon=deadline:1ms/20ms/20ms late=deadline:1ms/500ms/500ms
        declare() { tasks="$tasks --task c_$1=$2"; }
        # Order: all CPUs are busy, three come one after the other.
        for i in $(seq $k); do start once oh$i $((55 + 5 * i)) $i; done
        start once oa 5 15
        start once ob 5 25
        start once oc 5 35
        # Preemption: all CPUs are busy with late work, one that goes first comes.
        for i in $(seq $k); do
            start once ph$i 80 $((200 + i))
            declare ph$i $late
        done
        start once pl 5 230
        declare pl $soon
        # Turns: twice as many as CPUs.
        for i in $(seq $((2 * k))); do
            start once t$i 40 $((400 + i))
            [ $scheduler = edf ] || declare t$i batch
        done
        # Block: one sleeps between, another one takes its CPU, and has to give it back where the first goes before it.
        start once ba 10 900 30000
        declare ba $soon
        for i in $(seq $k); do
            start once bh$i 80 $((901 + i))
            declare bh$i $late
        done
        # Exit: twice as many as CPUs, which end.
        for i in $(seq $k); do
            start once eh$i 20 $((1150 + i))
            start once ew$i 10 $((1160 + i))
        done
        # Fork, and a thread that narrows its own affinity beside busy CPUs.
        start family fp 100 1300
        for i in $(seq $k); do start once gh$i 150 $((1600 + i)); done
        start narrow ga 20 1600 $mask
        start narrow gb 5 1630 $mask
        play $tasks --starve-after 2s
        cat said.txt
        check "$name: both keep the affinity that they gave themselves" [ $(grep -c 'as it asked: yes' said.txt) = 2 ]
        trace_off $short.$k.ftrace
        # Affinity under `run`: the command's children narrow themselves as soon as they begin, before or after they are taken on.
        trace_on
        run $free schedlab run $driver --scheduler $scheduler --cpus $cpus --for 20s -- sh -c "
            for i in 1 2 3 4; do
                load narrow c_na\$i 0 - other 60 \$((i * 5000 - 5000)) -1 $mask &
                load narrow c_nb\$i 0 - other 60 \$((i * 300)) -1 $mask &
            done
            wait"
        check "$name: run: it ends well" [ $code = 0 ]
        check "$name: run: all eight keep the affinity that they gave themselves" [ $(grep -c 'as it asked: yes' $last) = 8 ]
        trace_off $short.$k.run.ftrace
        # The bound on waiting.
        rm -f /tmp/gate /tmp/moment
        all=
        for i in $(seq $k); do start once sh$i 900 $i; done
        start once sw 20 20
        play --starve-after 200ms
        trace_off $short.$k.starved.ftrace
    done
done
