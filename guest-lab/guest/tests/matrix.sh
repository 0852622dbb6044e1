# The table of latency, idle and loaded, SCHED_OTHER and SCHED_FIFO: `schedlab latency merge` puts those of several kernels together.
LIMIT=300 run schedlab latency --matrix --for 2s --rounds 5 --groups 2 --json -o matrix.json
check "the table is measured" [ -s matrix.json ]
run schedlab latency merge here=matrix.json
check "it can be merged" [ $code = 0 ]
load hog beside 0 - other 60 &
run schedlab latency --policy fifo:49 --break 300us --for 20s
check "the first late wakeup has a cause, or there is none" [ $code -le 1 ]
