# The same sched_ext object in this kernel and in the simulator: what is played is in /objects/plays.sh
# (guest-lab/src/guest/objects/plays.rs), which calls `play`; guest-lab/src/guest/objects.rs plays it in the simulator and judges.
LIMIT=60
cp /sys/kernel/btf/vmlinux vmlinux.btf
cp /objects/*.bpf.o .
for cpu in /sys/devices/system/cpu/cpu[0-9]*; do
    echo "${cpu##*/}: threads $(cat $cpu/topology/thread_siblings_list), cache $(cat $cpu/cache/index[23]/shared_cpu_list 2>/dev/null | tr '\n' ' ')"
done
gone() { ! pidof load; }
asleep() { [ "$(grep -l '^State:.S' $(pidof load | sed 's,[0-9][0-9]*,/proc/&/status,g') | wc -l)" = $count ]; }
up() { grep -q attached scx.txt || ! kill -0 $owner 2>/dev/null; }
ended() { dmesg | grep -q 'sched_ext: .* disabled ('; }
# fault NAME SETTINGS: the object that does what it must not; the kernel ends it.
fault() {
    name=$1 settings=$2
    dmesg -c >/dev/null
    scx /objects/faults.bpf.o $settings >scx.txt 2>&1 &
    owner=$!
    wait_for 60 up
    wait_for 20 ended || bad "$name: the kernel lets it run: $(tail -n 3 scx.txt)"
    # The reason comes on a line of its own.
    sleep 0.2
    dmesg | grep sched_ext >$name.dmesg
    kill $owner
    wait $owner
    cat $name.dmesg
}
# play NAME OBJECT SETTINGS SECONDS TASK...
play() {
    name=$1 object=$2 settings=$3 seconds=$4
    shift 4
    rm -f /tmp/gate /tmp/moment
    dmesg -c >/dev/null
    scx /objects/$object.bpf.o $settings >scx.txt 2>&1 &
    owner=$!
    wait_for 60 up
    if ! grep -q attached scx.txt; then
        wait $owner
        { cat scx.txt; dmesg; } | tail -n 60 >$name.refused
        echo "$name: the kernel refuses it"
        tail -n 12 scx.txt
        return
    fi
    # What `bpf snapshot` says of the first scheduler of scx, beside what the loader has set.
    if [ $object = scx_bpfland ] && [ ! -e snapshot.toml ]; then
        schedlab bpf snapshot $object -o snapshot.toml || bad "no snapshot of $object"
    fi
    count=$#
    for task; do $task >/dev/null & done
    wait_for 20 asleep || bad "$name: the tasks do not wait for their moment"
    # What the kernel still had to do is over.
    sleep 0.2
    trace_on
    echo 1 >$trace/events/bpf_trace/bpf_trace_printk/enable
    load go go 0 - other 0 100000
    # Nothing of the shell runs meanwhile.
    sleep $seconds
    sleep 0.4
    wait_for 40 gone || killall -9 load
    trace_off $name.ftrace
    dmesg | grep sched_ext >$name.dmesg
    kill $owner
    wait $owner
    cat $name.dmesg
    cp /tmp/moment $name.moment
}
. /objects/plays.sh
rm -f scx.txt
