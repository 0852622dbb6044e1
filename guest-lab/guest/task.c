/* What busybox lacks: tasks by name pattern, and programs started with other rights.
 *
 * task list                 every thread of a program that has a real-time or deadline policy, SCHED_IDLE or SCHED_EXT,
 *                           or fewer CPUs than there are
 * task show PATTERN         policy, nice, CPUs and CPU time of these threads
 * task nice PATTERN N | policy PATTERN other|batch|idle|ext|fifo:N | slice PATTERN NS | cpus PATTERN MASK | kill PATTERN SIGNAL
 * task with [nice=N] [user=UID] [caps=N,N...] [-] COMMAND...    starts it with these
 *   caps: numbers of capabilities that the user keeps (38 CAP_PERFMON, 39 CAP_BPF, 23 CAP_SYS_NICE) */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREAD_OF_THE_KERNEL 0x00200000u /* PF_KTHREAD, include/linux/sched.h */
#define RESET_ON_FORK 0x40000000

static int online;

/* `comm` and whether the thread is the kernel's own; 0 when it is gone. */
static int look(int process, int thread, char comm[16], int *kernels)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", process, thread);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    char *from = strchr(text, '('), *to = strrchr(text, ')');
    if (!from || !to)
        return 0;
    unsigned flags = 0;
    sscanf(to + 2, "%*c %*d %*d %*d %*d %*d %u", &flags);
    *to = 0;
    snprintf(comm, 16, "%s", from + 1);
    *kernels = (flags & THREAD_OF_THE_KERNEL) != 0;
    return 1;
}

static void describe(int process, int thread, const char *comm)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    sched_getaffinity(thread, sizeof cpus, &cpus);
    int policy = sched_getscheduler(thread) & ~RESET_ON_FORK;
    struct sched_param param = { 0 };
    sched_getparam(thread, &param);
    printf("thread %d of %d %s policy %d priority %d nice %d cpus", thread, process, comm, policy, param.sched_priority,
           getpriority(PRIO_PROCESS, thread));
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &cpus))
            printf(" %d", cpu);
    printf("\n");
}

static int unusual(int thread)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    sched_getaffinity(thread, sizeof cpus, &cpus);
    int policy = sched_getscheduler(thread) & ~RESET_ON_FORK;
    return (policy > 0 && policy != SCHED_BATCH) || CPU_COUNT(&cpus) < online;
}

/* A kernel thread that schedlab may have raised: PREEMPT_RT's irq_work/N, SCHED_FIFO 1 otherwise. */
static int raised(int thread, const char *comm)
{
    struct sched_param param = { 0 };
    sched_getparam(thread, &param);
    return !strncmp(comm, "irq_work/", 9) && param.sched_priority > 1;
}

/* What sched_setattr takes (include/uapi/linux/sched/types.h, SCHED_ATTR_SIZE_VER0); busybox's C library has no name for it. */
struct attributes {
    unsigned size, policy;
    unsigned long long flags;
    int nice;
    unsigned priority;
    unsigned long long runtime, deadline, period;
};

/* A fair task's slice, which the kernel must then report: one that knows no slice takes the call and forgets the value. */
static int slice(int thread, unsigned long long ns)
{
    struct attributes to = { .size = sizeof to };
    if (syscall(SYS_sched_getattr, thread, &to, sizeof to, 0))
        return -1;
    to.runtime = ns;
    if (syscall(SYS_sched_setattr, thread, &to, 0) || syscall(SYS_sched_getattr, thread, &to, sizeof to, 0))
        return -1;
    errno = EOPNOTSUPP;
    return to.runtime == ns ? 0 : -1;
}

