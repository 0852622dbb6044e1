# doctor names every way to record, and every one works for root.
run schedlab doctor
check "doctor ends well" [ $code = 0 ]
for way in bpf tracepoints switches own; do
    check "doctor: $way works" said "recording by $way: works"
done
