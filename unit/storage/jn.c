#include "jn.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "base/kc_clock.h"

struct st_vol jn_vol;
struct st_broker jn_b1, jn_b2; /* jn_b1's operations pass the hooks; its turns go into journals */
struct kc_uuid jn_topic;
struct ks_fs jn_other;
struct ks_log *jn_logs[JN_PARTS];

struct jn_trap jn_trap;

static int before(void *ctx, enum st_op op, const char *path)
{
    (void)ctx;
    if (op == ST_PWRITE && atomic_load(&jn_trap.full)) {
        return -ENOSPC;
    }
    if (op != ST_DATASYNC || !jn_trap.part[0] || !strstr(path, jn_trap.part)) {
        return 0;
    }
    if (atomic_fetch_add(&jn_trap.hits, 1) == 0) {
        snprintf(jn_trap.first, sizeof(jn_trap.first), "%s", path);
    }
    atomic_fetch_add(&jn_trap.waiting, 1);
    while (atomic_load(&jn_trap.hold)) {
        sched_yield();
    }
    atomic_fetch_sub(&jn_trap.waiting, 1);
    return atomic_load(&jn_trap.fail) > 0 && atomic_fetch_sub(&jn_trap.fail, 1) > 0 ? -EIO : 0;
}

void jn_set_trap(const char *part, int fail, bool hold)
{
    jn_trap.hits = 0;
    atomic_store(&jn_trap.fail, fail);
    atomic_store(&jn_trap.hold, hold);
    snprintf(jn_trap.part, sizeof(jn_trap.part), "%s", part);
}

/* ---- a volume, two brokers, three partitions of the first ---- */

void jn_await(bool (*fn)(void))
{
    int64_t end = kc_mono_ms() + 30000;
    while (!fn()) {
        KT_REQUIRE(kc_mono_ms() < end);
        st_turn(&jn_b1);
        sched_yield();
    }
}

static bool journal_made(void)
{
    return atomic_load(&jn_b1.e->m_journals) > 0;
}

bool jn_somebody_waits(void)
{
    return atomic_load(&jn_trap.waiting) > 0;
}

void jn_begin(bool network, const struct ks_log_config *cfg)
{
    static struct st_hooks hooks;
    struct ks_fs fs;
    st_vol_make(&jn_vol);
    jn_set_trap("", 0, false);
    hooks = (struct st_hooks){.before = before, .network = network};
    st_fault_fs(&fs, &jn_vol, &hooks);
    st_broker_start_on(&jn_b1, &fs, 1);
    st_broker_start(&jn_b2, &jn_vol, 2);
    KT_REQUIRE(ks_fs_posix(&jn_other, jn_vol.dir, NULL) == 0);
    jn_topic = kc_uuid_random();
    jn_b1.e->direct_files = 0;
    for (int i = 0; i < JN_PARTS; i++) {
        struct st_open o;
        struct ks_open_args args = st_args(&jn_b1, &jn_topic, i, &o);
        args.config = cfg ? *cfg : args.config;
        KT_REQUIRE(st_open_rc(&jn_b1, &args, &o) == 0);
        jn_logs[i] = o.log;
        ks_log_own(o.log, &jn_b1.loop);
        KT_EQ(st_put(&jn_b1, jn_logs[i], 1), 0); /* the first of them asks for a journal */
    }
    jn_await(journal_made);
}

void jn_end(void)
{
    for (int i = 0; i < JN_PARTS; i++) {
        if (jn_logs[i]) {
            st_close(&jn_b1, jn_logs[i]);
        }
    }
    st_broker_stop(&jn_b1);
    st_broker_stop(&jn_b2);
    ks_fs_fini(&jn_other);
    struct ks_fsck_result r;
    st_vol_check(&jn_vol, &r);
    st_vol_remove(&jn_vol);
}

struct ks_log *jn_resumed;

/* Asked again until it is acked: the log recovers meanwhile. */
bool jn_acks_again(void)
{
    int64_t rc = st_put(&jn_b1, jn_resumed, 1);
    KT_TRUE(rc >= 0 || rc == -56);
    return rc >= 0;
}
