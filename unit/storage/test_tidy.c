/* What earlier lives and deleted topics left goes: in order, and never what somebody may still need. */
#include "st.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"

static struct st_vol vol;
static struct st_broker b1, b2;
static struct kc_uuid topic;

/* The order of what is done to one incarnation. */
static struct {
    char hex[KC_UUID_HEX_LEN + 1];
    _Atomic int clock, fenced, looked, journal, claim_file;
    _Atomic bool no_chains;
} seen;

static int before(void *ctx, enum st_op op, const char *path)
{
    (void)ctx;
    bool about = *seen.hex && strstr(path, seen.hex);
    int now = atomic_fetch_add(&seen.clock, 1) + 1;
    if (op == ST_EXTEND && about) {
        atomic_store(&seen.fenced, now);
    } else if (op == ST_OPEN && strstr(path, "/1/ctl.0")) {
        if (atomic_load(&seen.no_chains)) {
            return -EIO;
        }
        atomic_store(&seen.looked, now);
    } else if (op == ST_UNLINK && about) {
        atomic_store(strstr(path, ".j") ? &seen.journal : &seen.claim_file, now);
    }
    return 0;
}

static void start(struct st_broker *b, int32_t id)
{
    static const struct st_hooks hooks = {.before = before};
    struct ks_fs fs;
    st_fault_fs(&fs, &vol, &hooks);
    st_broker_start_on(b, &fs, id);
    atomic_store(&b->e->inc->claimed, false); /* as it is with a real one */
}

static void begin(void)
{
    memset(&seen, 0, sizeof(seen));
    st_vol_make(&vol);
    start(&b1, 1);
    topic = kc_uuid_random();
}

static void end(struct st_broker *b)
{
    st_end_checked(&vol, b);
}

static void path_of(const char *path, char out[256])
{
    snprintf(out, 256, "%s/%s", vol.dir, path);
}

static bool there(const char *path)
{
    char full[256];
    path_of(path, full);
    return access(full, F_OK) == 0;
}

static bool has_claim_file(int32_t broker, const struct kc_uuid *inc)
{
    char path[KS_PATH_MAX];
    ks_path_inc(path, broker, inc);
    return there(path);
}

static void put_file(const char *path)
{
    char full[256];
    path_of(path, full);
    kt_file_write(full, "left over\n");
}

static void put_journal(int32_t broker, const struct kc_uuid *inc, int n)
{
    char path[KS_PATH_MAX], name[KS_PATH_MAX + 16];
    ks_path_inc(path, broker, inc);
    snprintf(name, sizeof(name), "%s.j%d", path, n);
    put_file(name);
}

static bool has_journal(int32_t broker, const struct kc_uuid *inc, int n)
{
    char path[KS_PATH_MAX], name[KS_PATH_MAX + 16];
    ks_path_inc(path, broker, inc);
    snprintf(name, sizeof(name), "%s.j%d", path, n);
    return there(name);
}

static void quiet(struct st_broker *b)
{
    while (!ks_tidy_idle(b->e)) {
        uv_run(&b->loop.uv, UV_RUN_NOWAIT);
    }
}

/* A whole round that begins now. */
static void tidy(struct st_broker *b)
{
    quiet(b);
    ks_tidy_now(b->e);
    quiet(b);
}

static void seal_and_restart(void)
{
    struct st_seal s;
    struct ks_log *log = st_log(&b1, &topic, 1);
    st_put(&b1, log, 2);
    st_seal(&b1, log, &s);
    KT_EQ(s.rc, 0);
    st_broker_stop(&b1);
    start(&b2, 1);
}

