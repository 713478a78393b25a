/* ADR 11: the tombstone is looked for last, and what is absent is never taken for empty. */
#include "st.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/kc_mem.h"
#include "storage/ks_fsck.h"

static struct st_vol vol;
static struct st_broker b1, b2; /* b2's operations pass the hooks */
static struct kc_uuid topic;

static struct {
    enum st_op op;
    char end[64];
    _Atomic bool armed;
    _Atomic int looks; /* listings of deleted/ */
    void (*fn)(void);
    int error;
} trap;

static struct {
    _Atomic bool closed;
    sem_t reached, pass;
} gate; /* holds the first listing of deleted/ */

static int before(void *ctx, enum st_op op, const char *path)
{
    (void)ctx;
    if (op == ST_LIST && strcmp(path, "deleted") == 0) {
        atomic_fetch_add(&trap.looks, 1);
        if (atomic_exchange(&gate.closed, false)) {
            sem_post(&gate.reached);
            sem_wait(&gate.pass);
        }
    }
    if (op == trap.op && st_ends_with(path, trap.end) && atomic_exchange(&trap.armed, false)) {
        if (trap.fn) {
            trap.fn();
        }
        return trap.error;
    }
    return 0;
}

static void set_trap(enum st_op op, const char *end, int error, void (*fn)(void))
{
    trap.op = op;
    trap.fn = fn;
    trap.error = error;
    snprintf(trap.end, sizeof(trap.end), "%s", end);
    atomic_store(&trap.armed, true);
}

static void begin(void)
{
    /* The way with the most syncs: a trap may stand at each. */
    static const struct st_hooks hooks = {.before = before, .unordered = true};
    atomic_store(&trap.armed, false);
    atomic_store(&trap.looks, 0);
    atomic_store(&gate.closed, false);
    st_begin(&vol, &b1, 1, NULL, &topic);
    st_broker_start_hooked(&b2, &vol, 2, &hooks);
}

static void end(void)
{
    st_end_pair(&vol, &b1, &b2);
}

static void remove_topic(void)
{
    KT_EQ(ks_topic_remove(b1.e, &topic, NULL), 0);
}

/* The tombstone alone: the remover has not come further yet. */
static void bury_topic(void)
{
    char id[KC_UUID_B64_LEN + 1];
    kc_uuid_to_b64(&topic, id);
    KT_EQ(ks_vol_publish(&b1.e->fs, "deleted", id, "deleted\n", 8), 0);
}

static bool topic_is_there(void)
{
    char path[KS_PATH_MAX], abs[256];
    ks_path_topic(path, &topic, NULL);
    snprintf(abs, sizeof(abs), "%s/%s", vol.dir, path);
    return access(abs, F_OK) == 0;
}

static int open_rc(void)
{
    struct st_open o;
    struct ks_open_args args = st_args(&b2, &topic, 0, &o);
    int rc = st_open_rc(&b2, &args, &o);
    KT_TRUE((rc == 0) == (o.log != NULL));
    if (o.log) {
        ks_log_own(o.log, &b2.loop);
        st_close(&b2, o.log);
    }
    return rc;
}

/* Whatever step the deletion falls on, the log does not open. */
static void nobody_opens_once_the_tombstone_stands(void) /* D2, D4 */
{
    static const struct {
        enum st_op op;
        const char *end;
        bool whole; /* all of it is removed at that moment */
    } t[] = {{ST_MKDIR, "/0", true},   {ST_MKDIR, "/0", false},   {ST_LINK, "ctl.0", false},
             {ST_LINK, "ctl.0", true}, {ST_SYNCDIR, "/0", false}, {ST_SYNCDIR, "/0", true}};
    for (size_t i = 0; i < KC_ARRAY_LEN(t); i++) {
        begin();
        set_trap(t[i].op, t[i].end, 0, t[i].whole ? remove_topic : bury_topic);
        KT_EQ(open_rc(), KC_E_GONE);
        KT_FALSE(trap.armed);
        remove_topic(); /* again: whatever the claimant left goes, too */
        KT_FALSE(topic_is_there());
        KT_EQ(open_rc(), KC_E_GONE);
        KT_FALSE(topic_is_there());
        end();
    }
}

