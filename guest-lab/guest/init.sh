#!/bin/sh
# The first process of a guest: mounts, runs the tests of /tests/list in order, sends what they wrote, ends the machine.
export PATH=/bin:/sbin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /out
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t tmpfs run /run
mount -t tmpfs out /out
mount -t tracefs tracefs /sys/kernel/tracing
mount -t debugfs debugfs /sys/kernel/debug
mount -t bpf bpf /sys/fs/bpf
mount -t securityfs security /sys/kernel/security
mount -t cgroup2 cgroup /sys/fs/cgroup
echo "+cpu +cpuset" >/sys/fs/cgroup/cgroup.subtree_control
echo "@up $(uname -r) $(grep -c ^processor /proc/cpuinfo) CPUs at $(cut -d' ' -f1 /proc/uptime)"
. /lib.sh
# Under the host's clock the host wants to hear each $beat seconds that the guest does not hang.
[ -z "$beat" ] || while sleep "$beat"; do echo "@alive at $(cut -d' ' -f1 /proc/uptime)"; done &
while read -r name limit; do
    echo "@test $name at $(cut -d' ' -f1 /proc/uptime)"
    mkdir -p "/out/$name"
    cd "/out/$name" || continue
    timeout -s KILL "$limit" sh -c ". /lib.sh; . /tests/$name.sh; tidy_up" </dev/null 2>&1
    code=$?
    [ $code = 137 ] && bad "the test was over within $limit s"
    # What a test that was killed has left.
    [ $code = 0 ] || { killall -9 load; killall -9 schedlab; schedlab restore; } >/dev/null 2>&1
    echo "@end $name $code at $(cut -d' ' -f1 /proc/uptime)"
done </tests/list
dmesg | grep -iE 'warning:|bug:|stall|hung task|segfault|call trace|rt throttling' | sed 's/^/@kernel /'
cd /
stty raw -F /dev/ttyS1
tar c -C /out . | gzip -1 >/dev/ttyS1
sync
echo "@over at $(cut -d' ' -f1 /proc/uptime)"
echo o >/proc/sysrq-trigger
sleep 5
poweroff -f
