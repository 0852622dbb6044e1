/* What tasks exchange: sends, receives, selects, futexes, sleeps, as records of 64 bytes in a second ring for each CPU, so
 * that facts take no room from the schedule's events.
 *
 * Sockets are seen at their own tracepoints (Linux 6.3 and later), everything else when its system call returns: the
 * registers hold the arguments still, and the task's table of files the object. That needs no program on a function of the
 * kernel, which not every kernel allows.
 *
 * An object is named by a number that all ends compute alike: a TCP flow by the addresses of its direction, any other one
 * by its address in the kernel. Both are mixed with a random number of the recording, so that no address leaves the kernel. */
#ifndef SCHEDLAB_FACTS_H
#define SCHEDLAB_FACTS_H

/* Set by the loader. */
const volatile __u32 fact_slots = 0;          /* of one CPU's ring, a power of two; 0: no facts */
const volatile __u64 salt = 0;                /* random */
const volatile __u64 interesting_calls[8] = {}; /* a bit for each system call that makes a fact */
const volatile bool sockets_by_calls = 0;     /* the kernel has no tracepoints for what goes through sockets */

/* The numbers are those of crates/host/src/record/bpf/messages.rs. */
enum {
    SEND = 1,      /* n: bytes or error; place; extra: capacity */
    RECEIVE = 2,
    SELECT = 3,    /* n: ready or error; value and limit */
    FUTEX_WAIT = 5, /* n: result; extra: expected value; value and limit */
    FUTEX_WAKE = 6, /* n: woken; extra: asked; other: the second futex */
    SLEEP = 7,     /* n: result; value and limit */
    ARM = 8,       /* value and limit; other: interval */
    OPEN = 9,
    CLOSE = 10,
    ACCEPT = 11,   /* value: listener */
    CONNECT = 12,  /* n: result */
    SIGNAL = 13,   /* n: number; extra: sender or 0 */
    CHILD = 14,    /* extra: child or 0 */
    IN_CALL = 15,  /* n: the system call in which the task lost the CPU */
};
enum {
    NOTHING, TCP, UDP, UNIX, UNIX_DATAGRAM, SOCKET, LISTENER, PIPE, EVENTFD, TIMERFD, SIGNALFD, EPOLL, IO_URING,
    FUTEX, SHARED_FUTEX,
};
enum { NO_LIMIT, FOR, UNTIL_MONOTONIC, UNTIL_REALTIME, UNTIL_BOOTTIME, UNKNOWN_LIMIT };
enum { PEEK = 1, BY_KERNEL = 2, LIMITED = 4, PARTIAL = 8, HAS_PLACE = 16, IPV6 = 32, IPV6_IS_LONG = 64, OF_ONE = 128 };

struct fact {
    __u64 at;
    __u64 object;
    __u64 other; /* of TCP and UDP: the addresses; of Unix sockets: the other direction */
    __u64 value;
    __u32 tid;
    __s32 n;
    __u32 place;
    __u32 word; /* of TCP and UDP: the ports; of pipes and Unix sockets: the inode */
    __u32 extra;
    __u16 flags;
    __u8 kind, of;
    __u8 limit, zero[3];
    __u32 sequence;
};

struct fact_control {
    __u64 head;
    __u64 lost;
    __u64 served; /* the read or write that has told its fact already, plus one; 0: none since the last switch */
    __u64 calls;  /* system calls, while they are counted */
    __u32 zero[8];
    __u64 tail;
    __u64 zero_too[7];
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct fact);
} fact_rings SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct fact_control);
} fact_controls SEC(".maps");

/* How many datagrams a task that is in sendmmsg has sent there. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __type(key, __u32);
    __type(value, __u32);
} datagrams SEC(".maps");

/* What many system calls need is there once: a program has a limited length. */
#define APART static __attribute__((noinline))

INLINE void publish_at(struct fact *fact, __u32 cpu, __u64 at)
{
    struct fact_control *control = bpf_map_lookup_elem(&fact_controls, &cpu);
    if (!control)
        return;
    __u64 head = *(volatile __u64 *)&control->head;
    if (head - *(volatile __u64 *)&control->tail >= fact_slots - MARGIN) {
        __sync_fetch_and_add(&control->lost, 1);
        return;
    }
    head = __sync_fetch_and_add(&control->head, 1);
    __u32 index = cpu * fact_slots + ((__u32)head & (fact_slots - 1));
    struct fact *to = bpf_map_lookup_elem(&fact_rings, &index);
    if (!to)
        return;
    to->at = at;
    to->object = fact->object;
    to->other = fact->other;
    to->value = fact->value;
    to->tid = fact->tid;
    to->n = fact->n;
    to->place = fact->place;
    to->word = fact->word;
    to->extra = fact->extra;
    to->flags = fact->flags;
    to->kind = fact->kind;
    to->of = fact->of;
    to->limit = fact->limit;
    asm volatile("" ::: "memory");
    *(volatile __u32 *)&to->sequence = (__u32)head + 1;
}

