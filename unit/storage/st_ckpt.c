#include "st_ckpt.h"

#include <dirent.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

struct st_vol cp_vol;
struct st_broker cp_b;
struct kc_uuid cp_topic;
struct cp_trap cp_trap;
static struct st_hooks hooks;

static int before(void *ctx, enum st_op op, const char *path)
{
    (void)ctx;
    const char *part = atomic_load(&cp_trap.part);
    if (!part || op != cp_trap.op || !strstr(path, part)) {
        return 0;
    }
    atomic_fetch_add(&cp_trap.hits, 1);
    return cp_trap.rc;
}

void cp_start_broker(void)
{
    struct ks_fs fs;
    hooks = (struct st_hooks){.before = before};
    st_fault_fs(&fs, &cp_vol, &hooks);
    st_broker_start_on(&cp_b, &fs, 1);
    cp_b.e->checkpoint_bytes = CP_BYTES;
}

void cp_begin(void)
{
    st_vol_make(&cp_vol);
    cp_trap.part = NULL;
    cp_start_broker();
    cp_topic = kc_uuid_random();
}

void cp_end(void)
{
    cp_trap.part = NULL;
    st_broker_stop(&cp_b);
    st_vol_remove(&cp_vol);
}

struct ks_log *cp_open(int64_t segment_bytes)
{
    struct st_open o;
    struct ks_open_args args = st_args(&cp_b, &cp_topic, 0, &o);
    args.config.segment_bytes = segment_bytes;
    KT_REQUIRE(st_open_rc(&cp_b, &args, &o) == 0);
    ks_log_own(o.log, &cp_b.loop);
    st_turn(&cp_b);
    return o.log;
}

struct ks_log *cp_reopen(struct ks_log *log, int64_t segment_bytes)
{
    st_close(&cp_b, log);
    st_broker_stop(&cp_b);
    cp_start_broker();
    return cp_open(segment_bytes);
}

void cp_settle(struct ks_log *log)
{
    while (atomic_load(&log->ckpt.busy)) {
        sched_yield();
    }
}

void cp_put(struct ks_log *log, int n)
{
    for (int i = 0; i < n; i++) {
        struct st_batch b = {.count = 2, .value_len = CP_VALUE};
        KT_EQ(st_append(&cp_b, log, st_make(&b)).error, 0);
        cp_settle(log);
    }
}

static void part_dir(char out[256])
{
    char path[KS_PATH_MAX];
    ks_path_part(path, &cp_topic, 0, NULL);
    snprintf(out, 256, "%s/%s", cp_vol.dir, path);
}

int cp_each(const char *suffix, void (*fn)(const char *path))
{
    char dir[256], path[600];
    int n = 0;
    part_dir(dir);
    DIR *d = opendir(dir);
    KT_REQUIRE(d != NULL);
    for (struct dirent *e; (e = readdir(d));) {
        if (st_ends_with(e->d_name, suffix)) {
            snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
            n++;
            if (fn) {
                fn(path);
            }
        }
    }
    closedir(d);
    return n;
}

void cp_gone(const char *path)
{
    KT_EQ(unlink(path), 0);
}
