#!/bin/sh
# Cargo's runner: fills in the symbol table of the kernel $1, and boots the kernel.
set -e
cargo kprobes image "$1" --out "$1.elf"
exec qemu-system-aarch64 -machine virt,gic-version=2 -cpu max -smp 4 -nographic -nic none -kernel "$1.elf"
