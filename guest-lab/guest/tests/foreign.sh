# A sched_ext scheduler that is not schedlab's (the kernel's example scx_cpu0: every task waits for CPU 0): what a recording under it
# says, the gate of the guide against the kernel's own scheduler, and what compare thinks of it. The files are in /foreign.
class=/sys/kernel/sched_ext
run schedlab doctor
check "doctor: sched_ext is there, and no scheduler is loaded" said 'sched_ext.*active: none'
cat >load.sh <<'END'
for i in 1 2 3; do load hog hog$i 0 - other 2 & done
load periodic server 0 - other 2 300 3000 &
wait
END
export LIMIT=300
run sh /foreign/sched-ext-gate.sh /foreign/scx_cpu0 'sh load.sh' 'server latency p50 > +100%' 3 out
check "the gate fails" [ $code = 1 ]
check "it says under what each side was recorded" said "Before was recorded under the kernel's own scheduler, after under the"
check "and by its name" said 'sched_ext scheduler cpu0'
check "the scheduler is gone" grep -q disabled $class/state
export LIMIT=60
run schedlab show out/after/1.slt --blame
check "show: a hog delays the server" said 'server.* hog'
check "show: names the scheduler" said 'sched_ext: cpu0 \(enabled, for every fair task, number [0-9]+ since boot\)'
run schedlab show out/after/1.slt --json
check "show --json: the scheduler" said '"scheduler":"cpu0"'
run schedlab show out/before/1.slt --json
check "show --json: none before" said '"sched_ext":null'
run schedlab compare out/after/1.slt --seeds 1
check "compare: not trusted" [ $code = 3 ]
check "compare: says why" said 'sched_ext scheduler cpu0'
# It is loaded while threads are recorded.
for i in 1 2 3; do load hog late$i 0 - other 30 & done
schedlab record -o change.slt --all --for 60s --no-calibration >record.txt 2>&1 &
recorder=$!
check "the recorder begins" wait_for 30 grep -q '^recording by' record.txt
/foreign/scx_cpu0 >/dev/null 2>&1 &
scheduler=$!
check "the scheduler comes up" wait_for 20 grep -q enabled $class/state
sleep 1
kill -INT $recorder
wait $recorder
kill $scheduler
check "the scheduler ends" wait_for 20 grep -q disabled $class/state
run schedlab show change.slt
check "a change while it was recorded is said" said 'changed during the recording: none at its beginning'
run schedlab show change.slt --conservation
check "show: tasks waited while CPUs on which they may run were idle" said 'late[123]'
cp out/before/1.slt before.slt
cp out/after/1.slt after.slt
rm -r out
