# The sched_ext driver: shares by turns on one, two and three CPUs, children, nice values, affinities, a CPU that goes away, fair load beside, one
# scheduler at a time; the log gives the same decisions again, and nothing is left.
driver="--driver sched-ext"
LIMIT=90
pids= tasks=
for i in 1 2 3 4 5 6; do
    load hog m$i 0 - other 2000 &
    pids=$pids,$!
done
pids=${pids#,}
first=${pids%%,*}
sleep 0.3
policy() { task show "$1" | grep -q "policy $2 "; }
# chosen NAME LOW HIGH: its share in tenths of a per cent of the run, which also holds the beginning and the end.
chosen() { awk -v name="$1" -v low=$2 -v high=$3 '$2 == name { share = $4 * 10; found = 1 } END { exit !(found && share >= low && share <= high) }' $last; }
# equal POINTS: each hog's share is within so many points of the mean, and together they had at least the time that was asked for.
equal() { awk -v points=$1 '$2 ~ /^m[1-6]$/ && $3 == "chosen" { share[n++] = $4; sum += $4 }
    END { if (n != 6) exit 1; for (i in share) if (share[i] > sum / n + points || share[i] < sum / n - points) exit 1; exit !(sum > 40) }' $last; }

run schedlab doctor
check "doctor: the kernel has it, and none is active" said 'sched_ext: yes .*active: none'

# Six hogs have equal shares of three, two and one CPU.
for scheduler in rr:slice_ns=20ms shinjuku:quantum=5ms; do
    for cpus in 1-3 1-2 1; do
        name="$scheduler on $cpus"
        run schedlab attach $driver --scheduler $scheduler --cpus $cpus --pid $pids --starve-after 1s --for 6s --log calls
        check "$name: it ends well" [ $code = 0 ]
        check "$name: the shares are equal within 2 points" equal 2
        check "$name: nothing is lost" said ' 0 events lost'
        run schedlab verify calls
        check "$name: the log gives the same decisions again" [ $code = 0 ]
        check "$name: nothing is left changed" wait_for 5 none_changed
    done
done

load sleeper s1 0 - other 2000 500 3000 &
sleeper=$!
# A sleeper wakes, is heard, and gets the CPU by Credit2's credits; the log repeats.
run schedlab attach $driver --scheduler xen-credit2 --cpus 1-2 --pid $pids,$sleeper --starve-after 1s --for 6s --log calls
check "credit2: it ends well" [ $code = 0 ]
check "credit2: wakeups are heard" said ' [1-9][0-9][0-9]+ wakeups'
for i in 1 2 3 4 5 6; do check "credit2: m$i has a part" chosen m$i 100 360; done
run schedlab verify calls
check "credit2: the log gives the same decisions again" [ $code = 0 ]
kill -9 $sleeper

# Children and theirs, which come and go. The hogs, which are fair now, would have the CPUs: they stand still.
task kill 'm?' 19
run schedlab run $driver --scheduler rr --cpus 1-3 --starve-after 1s --for 60s --log calls -- sh -c '
    for i in 1 2 3 4; do
        load forks f$i 0 - other 1 300 50 &
        load hog short$i 0 - other 1 &
    done
    wait'
check "fork: it ends with its command" [ $code = 0 ]
for i in 1 2 3 4; do check "fork: child short$i is managed" said "short$i +chosen"; done
run schedlab verify calls
check "fork: the log gives the same decisions again" [ $code = 0 ]
check "fork: nothing is left changed" wait_for 5 none_changed
task kill 'm?' 18

# While it runs: a nice value, an affinity within and one outside of the managed CPUs, a CPU that goes and comes, a second scheduler.
schedlab attach $driver --scheduler linux-6.12 --cpus 1-3 --pid $pids --starve-after 2s --for 600s >long.txt 2>&1 &
owner=$!
check "changes: the threads are managed" wait_for 60 policy m6 7
ran() { cut -d' ' -f1 /proc/$1/schedstat; }
before=$(ran $first)
task nice m1 10
sleep 4
got=$((($(ran $first) - before) / 1000000))
# Six hogs on three CPUs: 2 s of 4 for each of equal weight; one of nice 10 has a tenth of the others' weight.
check "nice: m1 has less of the CPU than its equals ($got ms of 4 s)" [ $got -lt 1500 ]
task cpus m2 2
sleep 1
elsewhere=0
second=$(pidof load | tr ' ' '\n' | while read -r pid; do grep -q '^m2$' /proc/$pid/comm && echo $pid; done)
for i in 1 2 3 4 5 6 7 8 9 10; do
    [ "$(sed 's/.*) //' /proc/$second/stat | cut -d' ' -f37)" = 1 ] || elsewhere=$((elsewhere + 1))
    sleep 0.05
done
check "affinity: m2 was on CPU 1 at 10 of 10 looks ($elsewhere elsewhere)" [ $elsewhere = 0 ]
task cpus m3 1
check "affinity: m3, which left the managed CPUs, has its own policy again" wait_for 5 policy m3 0
check "affinity: the others stay managed" policy m4 7
echo 0 >/sys/devices/system/cpu/cpu3/online
sleep 2
before=$(ran $first)
sleep 3
check "hotplug: the run goes on without CPU 3" kill -0 $owner
check "hotplug: m1 goes on without CPU 3" [ $(($(ran $first) - before)) -gt 0 ]
echo 1 >/sys/devices/system/cpu/cpu3/online
sleep 1
check "hotplug: the scheduler is still the kernel's" grep -q enabled /sys/kernel/sched_ext/state
run schedlab attach $driver --scheduler rr --cpus 1 --pid $first --for 1s
check "a second scheduler is refused, and the first one named" said 'sched_ext scheduler schedlab is active'
check "... with exit code 2" [ $code = 2 ]
schedlab detach >/dev/null
check "changes: the run ends" wait_for 20 sh -c "! kill -0 $owner"
cat long.txt
check "nice: m1 keeps the value that it was given" sh -c "task show m1 | grep -q 'policy 0 .*nice 10'"
task cpus m2 f
task cpus m3 f
task nice m1 0
check "changes: nothing is left changed" wait_for 5 none_changed

for i in 2 3 4 5 6; do task kill m$i 19; done
# Fair load beside: half of a managed CPU and more is refused, less is told.
load hog fair1 0 2 other 60 &
hog=$!
sleep 0.5
run schedlab attach $driver --scheduler rr --cpus 1 --pid $first --for 2s
check "fair load: refused, with its share and its name" said '% of CPU 1 went to thread [0-9]+ \(fair1\)'
check "fair load: ... with exit code 2" [ $code = 2 ]
kill -9 $hog
load periodic fair2 0 2 other 60 500 10000 &
sleep 0.5
run schedlab attach $driver --scheduler rr --cpus 1 --pid $first --starve-after 2s --for 4s
check "fair load: less is told before" said 'warning: [0-9]+ % of CPU 1 goes to thread [0-9]+ \(fair2\)'
check "fair load: the run goes on" [ $code = 0 ]
check "fair load: how long it kept the CPU is told" said 'for ([1-9]|[1-9][0-9])[.][0-9] % of a CPU'
kill -9 $(pidof load | tr " " "\n" | while read -r pid; do grep -q "^fair2$" /proc/$pid/comm && echo $pid; done)
# It comes up while the run goes on.
sleep 1
schedlab attach $driver --scheduler rr --cpus 1 --pid $first --starve-after 10s --for 600s >later.txt 2>&1 &
owner=$!
check "fair load later: m1 is managed" wait_for 30 policy m1 7
check "fair load later: nothing is told before" sh -c '! grep -q warning later.txt'
load hog fair3 0 2 other 600 &
hog=$!
check "fair load later: it is told while the run goes on" wait_for 20 grep -qE 'warning: [0-9]+ % of CPU 1 goes to thread [0-9]+ .fair3' later.txt
check "fair load later: the run goes on" kill -0 $owner
kill -9 $hog
schedlab detach >/dev/null
wait $owner
cat later.txt