APART int publish(struct fact *fact)
{
    publish_at(fact, bpf_get_smp_processor_id(), bpf_ktime_get_ns());
    return 0;
}

/* Multiplicative hashing: 2^64 / golden ratio (Knuth, The Art of Computer Programming 6.4), twice. */
INLINE __u64 mixed(__u64 x)
{
    x = (x ^ salt) * 0x9E3779B97F4A7C15ull;
    x = (x ^ x >> 32) * 0x9E3779B97F4A7C15ull;
    return x ^ x >> 29;
}

/* The address that a typed pointer holds: the verifier lets no program calculate with the pointer itself. */
INLINE __u64 number_of(const void *pointer)
{
    __u64 number = 0;
    bpf_probe_read_kernel(&number, sizeof(number), &pointer);
    return number;
}

/* What names the ends of a connection. */
struct ends {
    __u32 to, from;
    __u64 to_high[2], from_high[2];
    __u16 to_port, from_port;
    __u64 net;
    bool six;
};

#define PORT(x) __builtin_bswap16(x)

/* An IPv4 address inside an IPv6 one is an IPv4 address: the kernel keeps it at its old place, too. */
INLINE bool mapped(__u64 high, __u64 low)
{
    return !high && (__u32)low == 0xffff0000;
}

INLINE bool loopback(__u64 high, __u64 low, __u32 old, bool six)
{
    return six ? !high && low == 0x0100000000000000ull : (old & 0xff) == 127;
}

/* One end of a flow as a number. What is mixed costs most of it, so an IPv4 address and its port are mixed as one word. */
INLINE __u32 half(__u64 high, __u64 low, __u16 port, __u64 net, bool six)
{
    __u64 address = six ? mixed(mixed(high) ^ low) : low;
    return (__u32)mixed(address ^ (__u64)port << 32 ^ net << 48 ^ net >> 16);
}

INLINE __u64 words(const __u32 *from)
{
    return from[0] | (__u64)from[1] << 32;
}

INLINE void swap(struct ends *e)
{
    struct ends before = *e;
    e->to = before.from;
    e->from = before.to;
    e->to_port = before.from_port;
    e->from_port = before.to_port;
    e->to_high[0] = before.from_high[0];
    e->to_high[1] = before.from_high[1];
    e->from_high[0] = before.to_high[0];
    e->from_high[1] = before.to_high[1];
}

/* The number of a flow, and what its name is made of. Swapped halves are the other direction. */
INLINE void flow(struct ends *e, __u32 kind, struct fact *fact)
{
    __u64 to = e->six ? e->to_high[1] : e->to, from = e->six ? e->from_high[1] : e->from;
    __u64 to_high = e->six ? e->to_high[0] : 0, from_high = e->six ? e->from_high[0] : 0;
    bool here = loopback(to_high, to, e->to, e->six) || loopback(from_high, from, e->from, e->six);
    /* What goes over a loopback device stays in its namespace; any other address names one machine or container. */
    __u64 net = here ? e->net : 0;
    fact->of = kind;
    fact->other = e->from | (__u64)e->to << 32;
    fact->word = e->from_port | (__u32)e->to_port << 16;
    if (e->six) {
        fact->flags |= IPV6;
        if (to_high || from_high || (__u32)to || (__u32)from)
            fact->flags |= IPV6_IS_LONG;
        fact->other = from >> 32 | (to >> 32) << 32;
    }
    if (kind == UDP) {
        /* A datagram goes to a socket, from whichever it comes; one that is bound to no address gets those of loopback. */
        bool any = !to && !to_high;
        fact->object = half(any || here ? 0 : to_high, any || here ? 0 : to, e->to_port, any || here ? e->net : 0,
                            e->six && !any && !here);
        return;
    }
    fact->object = (__u64)half(from_high, from, e->from_port, net, e->six) << 32 |
                   half(to_high, to, e->to_port, net, e->six);
}

