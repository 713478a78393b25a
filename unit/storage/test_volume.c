/* The volume around the logs: identity, probe, topics, producer ids. */
#include "st_one.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_mem.h"
#include "storage/ks_probe.h"

static void a_volume_keeps_its_cluster_id(void)
{
    st_vol_make(&one_vol);
    struct ks_opts opts = {.dir = one_vol.dir, .broker_id = 1};
    char id[KC_UUID_B64_LEN + 1] = "", again[KC_UUID_B64_LEN + 1] = "",
                              foreign[KC_UUID_B64_LEN + 1] = "anotherClusterHere0000";
    struct ks_engine *e;
    struct kc_err err;
    KT_REQUIRE(ks_engine_open(&opts, id, &e, &err) == 0);
    KT_EQ(strlen(id), KC_UUID_B64_LEN);
    ks_engine_close(e);
    KT_REQUIRE(ks_engine_open(&opts, again, &e, &err) == 0);
    KT_STR(again, id);
    ks_engine_close(e);
    KT_EQ(ks_engine_open(&opts, foreign, &e, &err), KC_E_FOREIGN);
    st_vol_remove(&one_vol);
}

/* A volume that caches attributes, as an NFS client does without the forced read. */
static int lie_stat(void *ctx, int fd, struct ks_stat *ret)
{
    (void)ctx;
    (void)fd;
    *ret = (struct ks_stat){.size = 1, .nlink = 1};
    return 0;
}

static void a_volume_that_lies_is_refused(void)
{
    st_vol_make(&one_vol);
    struct ks_fs fs;
    struct ks_probe p;
    struct kc_err err = {0};
    KT_REQUIRE(ks_fs_posix(&fs, one_vol.dir, NULL) == 0);
    KT_EQ(ks_probe_run(&fs, &p, &err), 0);
    KT_TRUE(p.sync_us > 0);
    struct ks_fs_ops ops = *fs.ops;
    ops.stat = lie_stat;
    fs.ops = &ops;
    KT_EQ(ks_probe_run(&fs, &p, &err), KC_E_UNSUPPORTED);
    KT_TRUE(strstr(err.msg, "stale") != NULL);
    ks_fs_fini(&fs);
    KT_EQ(rmdir(one_vol.dir), 0); /* the probe left nothing behind */
}

static struct ks_topic_meta meta_of(const char *name, int32_t partitions)
{
    struct ks_topic_meta m = {.id = kc_uuid_random(), .partitions = partitions};
    snprintf(m.name, sizeof(m.name), "%s", name);
    m.configs_json = (char *)(uintptr_t) "{\"retention.ms\":\"1000\"}";
    return m;
}

static void topics_are_listed_until_they_are_removed(void)
{
    one_begin();
    struct ks_topic_meta a = meta_of("orders", 3), b = meta_of("__consumer_offsets", 50);
    b.internal = true;
    struct kc_err err = {0};
    KT_EQ(ks_topic_write(one_b.e, &a, &err), 0);
    KT_EQ(ks_topic_write(one_b.e, &b, &err), 0);
    a.partitions = 5;
    KT_EQ(ks_topic_write(one_b.e, &a, &err), 0);
    a.partitions = 4;
    KT_EQ(ks_topic_write(one_b.e, &a, &err), -EINVAL); /* never fewer */
    struct ks_inventory *inv;
    KT_REQUIRE(ks_inventory_read(one_b.e, &inv, &err) == 0);
    KT_EQ(inv->n, 2);
    uint64_t revision = inv->revision;
    for (int i = 0; i < inv->n; i++) {
        bool orders = strcmp(inv->topics[i].name, "orders") == 0;
        KT_EQ(inv->topics[i].partitions, orders ? 5 : 50);
        KT_EQ(inv->topics[i].internal, !orders);
        KT_STR(inv->topics[i].configs_json, "{\"retention.ms\":\"1000\"}");
    }
    ks_inventory_free(inv);
    struct ks_log *log = st_log(&one_b, &a.id, 0);
    st_put(&one_b, log, 1);
    st_close(&one_b, log);
    KT_EQ(ks_topic_remove(one_b.e, &a.id, &err), 0);
    KT_EQ(ks_topic_remove(one_b.e, &a.id, &err), 0); /* idempotent */
    KT_REQUIRE(ks_inventory_read(one_b.e, &inv, &err) == 0);
    KT_EQ(inv->n, 1);
    KT_EQ(inv->n_deleted, 1);
    KT_TRUE(inv->revision != revision);
    ks_inventory_free(inv);
    KT_EQ(ks_topic_write(one_b.e, &a, &err), KC_E_GONE);
    struct st_open o;
    struct ks_open_args args = st_args(&one_b, &a.id, 0, &o);
    KT_EQ(st_open_rc(&one_b, &args, &o), KC_E_GONE);
    one_end();
}