static int change(char **words, int thread)
{
    if (!strcmp(words[1], "slice"))
        return slice(thread, strtoull(words[3], 0, 10));
    if (!strcmp(words[1], "nice"))
        return setpriority(PRIO_PROCESS, thread, atoi(words[3]));
    if (!strcmp(words[1], "policy")) {
        struct sched_param param = { 0 };
        if (sscanf(words[3], "fifo:%d", &param.sched_priority) == 1)
            return sched_setscheduler(thread, SCHED_FIFO, &param);
        int policy = !strcmp(words[3], "idle")    ? SCHED_IDLE
                     : !strcmp(words[3], "batch") ? SCHED_BATCH
                     : !strcmp(words[3], "ext")   ? 7
                                                  : SCHED_OTHER;
        return sched_setscheduler(thread, policy, &param);
    }
    if (!strcmp(words[1], "cpus")) {
        unsigned long mask = strtoul(words[3], 0, 16);
        return syscall(SYS_sched_setaffinity, thread, sizeof mask, &mask) < 0 ? -1 : 0;
    }
    return -1;
}

/* Does `what` to every thread of every process whose name matches; returns how many there were. */
static int each(int count, char **words)
{
    int list = !strcmp(words[1], "list"), show = !strcmp(words[1], "show"), found = 0, seen = 0;
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    while (processes && (entry = readdir(processes))) {
        int process = atoi(entry->d_name);
        if (!isdigit(entry->d_name[0]) || process == getpid())
            continue;
        char path[64], comm[16];
        int kernels;
        snprintf(path, sizeof path, "/proc/%d/task", process);
        DIR *threads = opendir(path);
        while (threads && (entry = readdir(threads))) {
            int thread = atoi(entry->d_name);
            if (!isdigit(entry->d_name[0]) || !look(process, thread, comm, &kernels) ||
                (kernels && !(list && raised(thread, comm))))
                continue;
            seen++;
            if (list ? !unusual(thread) : count < 3 || fnmatch(words[2], comm, 0) || process == 1)
                continue;
            found++;
            if (list || show)
                describe(process, thread, comm);
            else if (!strcmp(words[1], "kill") ? kill(process, atoi(words[3])) : change(words, thread))
                perror(words[1]);
        }
        if (threads)
            closedir(threads);
    }
    printf("%s: %d of %d threads\n", words[1], found, seen);
    return 0;
}

static int keep(char *list)
{
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2] = { { 0 } };
    for (char *word = strtok(list, ","); word; word = strtok(0, ",")) {
        int cap = atoi(word);
        data[cap / 32].permitted |= 1u << cap % 32;
        data[cap / 32].effective |= 1u << cap % 32;
        data[cap / 32].inheritable |= 1u << cap % 32;
    }
    if (syscall(SYS_capset, &header, data))
        return -1;
    for (int cap = 0; cap < 64; cap++)
        if (data[cap / 32].permitted >> cap % 32 & 1 && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0))
            return -1;
    return 0;
}

static int with(char **words)
{
    char *caps = 0;
    for (; *words; words++) {
        if (!strncmp(*words, "nice=", 5)) {
            if (setpriority(PRIO_PROCESS, 0, atoi(*words + 5)))
                perror("nice");
        } else if (!strncmp(*words, "caps=", 5)) {
            caps = *words + 5;
        } else if (!strncmp(*words, "user=", 5)) {
            int user = atoi(*words + 5);
            prctl(PR_SET_KEEPCAPS, 1);
            if (setgroups(0, 0) || setgid(user) || setuid(user)) {
                perror("user");
                return 127;
            }
            setenv("HOME", "/tmp", 1);
        } else {
            break;
        }
    }
    if (caps && keep(caps)) {
        perror("caps");
        return 127;
    }
    if (*words && !strcmp(*words, "-"))
        words++;
    execvp(*words, words);
    perror(*words);
    return 127;
}

int main(int count, char **words)
{
    online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (count > 2 && !strcmp(words[1], "with"))
        return with(words + 2);
    if (count == 2 && !strcmp(words[1], "list"))
        return each(count, words);
    if (count > 2)
        return each(count, words);
    fprintf(stderr, "task list | show PATTERN | nice|policy|cpus|kill PATTERN VALUE | with [nice=N] [user=UID] [caps=N,...] COMMAND\n");
    return 2;
}
