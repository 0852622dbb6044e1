# The sched_ext driver dies or falls silent: kill -9 of the owner again and again, of everything, a stopped owner, all of it stopped. The threads go
# on, and get their policy back.
driver="--driver sched-ext"
LIMIT=90
# The shell and what it starts are not beside the managed threads: fair threads would go first there.
confine_shell 9
managed() { [ "$(task show 'd?' | grep -c 'policy 7 ')" = 2 ]; }
none_managed() { ! task show 'd?' | grep -q 'policy 7 '; }
disabled() { grep -q disabled /sys/kernel/sched_ext/state; }
start() {
    taskset f schedlab attach $driver --scheduler rr --cpus 1-2 --pid $a,$b --for 600s >owner.txt 2>&1 &
    owner=$!
    wait_for 60 managed
}

# Two that run without end on two CPUs, and say at their end for how long they did not.
load gap d1 0 f other 600 >gap1.txt & a=$!
load gap d2 0 f other 600 >gap2.txt & b=$!
sleep 0.3
for i in $(seq 100); do
    check "kill $i: the threads are managed" start
    # At another moment of the agent's each time.
    sleep 0.$((i * 37 % 90 + 10))
    kill -9 $owner
    check "kill $i: the threads have their policy again" wait_for 10 none_managed
    check "kill $i: the kernel has no scheduler" wait_for 10 disabled
done

# Everything of schedlab is killed at once.
check "all: the threads are managed" start
killall -9 schedlab
sleep 1
run schedlab restore
check "all: restore gives the policy back" wait_for 10 none_changed

# The owner alone is stopped: the guardian ends it.
check "stopped: the threads are managed" start
kill -STOP $owner
check "stopped: the guardian gives everything back" wait_for 10 none_changed

# Owner and guardians are stopped: none of them decides, and the kernel's part serves the threads.
check "silence: the threads are managed" start
kill -STOP $(pidof schedlab)
sleep 1
before1=$(cut -d' ' -f1 /proc/$a/schedstat) before2=$(cut -d' ' -f1 /proc/$b/schedstat)
load hog late 0 f other 0.5
sleep 3
check "silence: d1 goes on" [ $(($(cut -d' ' -f1 /proc/$a/schedstat) - before1)) -gt 1000000000 ]
check "silence: d2 goes on" [ $(($(cut -d' ' -f1 /proc/$b/schedstat) - before2)) -gt 1000000000 ]
check "silence: the scheduler is still the kernel's" grep -q enabled /sys/kernel/sched_ext/state
killall -9 schedlab
killall -CONT schedlab 2>/dev/null
sleep 1
run schedlab restore
check "silence: everything is given back" wait_for 10 none_changed

# Whatever happened: no thread stood still for more than 100 ms.
wait $a $b
cat gap1.txt gap2.txt
short() { [ "$(sed 's/.*gap \([0-9]*\) us/\1/' $1)" -lt 100000 ]; }
check "no gap of d1 above 100 ms" short gap1.txt
check "no gap of d2 above 100 ms" short gap2.txt