static void producer_id_blocks_are_given_once(void)
{
    one_begin();
    struct st_broker b2;
    st_broker_start(&b2, &one_vol, 2);
    int64_t next = 0;
    for (int i = 0; i < 6; i++) {
        int64_t first;
        int32_t count;
        KT_EQ(ks_pid_block(i % 2 ? b2.e : one_b.e, &first, &count, NULL), 0);
        KT_TRUE(first >= next);
        KT_TRUE(count > 0);
        next = first + count;
    }
    st_broker_stop(&b2);
    one_end();
}

static void damage_under_a_seal_costs_that_range_only(void)
{
    one_begin();
    char path[256];
    struct ks_log *log = st_log(&one_b, &one_topic, 0);
    for (int i = 0; i < 10; i++) {
        st_put(&one_b, log, 2);
    }
    st_data_path(&one_vol, log, path);
    struct st_seal s;
    st_seal(&one_b, log, &s);
    int fd = open(path, O_WRONLY);
    KT_EQ(pwrite(fd, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16, 500), 16);
    close(fd);
    log = st_log(&one_b, &one_topic, 0); /* opens: the rest of the log is sound */
    KT_EQ(ks_log_offsets(log).high_watermark, 20);
    KT_EQ(st_put(&one_b, log, 1), 20);
    KT_EQ(st_read(&one_b, log, 19, 21, 1000).r.error, 56);
    KT_EQ(st_read(&one_b, log, 0, 21, 10).r.error, 0);
    struct st_read r = st_read(&one_b, log, 20, 21, 1000);
    KT_EQ(r.r.error, 0);
    KT_EQ(r.first, 20);
    st_close(&one_b, log);
    one_end();
}

static void a_thousand_partitions_open_quickly(void)
{
    one_begin();
    enum { N = 1000 };
    static struct st_open o[N];
    for (int again = 0; again < 2; again++) {
        int64_t before = kc_mono_ms();
        for (int i = 0; i < N; i++) {
            struct ks_open_args args = st_args(&one_b, &one_topic, i, &o[i]);
            ks_log_open(one_b.e, &args);
        }
        for (int i = 0; i < N; i++) {
            st_until(&one_b, &o[i].done);
            KT_EQ(o[i].rc, 0);
        }
        printf("  %d partitions%s in %lld ms\n", N, again ? " again" : "",
               (long long)(kc_mono_ms() - before));
        for (int i = 0; i < N; i++) {
            ks_log_own(o[i].log, &one_b.loop);
            ks_log_close(o[i].log);
        }
    }
    one_end();
}

static struct ks_fs whole;
static ks_list_fn list_fn;
static void *list_arg;

static bool all_but_one(void *arg, const char *name)
{
    (void)arg;
    return strcmp(name, "ctl.1") == 0 || list_fn(list_arg, name);
}

static int torn_list(void *ctx, const char *path, ks_list_fn fn, void *arg)
{
    list_fn = fn;
    list_arg = arg;
    return whole.ops->list(ctx, path, all_but_one, NULL);
}

/* A record that is linked while the directory is read may be left out where a later one is not. */
static void a_listing_torn_by_a_growing_chain_is_no_gap(void)
{
    one_begin();
    for (int i = 0; i < 2; i++) {
        struct ks_log *log = st_log(&one_b, &one_topic, 0);
        st_put(&one_b, log, 1);
        st_close(&one_b, log);
    }
    KT_REQUIRE(ks_fs_posix(&whole, one_vol.dir, NULL) == 0);
    struct ks_fs_ops ops = *whole.ops;
    ops.list = torn_list;
    struct ks_fs torn;
    ks_fs_init(&torn, &ops, whole.ctx);
    struct ks_chain chain;
    ks_chain_init(&chain);
    KT_EQ(ks_chain_load(&torn, &one_topic, 0, 0, &chain, NULL), 0);
    KT_EQ(chain.n_epochs, 2);
    ks_chain_fini(&chain);
    ks_fs_fini(&whole);
    one_end();
}

KT_MAIN("volume", KT(a_volume_keeps_its_cluster_id), KT(a_volume_that_lies_is_refused),
        KT(topics_are_listed_until_they_are_removed), KT(producer_id_blocks_are_given_once),
        KT(damage_under_a_seal_costs_that_range_only), KT(a_thousand_partitions_open_quickly),
        KT(a_listing_torn_by_a_growing_chain_is_no_gap))