static void a_sealed_life_goes_in_order_after_the_next_one_claimed(void)
{
    begin();
    struct kc_uuid old = b1.inc, other = kc_uuid_random();
    kc_uuid_to_hex(&old, seen.hex);
    put_journal(1, &old, 0);
    put_journal(1, &old, 12);
    struct st_broker b3;
    start(&b3, 3); /* another broker's are its own business */
    seal_and_restart();
    put_journal(1, &other, 0); /* came after us: no business of ours */
    tidy(&b2);
    KT_TRUE(has_claim_file(1, &old)); /* no image has named us yet */
    KT_EQ(seen.fenced, 0);
    struct ks_log *log = st_log(&b2, &topic, 0);
    quiet(&b2); /* the first claim asks for a round */
    KT_FALSE(has_claim_file(1, &old));
    KT_FALSE(has_journal(1, &old, 0) || has_journal(1, &old, 12));
    KT_TRUE(has_journal(1, &other, 0));
    KT_TRUE(has_claim_file(1, &b2.inc));
    KT_TRUE(has_claim_file(3, &b3.inc));
    KT_TRUE(0 < seen.fenced && seen.fenced < seen.looked && seen.looked < seen.journal &&
            seen.journal < seen.claim_file);
    KT_EQ(atomic_load(&b2.e->tidy.claim_files), 1);
    KT_EQ(st_put(&b2, log, 1), 0);
    st_close(&b2, log);
    st_broker_stop(&b3);
    end(&b2);
}

static void a_life_with_an_unsealed_epoch_stays_until_it_is_sealed(void)
{
    begin();
    struct kc_uuid old = b1.inc;
    put_journal(1, &old, 0);
    struct ks_log *log = st_log(&b1, &topic, 1);
    st_put(&b1, log, 3);
    st_close(&b1, log); /* without a seal */
    st_broker_stop(&b1);
    start(&b2, 1);
    log = st_log(&b2, &topic, 0);
    tidy(&b2);
    KT_TRUE(has_claim_file(1, &old));
    KT_TRUE(has_journal(1, &old, 0));
    struct ks_log *again = st_log(&b2, &topic, 1);
    KT_EQ(st_count(&b2, again), 3);
    tidy(&b2);
    KT_FALSE(has_claim_file(1, &old));
    KT_FALSE(has_journal(1, &old, 0));
    st_close(&b2, again);
    st_close(&b2, log);
    end(&b2);
}

static void a_chain_that_cannot_be_read_may_name_anybody(void)
{
    begin();
    struct kc_uuid old = b1.inc;
    seal_and_restart();
    atomic_store(&seen.no_chains, true);
    struct ks_log *log = st_log(&b2, &topic, 0);
    tidy(&b2);
    KT_TRUE(has_claim_file(1, &old));
    atomic_store(&seen.no_chains, false);
    tidy(&b2);
    KT_FALSE(has_claim_file(1, &old));
    st_close(&b2, log);
    end(&b2);
}

static void a_paused_life_that_wakes_acks_nothing_and_takes_nobody_for_old(void)
{
    begin();
    struct kc_uuid old = b1.inc;
    struct ks_log *held = st_log(&b1, &topic, 1);
    struct st_seal s;
    st_put(&b1, held, 1);
    st_seal(&b1, held, &s); /* nothing unsealed names it */
    quiet(&b1);
    start(&b2, 1); /* the next life; the first one only sleeps */
    struct ks_log *log = st_log(&b2, &topic, 0);
    quiet(&b2);
    KT_FALSE(has_claim_file(1, &old));
    tidy(&b1); /* it wakes: what it knows as old is what was there before it */
    KT_TRUE(has_claim_file(1, &b2.inc));
    KT_EQ(st_put(&b2, log, 1), 0);
    struct st_open o;
    struct ks_open_args args = st_args(&b1, &topic, 2, &o);
    if (st_open_rc(&b1, &args, &o) == 0) { /* it may even claim */
        ks_log_own(o.log, &b1.loop);
        KT_EQ(st_put(&b1, o.log, 1), -6);
        st_close(&b1, o.log);
    }
    st_until(&b1, &b1.fenced);
    KT_EQ(b2.n_fenced, 0);
    st_close(&b2, log);
    st_broker_stop(&b1);
    end(&b2);
}

