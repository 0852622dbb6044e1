/* The user half of any sched_ext object, for the guests: what `schedlab compare --scheduler 'bpf:FILE?name=value'` does in the simulator, done
 * with a kernel.
 *
 * scx link OBJECT PART...             links parts to one object
 * scx OBJECT [NAME=VALUE ...]
 *   name=5  name[3]=5  name.member=5    variables of .rodata, .data and .bss
 *   ops.flags=0x36                      numbers of struct sched_ext_ops
 *   PROGRAM()=1,2                       runs a `syscall` program with these s32 before the scheduler attaches
 * Enumerators of the kernel (__SCX_...), nr_cpu_ids and arrays with an element for each CPU are set by themselves. Programs beside the
 * scheduler's callbacks are not loaded. Prints `attached` and stays until SIGTERM. */
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct bpf_object *object;
static const struct btf *types;

static int fail(const char *what, const char *name)
{
    fprintf(stderr, "scx: %s: %s\n", what, name);
    return 2;
}

static const struct btf_type *plain(__u32 id, __u32 *found)
{
    const struct btf_type *type = btf__type_by_id(types, id);
    while (type && (btf_is_mod(type) || btf_is_typedef(type) || btf_is_type_tag(type))) {
        id = type->type;
        type = btf__type_by_id(types, id);
    }
    *found = id;
    return type;
}

/* Follows `[3].member` from a type; the offset in bytes, or -1. */
static long walk(__u32 *id, const char *path)
{
    long at = 0;
    while (*path) {
        const struct btf_type *type = plain(*id, id);
        if (!type)
            return -1;
        if (*path == '[' && btf_is_array(type)) {
            char *end;
            unsigned long index = strtoul(path + 1, &end, 10);
            if (*end != ']' || index >= btf_array(type)->nelems)
                return -1;
            *id = btf_array(type)->type;
            at += index * btf__resolve_size(types, *id);
            path = end + 1;
        } else if (*path == '.' && btf_is_composite(type)) {
            size_t length = strcspn(path + 1, ".[");
            const struct btf_member *member = btf_members(type);
            int n = btf_vlen(type), i = 0;
            for (; i < n; i++, member++) {
                const char *name = btf__name_by_offset(types, member->name_off);
                if (strlen(name) == length && !strncmp(name, path + 1, length))
                    break;
            }
            if (i == n)
                return -1;
            at += btf_member_bit_offset(type, i) / 8;
            *id = member->type;
            path += 1 + length;
        } else {
            return -1;
        }
    }
    return at;
}

static int settable(const struct bpf_map *map)
{
    const char *name = strchr(bpf_map__name(map), '.');
    return name && (!strncmp(name, ".rodata", 7) || !strncmp(name, ".data", 5) || !strncmp(name, ".bss", 4));
}

/* Calls `each` for the variables of all data sections. */
static int variables(int (*each)(struct bpf_map *, char *, const struct btf_var_secinfo *, const char *, const char *), const char *path,
                     const char *value)
{
    struct bpf_map *map;
    int done = 0;
    bpf_object__for_each_map(map, object) {
        size_t size;
        char *data = bpf_map__initial_value(map, &size);
        const struct btf_type *section = btf__type_by_id(types, bpf_map__btf_value_type_id(map));
        if (!settable(map) || !data || !section || !btf_is_datasec(section))
            continue;
        const struct btf_var_secinfo *info = btf_var_secinfos(section);
        for (__u32 i = 0; i < btf_vlen(section); i++, info++)
            done += each(map, data, info, path, value);
    }
    return done;
}

static const char *name_of(const struct btf_var_secinfo *info)
{
    return btf__name_by_offset(types, btf__type_by_id(types, info->type)->name_off);
}

static int set(struct bpf_map *map, char *data, const struct btf_var_secinfo *info, const char *path, const char *value)
{
    size_t length = strcspn(path, ".[");
    const char *name = name_of(info);
    __u32 id = btf__type_by_id(types, info->type)->type;
    (void)map;
    if (strlen(name) != length || strncmp(name, path, length))
        return 0;
    long at = walk(&id, path + length);
    long size = at < 0 ? -1 : btf__resolve_size(types, id);
    if (size < 1 || size > 8)
        return 0;
    unsigned long long number = strtoull(value, 0, 0);
    memcpy(data + info->offset + at, &number, size);
    return 1;
}

/* What depends on the machine: nr_cpu_ids, and a section of its own for an array with one element. */
static int fit(struct bpf_map *map, char *data, const struct btf_var_secinfo *info, const char *path, const char *value)
{
    (void)path, (void)value;
    const char *name = name_of(info), *section = strrchr(bpf_map__name(map), '.');
    __u32 id = btf__type_by_id(types, info->type)->type, cpus = libbpf_num_possible_cpus();
    const struct btf_type *type = plain(id, &id);
    if (!strcmp(name, "nr_cpu_ids") && info->size == 4)
        memcpy(data + info->offset, &cpus, 4);
    /* `.data.NAME`, cut where a map's name ends. */
    if (type && btf_is_array(type) && btf_array(type)->nelems == 1 && section && strlen(section) > 1 &&
        !strncmp(name, section + 1, strlen(section + 1)))
        bpf_map__set_value_size(map, info->size * cpus);
    return 0;
}

static struct btf *kernel;