static void a_takeover_sees_the_tombstone_too(void)
{
    begin();
    struct ks_log *l1 = st_log(&b1, &topic, 0);
    st_put(&b1, l1, 3);
    set_trap(ST_LINK, "ctl.2", 0, bury_topic); /* the seal */
    KT_EQ(open_rc(), KC_E_GONE);
    KT_FALSE(trap.armed);
    st_close(&b1, l1);
    end();
}

static void a_log_whose_topic_was_deleted_is_not_claimed_again(void)
{
    begin();
    struct ks_log *log = st_log(&b2, &topic, 0);
    KT_EQ(st_put(&b2, log, 3), 0);
    bury_topic();
    set_trap(ST_DATASYNC, ".log", -EIO, NULL);
    KT_EQ(st_put(&b2, log, 1), -56);
    while (!log->gone) { /* the recovery finds the tombstone */
        uv_run(&b2.loop.uv, UV_RUN_ONCE);
    }
    KT_EQ(st_put(&b2, log, 1), -6);
    st_close(&b2, log);
    end();
}

static void a_look_that_fails_opens_nothing(void)
{
    begin();
    struct st_seal s;
    struct ks_log *log = st_log(&b1, &topic, 0);
    st_seal(&b1, log, &s);
    set_trap(ST_LIST, "deleted", -EIO, NULL);
    KT_EQ(open_rc(), -EIO);
    KT_EQ(open_rc(), 0);
    end();
}

/* A file that the chain names is gone: open or sealed, alone or with the topic. */
static void an_absent_file_ends_the_takeover(void) /* D3 */
{
    for (int sealed = 0; sealed < 2; sealed++) {
        for (int deleted = 0; deleted < 2; deleted++) {
            begin();
            char path[256];
            struct st_seal s;
            struct ks_log *log = st_log(&b1, &topic, 0);
            st_put(&b1, log, 3);
            st_data_path(&vol, log, path);
            if (sealed) {
                st_seal(&b1, log, &s);
            }
            KT_EQ(unlink(path), 0);
            if (deleted) {
                bury_topic();
            }
            KT_EQ(open_rc(), deleted ? KC_E_GONE : KC_E_CORRUPT);
            KT_EQ(open_rc(), deleted ? KC_E_GONE : KC_E_CORRUPT);
            if (!sealed) {
                st_close(&b1, log);
            }
            end();
        }
    }
}

static char victim_path[256];

static void claim_and_drop(void)
{
    struct ks_rec r = {.type = KS_CLAIM, .k = 3, .epoch = 2};
    r.claim.broker = 1;
    r.claim.incarnation = b1.inc;
    r.claim.file = (struct ks_file_id){.inc8 = 3, .seq = 0};
    KT_EQ(ks_chain_append(&b1.e->fs, &topic, 0, &r, NULL, NULL), 0);
    KT_EQ(unlink(victim_path), 0); /* after a TRIM, say */
}

/* A claimant that was slow finds files gone: a newer owner has dropped them. */
static void who_is_deposed_calls_nothing_corrupt(void)
{
    begin();
    struct st_seal s;
    char name[KS_FILE_NAME_LEN];
    struct ks_log *log = st_log(&b1, &topic, 0);
    st_put(&b1, log, 3);
    st_data_path(&vol, log, victim_path);
    ks_file_name(log->c_file->id, name);
    st_seal(&b1, log, &s);
    set_trap(ST_OPEN, name, 0, claim_and_drop);
    KT_EQ(open_rc(), KC_E_DEPOSED);
    KT_FALSE(trap.armed);
    end();
}

