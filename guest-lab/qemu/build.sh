#!/bin/sh
# build.sh SOURCE.tar.xz FOLDER: builds QEMU for guests whose CPUs run beside each other (lockstep.patch), as FOLDER/qemu-system-x86_64.
# Needs a C compiler, ninja, pkg-config, the headers of glib and zlib, and Python with venv (meson comes from the Python index).
set -eu
source=$1 folder=$2
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$folder/source" "$folder/build"
mkdir -p "$folder/source" "$folder/build"
tar -xJf "$source" -C "$folder/source" --strip-components 1
cd "$folder/source"
patch -s -p1 <"$here/lockstep.patch"
# Debian's archive has no firmware: that of its packages is used.
echo 'roms = []' >pc-bios/meson.build
echo 'CONFIG_Q35=y' >configs/devices/x86_64-softmmu/lab.mak
python3 -m venv "$folder/python"
"$folder/python/bin/pip" -q install meson==1.5.0 pycotap==1.3.1 setuptools==75.8.0
cd "$folder/build"
../source/configure --python="$folder/python/bin/python3" --target-list=x86_64-softmmu --without-default-features --enable-system --enable-tcg \
    --disable-docs --disable-tools --disable-guest-agent --without-default-devices --with-devices-x86_64=lab --disable-debug-info --disable-werror
ninja qemu-system-x86_64
mv qemu-system-x86_64 "$folder/qemu-system-x86_64"
cd "$folder"
rm -rf source build python