static void temporary_names_go_when_they_have_been_there_for_long(void)
{
    begin();
    struct ks_log *log = st_log(&b1, &topic, 0);
    char dir[KS_PATH_MAX], tmp[KS_PATH_MAX + 32], foreign[KS_PATH_MAX + 32];
    ks_path_part(dir, &topic, 0, NULL);
    snprintf(tmp, sizeof(tmp), "%s/tmp.0123456789abcdef", dir);
    snprintf(foreign, sizeof(foreign), "%s/tmp.txt", dir);
    tidy(&b1); /* the round of the start is over: it would see one of them without the other */
    put_file(tmp);
    put_file("inc/1/tmp.00000000000000aa");
    put_file(foreign);
    tidy(&b1);
    tidy(&b1);
    KT_TRUE(there(tmp)); /* seen, but a publication may be at it */
    b1.e->tidy_ms = 0; /* ten minutes later */
    tidy(&b1);
    KT_FALSE(there(tmp) || there("inc/1/tmp.00000000000000aa"));
    KT_TRUE(there(foreign));
    KT_EQ(atomic_load(&b1.e->tidy.tmps), 2);
    b1.e->tidy_ms = KS_TIDY_MS;
    KT_EQ(st_put(&b1, log, 1), 0);
    st_close(&b1, log);
    end(&b1);
}

static void what_is_left_of_deleted_topics_goes(void)
{
    begin();
    struct kc_uuid dead = kc_uuid_random();
    struct ks_log *log = st_log(&b1, &topic, 0);
    struct ks_log *gone = st_log(&b1, &dead, 0);
    char dir[KS_PATH_MAX], id[KC_UUID_B64_LEN + 1], kept[KS_PATH_MAX];
    st_put(&b1, gone, 1);
    st_close(&b1, gone);
    kc_uuid_to_b64(&dead, id);
    KT_EQ(ks_vol_publish(&b1.e->fs, "deleted", id, "deleted\n", 8), 0);
    ks_path_topic(dir, &dead, NULL);
    ks_path_topic(kept, &topic, NULL);
    KT_TRUE(there(dir));
    tidy(&b1);
    KT_FALSE(there(dir));
    KT_TRUE(there(kept));
    snprintf(dir, sizeof(dir), "deleted/%s", id);
    KT_TRUE(there(dir)); /* for ever */
    KT_EQ(atomic_load(&b1.e->tidy.topics), 1);
    st_close(&b1, log);
    end(&b1);
}

static void names_are_told_apart(void)
{
    struct kc_uuid id = kc_uuid_random(), got;
    char hex[KC_UUID_HEX_LEN + 1], name[KC_UUID_HEX_LEN + 40];
    bool journal;
    kc_uuid_to_hex(&id, hex);
    KT_TRUE(ks_inc_parse(hex, &got, &journal) && !journal && kc_uuid_eq(&got, &id));
    snprintf(name, sizeof(name), "%s.j7", hex);
    KT_TRUE(ks_inc_parse(name, &got, &journal) && journal && kc_uuid_eq(&got, &id));
    static const char *const bad[] = {".j", ".j-1", ".jx", ".k1", "0", ".j99999999999999999999"};
    for (size_t i = 0; i < KC_ARRAY_LEN(bad); i++) {
        snprintf(name, sizeof(name), "%s%s", hex, bad[i]);
        KT_FALSE(ks_inc_parse(name, &got, &journal));
    }
    KT_FALSE(ks_inc_parse("reserve.3", &got, &journal));
    KT_FALSE(ks_inc_parse("", &got, &journal));
}

KT_MAIN("tidy", KT(a_sealed_life_goes_in_order_after_the_next_one_claimed),
        KT(a_life_with_an_unsealed_epoch_stays_until_it_is_sealed),
        KT(a_chain_that_cannot_be_read_may_name_anybody),
        KT(a_paused_life_that_wakes_acks_nothing_and_takes_nobody_for_old),
        KT(temporary_names_go_when_they_have_been_there_for_long),
        KT(what_is_left_of_deleted_topics_goes), KT(names_are_told_apart))
