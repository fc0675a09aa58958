#!/bin/sh
# Cargo's runner: fills in the symbol table of the kernel $1, and boots the kernel on the machine that it is linked for.
set -e
cargo kprobes image "$1" --out "$1.elf"
# The entry of the ELF file is in the RAM, which begins at 0 on a Raspberry Pi 3.
case $(od -An -tx4 -j24 -N4 "$1") in
    *" 0"*) machine="raspi3b -cpu cortex-a53" ;;
    *) machine="virt,gic-version=2 -cpu max" ;;
esac
exec qemu-system-aarch64 -machine $machine -smp 4 -nographic -nic none -kernel "$1.elf"
