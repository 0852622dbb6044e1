# doctor names every way to record, each works for root, and what it advises is for this kernel.
run schedlab doctor
check "doctor ends well" [ $code = 0 ]
for way in tracepoints switches own; do
    check "doctor: $way works" said "recording by $way: works"
done
case $(uname -r) in
    5.*)
        check "doctor: bpf says which kernel it needs" said 'need Linux 5\.18 or later'
        check "doctor: root is not told to give itself rights" said_not 'setcap'
        ;;
    *) check "doctor: bpf works" said 'recording by bpf: works' ;;
esac
case $(uname -r) in
    7.*) check "doctor: HRTICK is on" said 'HRTICK is on' ;;
    *) check "doctor: HRTICK is off" said 'HRTICK is off' ;;
esac
check "doctor: no fair server of one CPU alone is switched off" said_not 'fair_server/cpu0/runtime'

# The recorder keeps huge pages away from itself, not from what it records.
# (PREEMPT_RT has none at all: CONFIG_TRANSPARENT_HUGEPAGE depends on !PREEMPT_RT.)
usual=$(sed -n 's/THP_enabled:[^0-9]*//p' /proc/self/status)
run schedlab record -o own.slt --backend own -- grep THP_enabled /proc/self/status
check "a recorded command has its huge pages" said "THP_enabled:.*$usual"
schedlab record -o all.slt --for 3s --all --no-calibration >record.txt 2>&1 &
recorder=$!
check "the recorder has none" wait_for 3 without_huge_pages $recorder
wait $recorder