/* A socket's ends as its receiver: what comes goes to its own address. */
INLINE void ends_of(struct sock *sk, struct ends *e, __u16 family)
{
    e->six = family == 10;
    e->to = sk->__sk_common.skc_rcv_saddr;
    e->from = sk->__sk_common.skc_daddr;
    e->to_port = sk->__sk_common.skc_num;
    e->from_port = PORT(sk->__sk_common.skc_dport);
    e->net = sk->__sk_common.skc_net.net->net_cookie;
    if (e->six) {
        e->to_high[0] = words(&sk->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[0]);
        e->to_high[1] = words(&sk->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[2]);
        e->from_high[0] = words(&sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[0]);
        e->from_high[1] = words(&sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[2]);
        e->six = !mapped(e->from_high[0], e->from_high[1]);
    }
}

/* The same of a socket that was reached through pointers whose types the kernel does not vouch for. */
INLINE void ends_of_any(struct sock *sk, struct ends *e, __u16 family)
{
    e->six = family == 10;
    e->to = BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr);
    e->from = BPF_CORE_READ(sk, __sk_common.skc_daddr);
    e->to_port = BPF_CORE_READ(sk, __sk_common.skc_num);
    e->from_port = PORT(BPF_CORE_READ(sk, __sk_common.skc_dport));
    e->net = BPF_CORE_READ(sk, __sk_common.skc_net.net, net_cookie);
    if (e->six) {
        BPF_CORE_READ_INTO(&e->to_high, sk, __sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32);
        BPF_CORE_READ_INTO(&e->from_high, sk, __sk_common.skc_v6_daddr.in6_u.u6_addr32);
        e->six = !mapped(e->from_high[0], e->from_high[1]);
    }
}

INLINE __u32 inode_of(struct socket *socket)
{
    return socket ? BPF_CORE_READ((struct socket_alloc *)socket, vfs_inode.i_ino) : 0;
}

enum { SENDTO = 44, SENDMSG = 46, SENDMMSG = 307 };
#define SIZE_OF_MMSGHDR 64

/* Which of the messages of its sendmmsg the task sends now. */
INLINE __u32 datagram_of(__u32 tid)
{
    __u32 *before = bpf_map_lookup_elem(&datagrams, &tid);
    __u32 number = before ? *before : 0, next = number + 1;
    bpf_map_update_elem(&datagrams, &tid, &next, BPF_ANY);
    return number;
}

/* Where a datagram of an unbound socket goes: the address that its system call was given; false: none. */
APART bool to_address(struct pt_regs *r, __u32 tid, struct ends *e)
{
    struct {
        __u16 family, port;
        __u32 four;
        __u64 six[2];
    } to = {};
    if (!r || !e)
        return 0;
    __u64 call = r->orig_ax, at = r->r8;
    if (call == SENDMSG || call == SENDMMSG) {
        /* The address is the first member of a message. */
        __u64 message = r->si;
        if (call == SENDMMSG)
            message += (__u64)datagram_of(tid) * SIZE_OF_MMSGHDR;
        if (bpf_probe_read_user(&at, sizeof(at), (void *)message))
            return 0;
    } else if (call != SENDTO)
        return 0;
    if (!at || bpf_probe_read_user(&to, 8, (void *)at))
        return 0;
    bool six = to.family == 10;
    if ((!six && to.family != 2) || (six && bpf_probe_read_user(&to.six, sizeof(to.six), (void *)(at + 8))))
        return 0;
    e->six = six && !mapped(to.six[0], to.six[1]);
    e->to = six ? (__u32)(to.six[1] >> 32) : to.four;
    e->to_high[0] = to.six[0];
    e->to_high[1] = to.six[1];
    e->to_port = PORT(to.port);
    return e->to_port;
}

/* A socket of the tracepoints: its object in this direction, its place, its capacity. */
INLINE void of_socket(struct sock *sk, bool out, struct pt_regs *r, struct fact *fact)
{
    __u16 family = sk->__sk_common.skc_family, type = sk->sk_type;
    fact->extra = sk->sk_sndbuf;
    if (family == 1) {
        struct unix_sock *unix = bpf_skc_to_unix_sock(sk);
        __u64 address = number_of(sk), own = mixed(address), peer = unix ? number_of(unix->peer) : 0;
        fact->of = type == 2 ? UNIX_DATAGRAM : UNIX;
        fact->object = out ? peer ? mixed(peer) : mixed(~address) : own;
        fact->other = out ? own : peer ? mixed(peer) : 0;
        fact->word = inode_of(sk->sk_socket);
        return;
    }
    __u16 protocol = sk->sk_protocol;
    bool tcp = type == 1 && protocol == 6, udp = type == 2 && protocol == 17;
    if ((family != 2 && family != 10) || (!tcp && !udp)) {
        fact->of = SOCKET;
        fact->object = mixed(number_of(sk) ^ out);
        return;
    }
    struct ends e = {};
    ends_of(sk, &e, family);
    if (out)
        swap(&e);
    if (udp && out && !e.to_port && !to_address(r, fact->tid, &e)) {
        fact->of = UDP;
        fact->object = mixed(~number_of(sk));
        fact->word = e.from_port;
        return;
    }
    flow(&e, tcp ? TCP : UDP, fact);
    struct tcp_sock *counters = tcp ? bpf_skc_to_tcp_sock(sk) : 0;
    /* A layer above (kTLS) sends other bytes than the program does: its places are no sum of these. */
    if (counters && !((struct inet_connection_sock *)counters)->icsk_ulp_ops) {
        fact->place = out ? counters->write_seq : counters->copied_seq;
        fact->flags |= HAS_PLACE;
    }
}

