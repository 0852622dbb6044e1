# Schedulers on two and on three managed CPUs: every thread gets its turn, wakeups are heard, the log repeats, nothing is left.
all=
for i in 1 2 3 4; do
    load hog m$i 0 - other 900 &
    all=$all,$!
done
for i in 5 6; do
    load sleeper m$i 0 - other 900 500 $((3000 + i * 10)) &
    all=$all,$!
done
all=${all#,}
sleep 0.3
part() { said "$1 +chosen +([1-9]|[0-9]+[.][1-9])"; }
for scheduler in rr fifo-centralized shinjuku layers linux-6.12 edf; do
    for cpus in 1-2 1-3; do
        name="$scheduler on $cpus"
        run schedlab attach --scheduler $scheduler --cpus $cpus --pid $all --for 8s --log calls
        check "$name: it ends well" [ $code = 0 ]
        # By first come, first served, and among threads of one layer or without deadlines, those without end keep their CPUs
        # until they are given back.
        case $scheduler in
            rr | shinjuku | linux-6.12)
                check "$name: wakeups are heard" said ' [1-9][0-9]* wakeups'
                for thread in m1 m2 m3 m4 m5 m6; do
                    check "$name: $thread gets a part of the CPU" part $thread
                done
                ;;
            *)
                for thread in m1 m2; do
                    check "$name: $thread gets a part of the CPU" part $thread
                done
                ;;
        esac
        run schedlab verify calls
        check "$name: the log gives the same decisions again" [ $code = 0 ]
        check "$name: nothing is left changed" wait_for 5 none_changed
    done
done

# Order: all but one are batch work. The sleeper that is not runs as soon as it wakes, on whatever CPU that is, though every CPU has a
# hog without end; its twin that is batch work waits for its turn, and comes to its next sleep later each time.
batch=
for i in 1 2 3 4 6; do batch="$batch --task m$i=batch"; done
run schedlab attach --scheduler layers --cpus 1-3 --pid $all $batch --for 8s --log calls
check "preemption: it ends well" [ $code = 0 ]
share() { awk -v name="$1" '$2 == name { print int($4 * 10) }' $last; }
check "preemption: the sleeper that waits for nobody has 1.3 times its twin's part" [ $(($(share m5) * 10)) -gt $(($(share m6) * 13)) ]
check "preemption: its twin gets its part all the same" part m6
run schedlab verify calls
check "preemption: the log gives the same decisions again" [ $code = 0 ]

# Fork, block and exit: a command whose children come and go on three CPUs, and their children, too.
run schedlab run --scheduler rr --cpus 1-3 --for 40s --log calls -- sh -c '
    for i in 1 2 3 4 5 6 7 8 9 10; do
        load forks f$i 0 - other 1 300 50 &
        load hog short$i 0 - other 0.2 &
    done
    wait'
check "forks: it ends with its command" [ $code = 0 ]
run schedlab verify calls
check "forks: the log gives the same decisions again" [ $code = 0 ]
check "forks: nothing is left changed" wait_for 5 none_changed

# The bound on waiting: first come, first served starves three of six hogs, which are released after it and run beside the managed ones'
# yield windows.
run schedlab attach --scheduler fifo-centralized --cpus 1-2 --pid $all --starve-after 1s --for 6s
check "starvation: it ends well" [ $code = 0 ]
check "starvation: threads are released after the bound" said 'released after a long wait: [1-9]'
check "starvation: nothing is left changed" wait_for 5 none_changed

# A thread keeps to the CPUs that it may use.
load hog only 0 4 other 900 &
only=$!
schedlab attach --scheduler rr --cpus 1-3 --pid $all,$only --for 100s >affinity.txt 2>&1 &
owner=$!
managed() { task show "$1" | grep -qE 'policy [12] '; }
check "affinity: the thread is managed" wait_for 20 managed only
elsewhere=0
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    [ "$(sed 's/.*) //' /proc/$only/stat | cut -d' ' -f37)" = 2 ] || elsewhere=$((elsewhere + 1))
    sleep 0.05
done
check "affinity: it was on CPU 2 at 20 of 20 looks ($elsewhere elsewhere)" [ $elsewhere = 0 ]

# Its control group allows other CPUs now: it runs there, and is given back with those.
mkdir -p /sys/fs/cgroup/two
echo 0-1 >/sys/fs/cgroup/two/cpuset.cpus
first=${all%%,*}
echo $first >/sys/fs/cgroup/two/cgroup.procs
sleep 1
check "cpuset: the run goes on" kill -0 $owner
on_01() { case $(sed 's/.*) //' /proc/$first/stat | cut -d' ' -f37) in 0 | 1) true ;; *) false ;; esac; }
check "cpuset: the thread is on one of its CPUs" wait_for 5 on_01
run schedlab detach
wait $owner
check "cpuset: nothing of it is real-time any more" wait_for 10 sh -c "! task list | grep -E 'm[1-6]|only' | grep -qE 'policy [12] '"
echo $first >/sys/fs/cgroup/cgroup.procs
rmdir /sys/fs/cgroup/two
kill -9 $only

# A managed CPU goes away and comes back.
schedlab attach --scheduler rr --cpus 1-3 --pid $all --for 100s >hotplug.txt 2>&1 &
owner=$!
check "hotplug: the threads are managed" wait_for 20 managed m1
echo 0 >/sys/devices/system/cpu/cpu3/online
sleep 1
cat hotplug.txt
echo 1 >/sys/devices/system/cpu/cpu3/online
sleep 1
schedlab detach
check "hotplug: the run ends" wait_for 20 sh -c "! kill -0 $owner"
cat hotplug.txt
check "hotplug: nothing is real-time any more" wait_for 10 sh -c "! task list | grep -E 'm[1-6]' | grep -qE 'policy [12] '"

# Everything is killed under a scheduler with classes.
schedlab attach --scheduler layers --cpus 1-3 --pid $all --for 100s >killed.txt 2>&1 &
check "kill: the threads are managed" wait_for 20 managed m1
killall -9 schedlab
sleep 1
run schedlab restore
check "kill: nothing is real-time any more" wait_for 10 sh -c "! task list | grep -E 'm[1-6]' | grep -qE 'policy [12] '"
