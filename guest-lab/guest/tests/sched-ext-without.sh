# A kernel without sched_ext: the driver is refused with the reason, the command is not started, and doctor says so.
run schedlab doctor
check "doctor: no, and since which kernel" said 'sched_ext: no: Linux .*(came with 6.12|CONFIG_SCHED_CLASS_EXT)'
run schedlab run --driver sched-ext --scheduler rr --cpus 1 -- touch started
check "run: refused with the reason" said '(came with 6.12|CONFIG_SCHED_CLASS_EXT)'
check "run: ... with exit code 2" [ $code = 2 ]
check "run: the command was not started" [ ! -e started ]
check "nothing is left changed" none_changed