INLINE void of_any_socket(struct sock *sk, bool out, struct pt_regs *r, struct fact *fact)
{
    __u16 family = BPF_CORE_READ(sk, __sk_common.skc_family), type = BPF_CORE_READ(sk, sk_type);
    fact->extra = BPF_CORE_READ(sk, sk_sndbuf);
    if (BPF_CORE_READ(sk, __sk_common.skc_state) == 10 /* TCP_LISTEN */) {
        fact->of = LISTENER;
        fact->object = mixed((__u64)sk);
        return;
    }
    if (family == 1) {
        __u64 own = mixed((__u64)sk), peer = (__u64)BPF_CORE_READ((struct unix_sock *)sk, peer);
        fact->of = type == 2 ? UNIX_DATAGRAM : UNIX;
        fact->object = out ? peer ? mixed(peer) : mixed(~(__u64)sk) : own;
        fact->other = out ? own : peer ? mixed(peer) : 0;
        fact->word = inode_of(BPF_CORE_READ(sk, sk_socket));
        return;
    }
    __u16 protocol = BPF_CORE_READ(sk, sk_protocol);
    bool tcp = type == 1 && protocol == 6, udp = type == 2 && protocol == 17;
    if ((family != 2 && family != 10) || (!tcp && !udp)) {
        fact->of = SOCKET;
        fact->object = mixed((__u64)sk ^ out);
        return;
    }
    struct ends e = {};
    ends_of_any(sk, &e, family);
    if (out)
        swap(&e);
    if (udp && out && !e.to_port && !to_address(r, fact->tid, &e)) {
        fact->of = UDP;
        fact->object = mixed(~(__u64)sk);
        fact->word = e.from_port;
        return;
    }
    flow(&e, tcp ? TCP : UDP, fact);
    if (tcp && !BPF_CORE_READ((struct inet_connection_sock *)sk, icsk_ulp_ops)) {
        struct tcp_sock *counters = (struct tcp_sock *)sk;
        fact->place = out ? BPF_CORE_READ(counters, write_seq) : BPF_CORE_READ(counters, copied_seq);
        fact->flags |= HAS_PLACE;
    }
}

INLINE struct file *file_of(struct task_struct *task, __u32 number)
{
    struct fdtable *table = task->files->fdt;
    struct file *file = 0;
    if (number < table->max_fds)
        bpf_probe_read_kernel(&file, sizeof(file), table->fd + number);
    return file;
}

/* Eight letters as a number. */
#define LETTERS(a, b, c, d, e, f, g, h)                                                                        \
    ((__u64)(a) | (__u64)(b) << 8 | (__u64)(c) << 16 | (__u64)(d) << 24 | (__u64)(e) << 32 | (__u64)(f) << 40 | \
     (__u64)(g) << 48 | (__u64)(h) << 56)

#define FORMAT_OF_MODE 0xf000
enum { MODE_FIFO = 0x1000, MODE_REGULAR = 0x8000, MODE_SOCKET = 0xc000 };
#define ANON_INODE_FS_MAGIC 0x09041934
#define PAGE_SHIFT 12

