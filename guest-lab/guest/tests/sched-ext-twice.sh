# A run by the sched_ext driver, its log and the kernel's own trace are the same in a second boot, bit by bit.
confine_shell 1
rm -f /tmp/gate /tmp/moment
all=
for i in 1 2 3 4 5 6; do
    load once c_$i 0 f other 60 200000 ${i}0000 &
    all=$all,$!
done
load once c_s 0 f other 60 5000 150000 30000 &
all=$all,$!
taskset f schedlab attach --driver sched-ext --scheduler shinjuku:quantum=5ms --cpus 1-3 --pid ${all#,} --for 60s --starve-after 2s --log calls >attach.txt 2>&1 &
owner=$!
managed() { [ "$(task list | grep c_ | grep -c 'policy 7 ')" = 7 ]; }
check "all threads are managed" wait_for 60 managed
name=twice
trace_on
load go go 0 - other 0 100000
gone() { ! pidof load; }
check "all threads come to their end" wait_for 30 gone
wait_for 20 sh -c "! kill -0 $owner" || schedlab detach
wait $owner
check "it ends well" [ $? = 0 ]
cat attach.txt
trace_off play.ftrace
run schedlab verify calls
check "the log gives the same decisions again" [ $code = 0 ]
