#!/usr/bin/env bash
# Records two guests of KVM beside each other on CPU $CPU: recordings/guests.sh [NAME...]   (no NAME: both)
#   guests-equal     the groups of both guests have cpu.shares 1024
#   guests-weighted  the first one has 4096
#
# Needs root, /dev/kvm, qemu-system-x86_64, binutils, and a CPU controller (cgroup v1 or v2) in which the root may
# make groups. The guests are guest.S, in groups of their own below /schedlab-guests, which has so large a weight
# that what else runs on the machine delays them little. What is started here is ended here, by process id.
# OUT is where the recordings go (default: this folder), BIN a schedlab (default: target/release/schedlab).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
CPU=${CPU:-1} OUT=${OUT:-$here} BIN=${BIN:-$(dirname "$here")/target/release/schedlab} LENGTH=${LENGTH:-4}
work=$(mktemp -d)
v1=/sys/fs/cgroup/cpu
[ -f $v1/cpu.shares ] || v1=
top=${v1:-/sys/fs/cgroup}/schedlab-guests
pids=()
tidy() {
    [ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    sleep 0.2
    rmdir "$top/web" "$top/batch" "$top" 2>/dev/null || true
    rm -rf "$work"
}
trap tidy EXIT
weight() { # GROUP SHARES: cpu.weight is 100 for 1024 shares (kernel/sched/core.c)
    if [ -n "$v1" ]; then echo "$2" >"$1/cpu.shares"; else echo $((($2 * 100 + 512) / 1024)) >"$1/cpu.weight"; fi
}
guest() { # NAME PERIOD WORK0 WORK1
    as --32 --defsym PERIOD="$2" --defsym WORK0="$3" --defsym WORK1="$4" --defsym REPORT=35 "$here/guest.S" -o "$work/$1.o"
    ld -m elf_i386 --oformat binary -Ttext 0 -e _start "$work/$1.o" -o "$work/$1.img"
    bash -c "echo \$\$ >$top/$1/cgroup.procs; exec taskset -c $CPU qemu-system-x86_64 -accel kvm \
        -cpu qemu64,+x2apic,-pni -smp 2 -m 16 -nodefaults -display none -net none -serial file:$work/$1.serial \
        -drive file=$work/$1.img,format=raw,if=ide" 2>"$work/$1.log" &
    pids+=($!)
}
last() { tail -n 1 "$work/$1.serial"; }
told() { # NAME BEFORE AFTER: what a guest saw of steal, in milliseconds, both virtual CPUs
    local a b
    read -r -a a <<<"$2"
    read -r -a b <<<"$3"
    echo "$1: KVM told the guest of $(((16#${b[1]} - 16#${a[1]}) / 1000000)) and $(((16#${b[3]} - 16#${a[3]}) / 1000000)) ms of steal"
}
mkdir "$top"
[ -n "$v1" ] || { echo +cpu >/sys/fs/cgroup/cgroup.subtree_control; echo +cpu >"$top/cgroup.subtree_control"; }
mkdir "$top/web" "$top/batch"
weight "$top" 100000
guest web 7300000 18 11
guest batch 10000000 0 0
sleep 8
for name in "${@:-guests-equal guests-weighted}"; do
    for name in $name; do
        case $name in
        guests-equal) weight "$top/web" 1024 ;;
        guests-weighted) weight "$top/web" 4096 ;;
        *) echo "unknown: $name" >&2 && exit 2 ;;
        esac
        sleep 1
        web=$(last web) batch=$(last batch)
        rm -f "$OUT/$name.slt"
        "$BIN" record --all --messages off --for "${LENGTH}s" -o "$OUT/$name.slt"
        sleep 0.3
        told web "$web" "$(last web)"
        told batch "$batch" "$(last batch)"
    done
done