/* The object behind a file; false: none through which tasks exchange anything. */
APART bool of_file(struct file *file, bool out, struct pt_regs *r, struct fact *fact)
{
    if (!file)
        return 0;
    struct inode *inode = BPF_CORE_READ(file, f_inode);
    __u16 mode = BPF_CORE_READ(inode, i_mode) & FORMAT_OF_MODE;
    if (mode == MODE_REGULAR && BPF_CORE_READ(inode, i_sb, s_magic) != ANON_INODE_FS_MAGIC)
        return 0;
    void *data = BPF_CORE_READ(file, private_data);
    if (mode == MODE_SOCKET) {
        struct sock *sk = BPF_CORE_READ((struct socket *)data, sk);
        if (sk)
            of_any_socket(sk, out, r, fact);
        return sk != 0;
    }
    fact->object = mixed((__u64)data);
    if (mode == MODE_FIFO) {
        fact->of = PIPE;
        fact->word = BPF_CORE_READ(inode, i_ino);
        fact->extra = BPF_CORE_READ((struct pipe_inode_info *)data, max_usage) << PAGE_SHIFT;
        return 1;
    }
    if (mode && mode != MODE_REGULAR)
        return 0;
    const unsigned char *name = BPF_CORE_READ(file, f_path.dentry, d_name.name);
    __u64 begins = 0;
    bpf_probe_read_kernel(&begins, sizeof(begins), name);
    fact->of = begins == LETTERS('[', 'e', 'v', 'e', 'n', 't', 'f', 'd')   ? EVENTFD
               : begins == LETTERS('[', 'e', 'v', 'e', 'n', 't', 'p', 'o') ? EPOLL
               : begins == LETTERS('[', 't', 'i', 'm', 'e', 'r', 'f', 'd') ? TIMERFD
               : begins == LETTERS('[', 's', 'i', 'g', 'n', 'a', 'l', 'f') ? SIGNALFD
               : begins == LETTERS('[', 'i', 'o', '_', 'u', 'r', 'i', 'n') ? IO_URING
                                                                           : NOTHING;
    return fact->of != NOTHING;
}

/* What a task that stops leaves behind: from now on its next system call tells its own facts, and one that could have run
 * on was in the kernel or, without a fact, in user space. */
INLINE void stopped(struct task_struct *task, __u32 cpu, __u64 at, bool silent)
{
    struct fact_control *control = bpf_map_lookup_elem(&fact_controls, &cpu);
    if (control)
        control->served = 0;
    __u32 call = silent || !task->pid ? 0 : call_of(task);
    if (!call)
        return;
    struct fact fact = { .kind = IN_CALL, .tid = task->pid, .n = call - 1 };
    publish_at(&fact, cpu, at);
}

/* read, readv, preadv2, write, writev, pwritev2: of any file, so that their return is looked at. */
INLINE bool of_files(__u64 call)
{
    return call <= 1 || call == 19 || call == 20 || call == 327 || call == 328;
}

