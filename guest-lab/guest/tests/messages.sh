# What messages cost and lose: 8,000 messages of 100 bytes from four threads to four, through Unix sockets and
# through pipes, without and with their facts.
schedlab doctor >doctor.txt 2>/dev/null
for way in socket pipe; do
    for mode in off on; do
        run schedlab record -o $way-$mode.slt --messages $mode --no-calibration -- \
            schedlab stress --groups 1 --fds 4 --messages 500 --thread --$way
        # 3: facts are missing, and the recorder says how many.
        check "$way: the recording with messages $mode is made" [ $code = 0 -o $code = 3 ]
    done
done