/* `__SCX_DSQ_LOCAL` and its like get the kernel's value. */
static int enumerator(struct bpf_map *map, char *data, const struct btf_var_secinfo *info, const char *path, const char *value)
{
    const char *name = name_of(info);
    (void)map, (void)path, (void)value;
    if (strncmp(name, "__", 2))
        return 0;
    for (__u32 id = 1; id < btf__type_cnt(kernel); id++) {
        const struct btf_type *type = btf__type_by_id(kernel, id);
        if (!btf_is_any_enum(type))
            continue;
        for (__u32 i = 0; i < btf_vlen(type); i++) {
            int wide = btf_is_enum64(type);
            __u32 text = wide ? btf_enum64(type)[i].name_off : btf_enum(type)[i].name_off;
            __u64 number = wide ? btf_enum64_value(&btf_enum64(type)[i]) : (__u64)(__s64)btf_enum(type)[i].val;
            if (!strcmp(btf__name_by_offset(kernel, text), name + 2)) {
                memcpy(data + info->offset, &number, info->size < 8 ? info->size : 8);
                return 1;
            }
        }
    }
    return 0;
}

static struct bpf_map *scheduler(void)
{
    struct bpf_map *map;
    bpf_object__for_each_map(map, object) {
        if (bpf_map__type(map) == BPF_MAP_TYPE_STRUCT_OPS)
            return map;
    }
    return 0;
}

/* `ops.flags`: in the object's own struct sched_ext_ops. */
static int set_ops(const char *path, const char *value)
{
    struct bpf_map *map = scheduler();
    size_t size;
    char *data = map ? bpf_map__initial_value(map, &size) : 0;
    __u32 id = map ? bpf_map__btf_value_type_id(map) : 0;
    long at = walk(&id, path);
    long bytes = at < 0 ? -1 : btf__resolve_size(types, id);
    if (!data || bytes < 1 || bytes > 8)
        return 0;
    unsigned long long number = strtoull(value, 0, 0);
    memcpy(data + at, &number, bytes);
    return 1;
}

static int call(const char *name, size_t length, const char *values)
{
    char own[64] = { 0 };
    __s32 words[16] = { 0 };
    int n = 0;
    memcpy(own, name, length < 63 ? length : 63);
    struct bpf_program *program = bpf_object__find_program_by_name(object, own);
    for (const char *at = values; at && *at && n < 16; at = strchr(at, ',') ? strchr(at, ',') + 1 : 0)
        words[n++] = strtol(at, 0, 0);
    LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = words, .ctx_size_in = 4 * n);
    if (!program || bpf_prog_test_run_opts(bpf_program__fd(program), &options) || options.retval)
        return fail("it failed", name);
    return 0;
}

static void stop(int signal)
{
    (void)signal;
}

static int prepare(int count, char **words)
{
    struct bpf_program *program;
    bpf_object__for_each_program(program, object) {
        enum bpf_prog_type type = bpf_program__type(program);
        if (type != BPF_PROG_TYPE_STRUCT_OPS && type != BPF_PROG_TYPE_SYSCALL)
            bpf_program__set_autoload(program, false);
    }
    variables(enumerator, 0, 0);
    variables(fit, 0, 0);
    for (int i = 2; i < count; i++) {
        char *value = strchr(words[i], '=');
        if (!value)
            return fail("no value", words[i]);
        if (value > words[i] && value[-1] == ')')
            continue;
        *value = 0;
        int done = strncmp(words[i], "ops.", 4) ? variables(set, words[i], value + 1) : set_ops(words[i] + 3, value + 1);
        if (!done)
            return fail("no such option", words[i]);
    }
    return 0;
}

static int link_parts(int count, char **words)
{
    LIBBPF_OPTS(bpf_linker_opts, options);
    struct bpf_linker *linker = bpf_linker__new(words[2], &options);
    if (!linker)
        return fail("it cannot be written", words[2]);
    for (int i = 3; i < count; i++) {
        LIBBPF_OPTS(bpf_linker_file_opts, of_file);
        if (bpf_linker__add_file(linker, words[i], &of_file))
            return fail("error: it cannot be linked", words[i]);
    }
    if (bpf_linker__finalize(linker))
        return fail("error: it cannot be linked", words[2]);
    bpf_linker__free(linker);
    return 0;
}

int main(int count, char **words)
{
    if (count < 2)
        return fail("scx OBJECT [NAME=VALUE ...]", "no object");
    if (count > 3 && !strcmp(words[1], "link"))
        return link_parts(count, words);
    setvbuf(stdout, 0, _IOLBF, 0);
    /* As the simulator has them: Debian's kernels do not tell their configuration. */
    LIBBPF_OPTS(bpf_object_open_opts, open, .kconfig = "CONFIG_HZ=250\nCONFIG_NR_CPUS=8192\nCONFIG_PREEMPT_RCU=y\n");
    object = bpf_object__open_file(words[1], &open);
    kernel = btf__load_vmlinux_btf();
    if (!object || !kernel)
        return fail("it cannot be read", words[1]);
    types = bpf_object__btf(object);
    if (prepare(count, words))
        return 2;
    if (bpf_object__load(object) || !scheduler())
        return fail("the kernel refuses it", words[1]);
    for (int i = 2; i < count; i++) {
        char *end = strstr(words[i], "()=");
        if (end && call(words[i], end - words[i], end + 3))
            return 2;
    }
    struct bpf_link *link = bpf_map__attach_struct_ops(scheduler());
    if (!link)
        return fail("it does not attach", words[1]);
    struct sigaction action = { .sa_handler = stop };
    sigaction(SIGTERM, &action, 0);
    sigaction(SIGINT, &action, 0);
    printf("attached\n");
    pause();
    bpf_link__destroy(link);
    return 0;
}