INLINE void transferred(struct sock *sk, bool out, int result, int flags)
{
    struct task_struct *task = bpf_get_current_task_btf();
    if (filter != FILTER_NONE && !wanted(task))
        return;
    struct fact fact = { .kind = out ? SEND : RECEIVE, .tid = task->pid, .n = result };
    if (task->flags & THREAD_OF_THE_KERNEL)
        fact.flags |= BY_KERNEL;
    if (flags & 2 /* MSG_PEEK */)
        fact.flags |= PEEK;
    __u32 cpu = bpf_get_smp_processor_id();
    struct pt_regs *registers = (struct pt_regs *)bpf_task_pt_regs(task);
    if (registers) {
        __u64 call = registers->orig_ax;
        struct fact_control *control = bpf_map_lookup_elem(&fact_controls, &cpu);
        if (control && of_files(call))
            control->served = call + 1;
        /* read, write, sendto and recvfrom say how much they want; for lists of buffers it is not known. */
        if (result > 0 && (call == (out ? 1 : 0) || call == (out ? 44 : 45)))
            fact.flags |= out ? registers->dx > (__u32)result ? PARTIAL : 0
                              : registers->dx == (__u32)result ? LIMITED : 0;
    }
    of_socket(sk, out, fact.flags & BY_KERNEL ? 0 : registers, &fact);
    publish_at(&fact, cpu, bpf_ktime_get_ns());
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(on_send, struct sock *sk, int result, int flags)
{
    transferred(sk, 1, result, flags);
    return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(on_receive, struct sock *sk, int result, int flags)
{
    transferred(sk, 0, result, flags);
    return 0;
}

/* The end of a stream: the task closes it, or its end of it. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(on_state, struct sock *sk, int old, int new)
{
    enum { ESTABLISHED = 1, FIN_WAIT1 = 4, CLOSED = 7, CLOSE_WAIT = 8, LAST_ACK = 9 };
    bool ends = new == FIN_WAIT1 || new == LAST_ACK || (new == CLOSED && (old == ESTABLISHED || old == CLOSE_WAIT));
    struct task_struct *task = bpf_get_current_task_btf();
    if (!ends || !task->pid || (filter != FILTER_NONE && !wanted(task)))
        return 0;
    struct control *control = here(bpf_get_smp_processor_id());
    if (!control || context(control, task->pid) != BY_TASK)
        return 0;
    struct fact fact = { .kind = CLOSE, .tid = task->pid };
    of_socket(sk, 1, 0, &fact);
    if (fact.of == TCP)
        publish(&fact);
    return 0;
}

SEC("tp_btf/signal_generate")
int BPF_PROG(on_signal, int number, void *info, struct task_struct *to)
{
    if (filter != FILTER_NONE && !wanted(to))
        return 0;
    struct control *control = here(bpf_get_smp_processor_id());
    __u32 current = ((struct task_struct *)bpf_get_current_task_btf())->pid;
    struct fact fact = { .kind = SIGNAL, .tid = to->pid, .n = number };
    if (control && context(control, current) == BY_TASK)
        fact.extra = current;
    publish(&fact);
    return 0;
}

struct times {
    __s64 s, ns;
};

#define A_SECOND 1000000000ll

/* A length of time that a system call was given by address. */
INLINE void limit_of(struct fact *fact, __u64 address, __u8 kind)
{
    struct times time;
    if (!address)
        return;
    if (bpf_probe_read_user(&time, sizeof(time), (void *)address)) {
        fact->limit = UNKNOWN_LIMIT;
        return;
    }
    fact->limit = kind;
    fact->value = time.s * A_SECOND + time.ns;
}

INLINE void milliseconds(struct fact *fact, __s32 time)
{
    if (time < 0)
        return;
    fact->limit = FOR;
    fact->value = (__u64)time * 1000000;
}

/* What an absolute time of this clock is. */
INLINE __u8 until(__u32 clock)
{
    return clock == 1 ? UNTIL_MONOTONIC : clock == 0 ? UNTIL_REALTIME : clock == 7 ? UNTIL_BOOTTIME : UNKNOWN_LIMIT;
}

struct shared {
    __u64 file, offset, address;
};

static long in_area(struct task_struct *task, struct vm_area_struct *area, struct shared *found)
{
    struct file *file = area->vm_file;
    if (file) {
        found->file = (__u64)BPF_CORE_READ(file, f_inode);
        found->offset = (area->vm_pgoff << PAGE_SHIFT) + (found->address - area->vm_start);
    }
    return 0;
}

enum { PRIVATE = 128, REALTIME_CLOCK = 256 };

/* A futex by its memory and address; in memory that processes share, by the file and the place in it. */
APART __u64 futex(struct task_struct *task, __u64 address, bool is_private, __u8 *of)
{
    *of = FUTEX;
    if (!is_private) {
        struct shared found = { .address = address };
        bpf_find_vma(task, address, in_area, &found, 0);
        if (found.file) {
            *of = SHARED_FUTEX;
            return mixed(mixed(found.file) ^ found.offset);
        }
    }
    return mixed(mixed(number_of(task->mm)) ^ address);
}

INLINE void futex_call(struct task_struct *task, struct pt_regs *r, long result)
{
    __u32 call = r->si, operation = call & ~(PRIVATE | REALTIME_CLOCK);
    struct fact fact = { .tid = task->pid, .n = result, .extra = r->dx };
    __u8 second;
    switch (operation) {
    case 0:  /* FUTEX_WAIT: relative */
        limit_of(&fact, r->r10, FOR);
        fact.kind = FUTEX_WAIT;
        break;
    case 9:  /* FUTEX_WAIT_BITSET and */
    case 11: /* FUTEX_WAIT_REQUEUE_PI and */
    case 13: /* FUTEX_LOCK_PI2: absolute, of either clock */
        limit_of(&fact, r->r10, call & REALTIME_CLOCK ? UNTIL_REALTIME : UNTIL_MONOTONIC);
        fact.kind = FUTEX_WAIT;
        break;
    case 6: /* FUTEX_LOCK_PI: absolute, of the real-time clock */
        limit_of(&fact, r->r10, UNTIL_REALTIME);
        fact.kind = FUTEX_WAIT;
        break;
    case 7: /* FUTEX_UNLOCK_PI */
        fact.extra = 1;
        fact.kind = FUTEX_WAKE;
        break;
    case 1:  /* FUTEX_WAKE, FUTEX_WAKE_BITSET */
    case 10:
        fact.kind = FUTEX_WAKE;
        break;
    case 3:  /* FUTEX_REQUEUE, FUTEX_CMP_REQUEUE, FUTEX_WAKE_OP, FUTEX_CMP_REQUEUE_PI */
    case 4:
    case 5:
    case 12:
        fact.kind = FUTEX_WAKE;
        fact.other = futex(task, r->r8, call & PRIVATE, &second);
        break;
    default:
        return;
    }
    fact.object = futex(task, r->di, call & PRIVATE, &fact.of);
    publish(&fact);
}

/* read and write, and their variants with lists of buffers. */
INLINE void moved(struct task_struct *task, struct pt_regs *r, bool out, bool list, long result)
{
    struct fact fact = { .kind = out ? SEND : RECEIVE, .tid = task->pid, .n = result };
    if (!of_file(file_of(task, r->di), out, r, &fact))
        return;
    if (fact.of >= TCP && fact.of <= SOCKET && !sockets_by_calls)
        return;
    if (fact.of == EVENTFD || fact.of == TIMERFD) {
        /* By how much the counter changed. */
        __u64 by = 0;
        if (result == sizeof(by) && !bpf_probe_read_user(&by, sizeof(by), (void *)r->si))
            fact.n = by > 0x7fffffff ? 0x7fffffff : (__s32)by;
    } else if (result > 0 && !list) {
        fact.flags |= out ? r->dx > (__u64)result ? PARTIAL : 0 : r->dx == (__u64)result ? LIMITED : 0;
    }
    publish(&fact);
}

/* sendto, recvfrom, sendmsg, recvmsg where sockets have no tracepoints. */
INLINE void by_socket_call(struct task_struct *task, struct pt_regs *r, bool out, __u64 flags, bool list, long result)
{
    struct fact fact = { .kind = out ? SEND : RECEIVE, .tid = task->pid, .n = result };
    if (!of_file(file_of(task, r->di), out, r, &fact))
        return;
    if (!out && (flags & 2))
        fact.flags |= PEEK;
    if (result > 0 && !list)
        fact.flags |= out ? r->dx > (__u64)result ? PARTIAL : 0 : r->dx == (__u64)result ? LIMITED : 0;
    publish(&fact);
}

/* epoll_wait and epoll_pwait, which event loops call most: that the file is an epoll the kernel has found already, unless it
 * refused the call. */
INLINE void polled(struct task_struct *task, __u32 selector, long result, __s32 timeout)
{
    struct fact fact = { .kind = SELECT, .of = EPOLL, .tid = task->pid, .n = result };
    struct file *file = file_of(task, selector);
    if (!file || result == -22 /* EINVAL */)
        return;
    milliseconds(&fact, timeout);
    fact.object = mixed((__u64)BPF_CORE_READ(file, private_data));
    publish(&fact);
}

INLINE void selected(struct task_struct *task, struct pt_regs *r, __u64 call, long result)
{
    struct fact fact = { .kind = SELECT, .tid = task->pid, .n = result };
    if (call == 426 && !(r->r10 & 1 /* IORING_ENTER_GETEVENTS */))
        return;
    if ((call == 426 || call == 441) && !of_file(file_of(task, r->di), 0, 0, &fact))
        return;
    if (call == 441)
        limit_of(&fact, r->r10, FOR);
    else if (call == 7)
        milliseconds(&fact, r->dx);
    else if (call != 426) /* ppoll, select and pselect6 leave in their argument what was left of the time */
        fact.limit = (call == 271 ? r->dx : r->r8) ? UNKNOWN_LIMIT : NO_LIMIT;
    publish(&fact);
}

INLINE void slept(struct task_struct *task, struct pt_regs *r, __u64 call, long result)
{
    struct fact fact = { .kind = SLEEP, .tid = task->pid, .n = result };
    if (call == 35)
        limit_of(&fact, r->di, FOR);
    else
        limit_of(&fact, r->dx, r->si & 1 /* TIMER_ABSTIME */ ? until(r->di) : FOR);
    publish(&fact);
}

INLINE void opened(struct task_struct *task, __u32 number)
{
    struct fact fact = { .kind = OPEN, .tid = task->pid };
    if (of_file(file_of(task, number), 0, 0, &fact))
        publish(&fact);
}

INLINE void accepted(struct task_struct *task, __u32 listener, long result)
{
    struct fact at = {}, fact = { .kind = ACCEPT, .tid = task->pid };
    if (result < 0 || !of_file(file_of(task, listener), 0, 0, &at) ||
        !of_file(file_of(task, result), 0, 0, &fact))
        return;
    fact.value = at.object;
    publish(&fact);
}

INLINE void connected(struct task_struct *task, __u32 number, long result)
{
    struct fact fact = { .kind = CONNECT, .tid = task->pid, .n = result };
    if (of_file(file_of(task, number), 1, 0, &fact) && (fact.of == TCP || fact.of == UNIX))
        publish(&fact);
}

INLINE void armed(struct task_struct *task, struct pt_regs *r)
{
    struct file *file = file_of(task, r->di);
    struct fact fact = { .kind = ARM, .tid = task->pid };
    struct {
        struct times every, first;
    } set;
    if (!of_file(file, 0, 0, &fact) || fact.of != TIMERFD ||
        bpf_probe_read_user(&set, sizeof(set), (void *)r->dx))
        return;
    struct timerfd_ctx *timer = BPF_CORE_READ(file, private_data);
    fact.value = set.first.s * A_SECOND + set.first.ns;
    fact.other = set.every.s * A_SECOND + set.every.ns;
    fact.limit = !fact.value ? NO_LIMIT : r->si & 1 /* TFD_TIMER_ABSTIME */ ? until(BPF_CORE_READ(timer, clockid)) : FOR;
    publish(&fact);
}

INLINE void reaped(struct task_struct *task, __u32 child)
{
    struct fact fact = { .kind = CHILD, .tid = task->pid };
    /* In another namespace than the first the number means another task. */
    if (!task->thread_pid->level)
        fact.extra = child;
    publish(&fact);
}

INLINE void two(struct task_struct *task, __u64 address, bool both)
{
    __u32 numbers[2];
    if (bpf_probe_read_user(numbers, sizeof(numbers), (void *)address))
        return;
    opened(task, numbers[0]);
    if (both)
        opened(task, numbers[1]);
}

/* How many system calls there are, before it is decided whether to look at all of them. */
SEC("tp_btf/sys_exit")
int BPF_PROG(count_calls, struct pt_regs *r, long result)
{
    __u32 cpu = bpf_get_smp_processor_id();
    struct fact_control *control = bpf_map_lookup_elem(&fact_controls, &cpu);
    if (control)
        control->calls++;
    return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_return, struct pt_regs *r, long result)
{
    __u64 call = r->orig_ax;
    if (call >= 512 || !(interesting_calls[call >> 6 & 7] >> (call & 63) & 1))
        return 0;
    __u32 cpu = bpf_get_smp_processor_id();
    struct fact_control *control = bpf_map_lookup_elem(&fact_controls, &cpu);
    if (!control)
        return 0;
    __u64 served = control->served;
    if (served) {
        control->served = 0;
        if (served == call + 1)
            return 0;
    }
    struct task_struct *task = bpf_get_current_task_btf();
    if ((filter != FILTER_NONE && !wanted(task)) || task->thread_info.status & CALL_OF_32_BITS)
        return 0;
    switch (call) {
    case 0: case 19: case 327: /* read, readv, preadv2 */
        moved(task, r, 0, call != 0, result);
        break;
    case 1: case 20: case 328: /* write, writev, pwritev2 */
        moved(task, r, 1, call != 1, result);
        break;
    case 44: /* sendto */
        by_socket_call(task, r, 1, 0, 0, result);
        break;
    case 45: /* recvfrom */
        by_socket_call(task, r, 0, r->r10, 0, result);
        break;
    case 46: /* sendmsg */
        by_socket_call(task, r, 1, 0, 1, result);
        break;
    case 47: /* recvmsg */
        by_socket_call(task, r, 0, r->dx, 1, result);
        break;
    case SENDMMSG: {
        __u32 tid = task->pid;
        bpf_map_delete_elem(&datagrams, &tid);
        break;
    }
    case 202:
        futex_call(task, r, result);
        break;
    case 232: case 281: /* epoll_wait, epoll_pwait */
        polled(task, r->di, result, r->r10);
        break;
    case 441: /* epoll_pwait2 */
    case 426: /* io_uring_enter, when it waits */
    case 7: case 271: case 23: case 270: /* poll, ppoll, select, pselect6 */
        selected(task, r, call, result);
        break;
    case 35: case 230: /* nanosleep, clock_nanosleep */
        slept(task, r, call, result);
        break;
    case 42:
        connected(task, r->di, result);
        break;
    case 43: case 288: /* accept, accept4 */
        accepted(task, r->di, result);
        break;
    case 286: /* timerfd_settime */
        if (!result)
            armed(task, r);
        break;
    case 22: case 293: /* pipe, pipe2 */
        if (!result)
            two(task, r->di, 0);
        break;
    case 53: /* socketpair */
        if (!result)
            two(task, r->r10, 1);
        break;
    case 213: case 282: case 283: case 284: case 289: case 290: case 291: case 425:
        /* epoll_create, signalfd, timerfd_create, eventfd, signalfd4, eventfd2, epoll_create1, io_uring_setup */
        if (result >= 0)
            opened(task, result);
        break;
    case 61: /* wait4 */
        if (result > 0)
            reaped(task, result);
        break;
    case 247: { /* waitid: the child's number is the fourth of the answer */
        __u32 child = 0;
        if (!result && r->dx)
            bpf_probe_read_user(&child, sizeof(child), (void *)(r->dx + 12));
        if (child)
            reaped(task, child);
        break;
    }
    }
    return 0;
}

#endif