static void a_damaged_file_is_read_around(void)
{
    begin();
    char path[256];
    struct st_seal s;
    struct ks_log *log = st_log(&b1, &topic, 0);
    st_put(&b1, log, 3);
    st_put(&b1, log, 3);
    st_data_path(&vol, log, path);
    uint64_t half = log->c_acked / 2;
    st_seal(&b1, log, &s);
    KT_EQ(truncate(path, (off_t)half), 0);
    log = st_log(&b2, &topic, 0);
    KT_EQ(ks_log_offsets(log).high_watermark, 6);
    KT_EQ(st_read(&b2, log, 3, 6, 1000).r.error, 56);
    KT_EQ(st_read(&b2, log, 0, 6, 1000).last, 2);
    KT_EQ(st_put(&b2, log, 1), 6);
    st_close(&b2, log);
    end();
}

static void meta_that_was_written_behind_a_removal_is_taken_back(void) /* D7 */
{
    static const struct {
        enum st_op op;
        const char *end;
    } t[] = {{ST_MKDIR, ""}, {ST_RENAME, "meta"}, {ST_SYNCDIR, "topics"}};
    for (size_t i = 0; i < KC_ARRAY_LEN(t); i++) {
        begin();
        struct ks_topic_meta m = {.id = topic, .name = "a", .partitions = 1};
        set_trap(t[i].op, t[i].end, 0, remove_topic);
        int rc = ks_topic_write(b2.e, &m, NULL);
        KT_FALSE(trap.armed);
        KT_TRUE(rc == KC_E_GONE || rc == -ENOENT); /* its directory may go in the middle */
        if (rc == KC_E_GONE) {
            KT_FALSE(topic_is_there());
        }
        struct ks_inventory *inv;
        KT_REQUIRE(ks_inventory_read(b1.e, &inv, NULL) == 0);
        KT_EQ(inv->n, 0);
        KT_EQ(inv->n_deleted, 1);
        ks_inventory_free(inv);
        KT_EQ(ks_topic_write(b2.e, &m, NULL), KC_E_GONE);
        end();
    }
}

/* One listing serves everybody who asked before it began, and nobody who asked later. */
static void many_takeovers_share_a_look(void)
{
    enum { N = 9 };
    begin();
    struct st_open o[N];
    for (int i = 0; i < N; i++) { /* each has its directory: only the last look is left */
        struct st_seal s;
        struct ks_log *log = st_log(&b1, &topic, i);
        st_seal(&b1, log, &s);
    }
    sem_init(&gate.reached, 0, 0);
    sem_init(&gate.pass, 0, 0);
    atomic_store(&gate.closed, true);
    struct ks_open_args args = st_args(&b2, &topic, 0, &o[0]);
    ks_log_open(b2.e, &args);
    sem_wait(&gate.reached);
    for (int i = 1; i < N; i++) {
        args = st_args(&b2, &topic, i, &o[i]);
        ks_log_open(b2.e, &args);
    }
    for (bool all = false; !all; sched_yield()) {
        pthread_mutex_lock(&b2.e->graves.lock);
        all = b2.e->graves.waiting == N;
        pthread_mutex_unlock(&b2.e->graves.lock);
    }
    bury_topic(); /* seen by those who came late; the first one's listing is what it is */
    sem_post(&gate.pass);
    for (int i = 0; i < N; i++) {
        st_until(&b2, &o[i].done);
        KT_TRUE(i == 0 || o[i].rc == KC_E_GONE);
        if (o[i].log) {
            ks_log_own(o[i].log, &b2.loop);
            st_close(&b2, o[i].log);
        }
    }
    KT_EQ(trap.looks, 2);
    end();
}

KT_MAIN("graves", KT(nobody_opens_once_the_tombstone_stands), KT(a_takeover_sees_the_tombstone_too),
        KT(a_log_whose_topic_was_deleted_is_not_claimed_again), KT(a_look_that_fails_opens_nothing),
        KT(an_absent_file_ends_the_takeover), KT(who_is_deposed_calls_nothing_corrupt),
        KT(a_damaged_file_is_read_around), KT(meta_that_was_written_behind_a_removal_is_taken_back),
        KT(many_takeovers_share_a_look))
