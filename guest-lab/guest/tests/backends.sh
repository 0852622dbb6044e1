# Which ways to record work, by who asks and under which limits: a line each in table.txt. Root without limits must have all.
try() {
    who=$1
    shift
    for way in bpf tracepoints switches own; do
        scope="--all --for 300ms"
        [ $way = own ] && scope="-- load sleeper own 0 - other 1 500 2000"
        rm -f /tmp/t.slt
        answer=yes
        timeout 60 "$@" --backend $way $scope >/tmp/t.txt 2>&1 || answer="no: $(grep -m1 '^error:' /tmp/t.txt || grep -m1 . /tmp/t.txt)"
        echo "$who|$way|$answer" | tee -a table.txt
    done
}
record="schedlab record -o /tmp/t.slt --no-calibration"
level=/proc/sys/kernel/perf_event_paranoid
usual=$(cat $level)
try "root" $record
umount /sys/kernel/debug/tracing 2>/dev/null
umount /sys/kernel/tracing
try "root, tracefs not mounted" $record
mount -t tracefs tracefs /sys/kernel/tracing
mount -t tmpfs none /sys/kernel/btf
try "root, no BTF" $record
umount /sys/kernel/btf
cat >/tmp/contained.sh <<'EOF'
mount -o remount,ro /sys
umount /sys/kernel/debug
umount /sys/kernel/tracing
exec "$@"
EOF
try "root in a container (/sys read-only)" unshare -m sh /tmp/contained.sh $record
for paranoid in $usual 2; do
    echo $paranoid >$level
    try "CAP_BPF and CAP_PERFMON, paranoid $paranoid" task with user=1000 caps=38,39 $record
done
for paranoid in -1 0 1 2 3 4; do
    echo $paranoid >$level
    try "user, paranoid $paranoid" task with user=1000 $record
done
echo $usual >$level
echo integrity >/sys/kernel/security/lockdown
try "root, lockdown integrity" $record
echo confidentiality >/sys/kernel/security/lockdown
try "root, lockdown confidentiality" $record
check "every question has an answer" [ "$(wc -l <table.txt)" = 56 ]
check "root has tracepoints, switches and own" [ "$(grep -cE '^root\|(tracepoints|switches|own)\|yes' table.txt)" = 3 ]
