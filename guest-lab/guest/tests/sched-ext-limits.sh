# The sched_ext driver where it cannot go on or cannot begin: the kernel's watchdog unloads it, there is no BTF, the kernel is locked down.
driver="--driver sched-ext"
load hog w1 0 - other 600 & pid=$!
sleep 0.3
policy() { task show w1 | grep -q "policy $1 "; }

# A real-time thread keeps the managed CPU, and the kernel's server for sched_ext, which would give the thread 50 ms of each second, is off.
server=/sys/kernel/debug/sched/ext_server/cpu1/runtime
check "watchdog: the kernel has a server for sched_ext" [ -w $server ]
echo 0 >$server
echo -1 >/proc/sys/kernel/sched_rt_runtime_us
schedlab attach $driver --scheduler rr --cpus 1 --pid $pid --starve-after 300s --for 600s >watchdog.txt 2>&1 &
owner=$!
check "watchdog: the thread is managed" wait_for 30 policy 7
load hog rt1 0 2 fifo:50 60 &
hog=$!
check "watchdog: the kernel unloads the scheduler" wait_for 40 grep -q disabled /sys/kernel/sched_ext/state
check "watchdog: the command ends" wait_for 20 sh -c "! kill -0 $owner"
wait $owner
check "watchdog: ... with exit code 2" [ $? = 2 ]
cat watchdog.txt
last=watchdog.txt
check "watchdog: it says that the kernel ended it, and why" said 'the kernel ended the scheduler: .*(stall|failed to run)'
last=/tmp/last
check "watchdog: the thread has its policy again" wait_for 10 policy 0
kill -9 $hog
check "watchdog: nothing is left changed" wait_for 10 none_changed

# The kernel's type information is hidden, as on one that was built without it.
mount -t tmpfs none /sys/kernel/btf
run schedlab attach $driver --scheduler rr --cpus 1 --pid $pid --for 1s
check "no BTF: refused by name" said 'sched-ext cannot be used here: Linux 7.* has sched_ext but no type information'
check "no BTF: ... with exit code 2" [ $code = 2 ]
run schedlab doctor
check "no BTF: doctor says it" said 'sched_ext: no.*no type information'
umount /sys/kernel/btf

# There is no way back from it.
check "lockdown: the kernel takes it" sh -c 'echo confidentiality >/sys/kernel/security/lockdown'
run schedlab attach $driver --scheduler rr --cpus 1 --pid $pid --for 1s
check "lockdown: refused by name" said 'sched-ext cannot be used here: .*lockdown'
check "lockdown: ... with exit code 2" [ $code = 2 ]
run schedlab doctor
check "lockdown: doctor says it" said 'sched_ext: no.*lock'
check "nothing was changed" none_changed
