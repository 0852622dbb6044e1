# What ends a run of latency is named rightly: nothing is throttled in its first second, and a thread that still ran did not
# return to user space.
load hog h1 0 - other 300 &
load hog h2 0 - other 300 &
for policy in fifo:80 other; do
    for i in 1 2; do
        run schedlab latency --policy $policy --break 1us --for 5s
        check "$policy, $i: it names a cause" said 'are laid to'
        [ $policy = other ] || check "$policy, $i: nothing is throttled" said_not 'throttled'
    done
done
# A run that begins late has no samples of its beginning: four threads on one CPU with a hog that goes first for a while.
load hog above 0 2 fifo:90 1 &
sleep 0.2
run schedlab latency --cpus 1 --threads 2 --policy fifo:50 --interval 1ms --for 1s --json
check "the run ends well" [ $code = 0 ]
# khugepaged keeps a process's memory lock for seconds, which would count as lateness.
schedlab latency --cpus 1 --policy fifo:50 --for 3s >pages.txt 2>&1 &
measurer=$!
check "huge pages stay away from the measuring process" wait_for 3 without_huge_pages $measurer
wait $measurer
