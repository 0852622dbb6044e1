# `confirm` with both drivers: every scheduler has rounds by elevation and rounds by sched_ext, each predicted behind that driver's costs.
confine_shell 1
cat >both.sh <<'END'
load hog ca 0 - other 600 &
load hog cb 0 - other 600 &
load sleeper cs 0 - other 600 300 3000 &
wait
END
LIMIT=200
run taskset f schedlab confirm --driver both --scheduler rr:slice_ns=5ms,layers --rounds 1 --for 1s --cpus 1 -- sh both.sh
check "it ends, trusted or not" [ $code = 0 -o $code = 3 ]
check "rr by elevation" said 'rr:slice_ns=5ms.*\(by schedlab run;'
check "rr by sched_ext" said 'rr:slice_ns=5ms.*\(by schedlab run --driver sched-ext;'
check "layers by elevation" said 'layers.*\(by schedlab run;'
check "layers by sched_ext" said 'layers.*\(by schedlab run --driver sched-ext;'
check "the costs of one driver" said "with the driver's costs on this machine"
check "... and of the other" said "with the sched_ext driver's costs on this machine"
run taskset f schedlab confirm --driver sched-ext --scheduler rr --rounds 1 --for 500ms --cpus 1 --json -- sh both.sh
check "JSON: how" said '"how": *"sched-ext"'
check "JSON: its costs" said '"driver_sched_ext": *\{'
check "JSON: elevation was not asked for" said '"driver": *null'
check "nothing is left changed" wait_for 5 none_changed
mount -t tmpfs none /sys/kernel/btf
run schedlab confirm --driver both --scheduler rr --rounds 1 --cpus 1 -- sh both.sh
check "what sched_ext lacks is said before the first round" said 'error: --driver sched-ext cannot be used here: .*no type information'
check "... with exit code 2" [ $code = 2 ]
umount /sys/kernel/btf
