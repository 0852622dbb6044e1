# A thread with SCHED_EXT (policy 7) keeps it: under attach, and when everything is killed.
load hog e1 0 - other 300 & a=$!
load hog e2 0 - other 300 & b=$!
sleep 0.3
task policy e1 ext
extended() { task show e1 | grep -q 'policy 7 '; }
managed() { task show e1 | grep -qE 'policy [12] '; }
check "the kernel gives SCHED_EXT" extended
run schedlab attach --scheduler rr --cpus 1-3 --pid $a,$b --for 1s
check "attach ends well" [ $code = 0 ]
check "the thread has SCHED_EXT again" extended
schedlab attach --scheduler rr --cpus 1-3 --pid $a,$b --for 100s >all.txt 2>&1 &
check "the thread is managed" wait_for 20 managed
killall -9 schedlab
sleep 1
run schedlab restore
check "all is killed: restore gives SCHED_EXT back" wait_for 5 extended
