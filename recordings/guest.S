# A guest of KVM in 512 bytes, a boot sector in real mode: it needs no kernel, and boots on every KVM
# (also on one that runs nested without hardware virtualisation, where it is emulated). Each of its
# two virtual CPUs is interrupted by its local APIC timer after PERIOD / 2 to PERIOD * 3 / 2
# nanoseconds, again and again. With WORK 0 a virtual CPU computes without end, else it works WORK
# times at each interrupt and halts. Every REPORT interrupts the first one prints a line on the serial
# port: time stamp counter, then for both virtual CPUs the steal time that KVM tells
# (MSR_KVM_STEAL_TIME, Documentation/virt/kvm/x86/msr.rst: of it Linux makes column 8 of /proc/stat)
# and how often it has worked, all in hexadecimal.
#   as --32 --defsym PERIOD=7300000 --defsym WORK0=18 --defsym WORK1=11 --defsym REPORT=35 guest.S -o guest.o
#   ld -m elf_i386 --oformat binary -Ttext 0 -e _start guest.o -o guest.img
.code16
.equ DATA, 0x900
.globl _start
_start:
    cli
    mov %cs, %ax
    cmp $0x800, %ax
    je ap
    xor %ax, %ax
    mov %ax, %ds
    mov $0x800, %ax
    mov %ax, %es
    mov $0x7c00, %si
    xor %di, %di
    mov $512, %cx
    cld
    rep movsb
    mov $DATA, %ax
    mov %ax, %es
    xor %di, %di
    mov $1024, %cx
    xor %al, %al
    rep stosb
    ljmp $0x800, $main
main:
    call setup
    mov $0x830, %ecx
    xor %edx, %edx
    mov $0xC4500, %eax
    wrmsr
    mov $20000, %eax
1:  dec %eax
    jnz 1b
    mov $0xC4608, %eax
    wrmsr
    mov $WORK0, %ebp
    jmp work
ap:
    call setup
    mov $WORK1, %ebp
    jmp work
# EBX is the number of the vCPU from here on.
setup:
    xor %ax, %ax
    mov %ax, %ss
    mov $0x1b, %ecx
    rdmsr
    or $0xC00, %eax
    wrmsr
    mov $0x802, %ecx
    rdmsr
    mov %eax, %ebx
    pop %dx
    mov %bx, %sp
    shl $8, %sp
    add $0x6000, %sp
    push %dx
    mov $DATA, %ax
    mov %ax, %ds
    mov %ebx, %eax
    shl $6, %eax
    add $0x9001, %eax
    xor %edx, %edx
    mov $0x4b564d03, %ecx
    wrmsr
    xor %ax, %ax
    mov %ax, %es
    movw $tick, %es:0x100
    movw $0x800, %es:0x102
    mov $0xff, %al
    out %al, $0x21
    out %al, $0xa1
    mov $0x80F, %ecx
    mov $0x1ff, %eax
    wrmsr
    mov $0x83E, %cx
    mov $0xb, %eax
    wrmsr
    mov $0x832, %cx
    mov $0x40, %eax
    wrmsr
    addr32 mov %ecx, 0x280(,%ebx,4)
    addr32 add %ebx, 0x280(,%ebx,4)
    call next
    sti
    ret
# The next interrupt comes after PERIOD / 2 to PERIOD * 3 / 2, by chance.
next:
    addr32 imull $1103515245, 0x280(,%ebx,4), %eax
    add $12345, %eax
    addr32 mov %eax, 0x280(,%ebx,4)
    mov $PERIOD, %ecx
    mul %ecx
    lea PERIOD/2(%edx), %eax
    xor %edx, %edx
    mov $0x838, %ecx
    wrmsr
    ret
tick:
    push %eax
    push %ecx
    push %edx
    addr32 incl 0x200(,%ebx,4)
    mov $0x80B, %ecx
    xor %eax, %eax
    xor %edx, %edx
    wrmsr
    call next
    pop %edx
    pop %ecx
    pop %eax
    iretw
work:
    test %ebp, %ebp
    jz burn
    hlt
burn:
    mov %ebp, %esi
2:  mov $100, %ecx
3:  dec %ecx
    jnz 3b
    addr32 incl 0x180(,%ebx,8)
    dec %esi
    jg 2b
    test %bx, %bx
    jnz work
    mov 0x200, %eax
    cmp 0x240, %eax
    jb work
    add $REPORT, %eax
    mov %eax, 0x240
    rdtsc
    mov %eax, 0x1c0
    mov %edx, 0x1c4
    mov $0x1c0, %di
    call number
    xor %di, %di
    call number
    mov $0x180, %di
    call number
    mov $0x40, %di
    call number
    mov $0x188, %di
    call number
    mov $10, %al
    call char
    jmp work
number:
    mov 4(%di), %eax
    call half
    mov (%di), %eax
    call half
    mov $32, %al
    jmp char
half:
    mov $8, %cx
4:  rol $4, %eax
    push %eax
    call digit
    pop %eax
    loop 4b
    ret
digit:
    and $15, %al
    add $48, %al
    cmp $58, %al
    jb char
    add $39, %al
char:
    mov $0x3f8, %dx
    out %al, %dx
    ret
.org 510
.word 0xaa55
