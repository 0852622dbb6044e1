# Booted twice under a virtual clock: the recording and the console must be the same, bit by bit.
for i in 1 2 3; do load hog h$i 0 - other 100 & done
for i in 1 2 3 4; do load sleeper s$i 0 - other 100 500 $((4000 + i * 130)) & done
sleep 0.5
run task with nice=-20 schedlab record --no-calibration -o same.slt --for 1s --all
check "the recording is made" [ $code = 0 ]
