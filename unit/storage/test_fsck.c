/* fsck: what it tells of each kind of file that is on a volume, and of each kind of damage to it. */
#include "st_ckpt.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sk.h"
#include "st_one.h"

static struct ks_fsck_result r;
static char *text;

static void end(void)
{
    one_end();
    free(text);
    text = NULL;
}

static int fsck(void)
{
    free(text);
    return st_fsck(&one_vol, NULL, &r, &text);
}

static void tells(const char *what)
{
    if (!strstr(text, what)) {
        fprintf(stderr, "  no '%s' in:\n%s", what, text);
    }
    KT_TRUE(strstr(text, what) != NULL);
}

/* A file on the volume. */
static void put(const char *path, const char *bytes)
{
    char full[400];
    snprintf(full, sizeof(full), "%s/%s", one_vol.dir, path);
    kt_file_write(full, "%s", bytes);
}

static void gone(const char *path)
{
    char full[400];
    snprintf(full, sizeof(full), "%s/%s", one_vol.dir, path);
    KT_EQ(unlink(full), 0);
}

static void put_in_part(const char *name)
{
    char path[KS_PATH_MAX + 64];
    ks_path_part(path, &one_topic, 0, NULL);
    size_t n = strlen(path);
    snprintf(path + n, sizeof(path) - n, "/%s", name);
    put(path, "x");
}

/* Changes a byte; from the end if at < 0. */
static void flip(const char *full, off_t at)
{
    int fd = open(full, O_RDWR);
    uint8_t b;
    KT_REQUIRE(fd >= 0);
    at = at < 0 ? lseek(fd, 0, SEEK_END) + at : at;
    KT_REQUIRE(pread(fd, &b, 1, at) == 1);
    b ^= 0xff;
    KT_REQUIRE(pwrite(fd, &b, 1, at) == 1);
    close(fd);
}

/* Ten batches of two records under a seal; the path of their file. */
static void sealed(char path[256])
{
    struct st_seal s;
    struct ks_log *log = st_log(&one_b, &one_topic, 0);
    for (int i = 0; i < 10; i++) {
        st_put(&one_b, log, 2);
    }
    st_data_path(&one_vol, log, path);
    st_seal(&one_b, log, &s);
    KT_EQ(s.rc, 0);
}

static void write_meta(int32_t partitions)
{
    struct ks_topic_meta m = {.id = one_topic, .name = "orders", .partitions = partitions};
    KT_EQ(ks_topic_write(one_b.e, &m, NULL), 0);
}

static void an_open_epoch_is_no_error(void)
{
    one_begin();
    struct ks_log *log = st_log(&one_b, &one_topic, 0);
    for (int i = 0; i < 10; i++) {
        st_put(&one_b, log, 2);
    }
    KT_EQ(fsck(), 0);
    KT_EQ(r.open_epochs, 1);
    KT_EQ(r.live, 1);
    tells("seal epoch 0 at offset 20");
    struct st_seal s;
    st_seal(&one_b, log, &s);
    KT_EQ(fsck(), 0);
    KT_EQ(r.open_epochs, 0);
    KT_EQ(r.batches, 10);
    KT_EQ(r.partitions, 1);
    KT_EQ(r.zombie_bytes, 0);
    KT_EQ(r.temporary + r.strange + r.leftovers + r.tombstones, 0);
    end();
}

static void late_bytes_are_counted_and_no_error(void)
{
    one_begin();
    char path[256];
    sealed(path);
    st_file_append(path, "late", 4);
    KT_EQ(fsck(), 0);
    KT_EQ(r.zombie_bytes, 4);
    tells("4 bytes beyond the seal");
    end();
}

static void damage_under_a_seal_is_an_error(void)
{
    one_begin();
    char path[256];
    sealed(path);
    flip(path, 300);
    KT_EQ(fsck(), KC_E_CORRUPT);
    KT_EQ(r.errors, 1);
    tells("ERROR");
    tells("sealed up to 20");
    end();
}

static void a_file_that_is_missing_or_short_is_an_error(void)
{
    one_begin();
    char path[256];
    sealed(path);
    struct stat st;
    KT_EQ(stat(path, &st), 0);
    KT_EQ(truncate(path, st.st_size - 1), 0);
    KT_EQ(fsck(), KC_E_CORRUPT);
    tells("valid up to offset 18");
    KT_EQ(unlink(path), 0);
    KT_EQ(fsck(), KC_E_CORRUPT);
    KT_EQ(r.errors, 1);
    tells("offsets 0 to 19");
    end();
}

static void a_chain_with_a_gap_is_an_error_and_not_repaired(void)
{
    one_begin();
    char path[256], ctl[KS_PATH_MAX];
    sealed(path);
    st_close(&one_b, st_log(&one_b, &one_topic, 0));
    ks_path_part(ctl, &one_topic, 0, "ctl.1");
    gone(ctl); /* I7: contiguous */
    struct st_open o;
    struct ks_open_args args = st_args(&one_b, &one_topic, 0, &o);
    KT_EQ(st_open_rc(&one_b, &args, &o), KC_E_CORRUPT);
    KT_EQ(fsck(), KC_E_CORRUPT);
    tells("gap at ctl.1");
    end();
}

static void a_damaged_record_is_an_error(void)
{
    one_begin();
    char path[256], ctl[KS_PATH_MAX], full[400];
    sealed(path);
    ks_path_part(ctl, &one_topic, 0, "ctl.0");
    snprintf(full, sizeof(full), "%s/%s", one_vol.dir, ctl);
    flip(full, -1);
    KT_EQ(fsck(), KC_E_CORRUPT);
    tells("ctl.0");
    end();
}

static void files_that_no_record_names_are_told(void)
{
    one_begin();
    char path[256];
    sealed(path);
    put_in_part("deadbeef-7.log");
    KT_EQ(fsck(), 0);
    KT_EQ(r.leftovers, 1);
    tells("deadbeef-7.log: left over, no record names it");
    end();
}

static void what_a_crash_left_unfinished_is_told(void)
{
    one_begin();
    char path[256], dir[KS_PATH_MAX];
    sealed(path);
    put_in_part("tmp.0123456789abcdef");
    put_in_part(".nfs0000000012345678");
    ks_path_topic(dir, &one_topic, "tmp.0123456789abcdef");
    put(dir, "x");
    put("tmp.0123456789abcdef", "x");
    put(".probe-0123456789abcdef.a", "x");
    put("inc/1/tmp.0123456789abcdef", "x");
    put("deleted/tmp.0123456789abcdef", "x");
    put("pids/tmp.0123456789abcdef", "x");
    KT_EQ(fsck(), 0);
    KT_EQ(r.temporary, 8);
    KT_EQ(r.leftovers + r.strange, 0);
    tells("pids/tmp.0123456789abcdef: left of something unfinished");
    end();
}

static void names_that_no_broker_makes_are_told(void)
{
    one_begin();
    char path[256], dir[KS_PATH_MAX];
    sealed(path);
    static const char *const in_part[] = {"notes.txt", "ctl.x", "ctl.-1", "a-b.log", "tm.1"};
    for (size_t i = 0; i < KC_ARRAY_LEN(in_part); i++) {
        put_in_part(in_part[i]);
    }
    ks_path_topic(dir, &one_topic, "meta.bak");
    put(dir, "x");
    put("cluster.json.bak", "x");
    put("inc/one", "x");
    put("inc/1/not-an-incarnation", "x");
    put("topics/orders", "x");
    put("deleted/orders", "x");
    put("pids/x", "x");
    put("inc/1/reserve.3", "x"); /* this one is known, and the next one */
    put("inc/1/0123456789abcdef0123456789abcdef.j3", "x");
    put("inc/1/0123456789abcdef0123456789abcdef.jx", "x");
    put("inc/1/reserve.x", "x");
    KT_EQ(fsck(), 0);
    KT_EQ(r.strange, 14);
    KT_EQ(r.journals, 1);
    KT_EQ(r.temporary + r.leftovers, 0);
    tells("notes.txt: no broker makes such a name");
    end();
}

static void flip_first(const char *full)
{
    flip(full, 0);
}

static void fsck_hints(uint64_t bad)
{
    free(text);
    KT_EQ(st_fsck(&cp_vol, NULL, &r, &text), 0);
    KT_EQ(r.bad_hints, bad);
    KT_EQ(r.strange, 0);
}

static void checkpoints_that_do_not_verify_are_no_error(void)
{
    cp_begin();
    struct ks_log *log = cp_open(60000);
    cp_put(log, 40);
    struct st_seal s;
    st_seal(&cp_b, log, &s);
    st_broker_stop(&cp_b);
    fsck_hints(0);
    KT_TRUE(r.hints > 0);
    fsck_hints((uint64_t)cp_each(".snap", flip_first));
    tells("harmless, it will be ignored");
    cp_start_broker();
    cp_end();
}

static void a_compacted_log_is_checked_as_others_are(void)
{
    one_begin();
    struct st_open o;
    struct ks_open_args a = sk_args(&one_b, &one_topic, &o);
    struct ks_log *log = sk_log(&one_b, &one_topic, &a, &o);
    for (int32_t i = 0; i < 100; i++) {
        KT_TRUE(sk_put(&one_b, log, i % 5, i) >= 0);
    }
    sk_clean(&one_b);
    KT_TRUE(log->st.segs[0].compacted);
    char path[KS_PATH_MAX], full[400];
    ks_path_file(path, &one_topic, 0, log->st.segs[0].file->id);
    snprintf(full, sizeof(full), "%s/%s", one_vol.dir, path);
    st_close(&one_b, log);
    KT_EQ(fsck(), 0);
    KT_EQ(r.leftovers + r.strange, 0);
    flip(full, -1);
    KT_EQ(fsck(), KC_E_CORRUPT);
    end();
}

static void a_topic_that_nobody_would_serve_is_told(void)
{
    one_begin();
    char path[256], meta[KS_PATH_MAX];
    sealed(path);
    KT_EQ(fsck(), 0);
    KT_EQ(r.unlisted, 1);
    tells("has no meta");
    write_meta(1);
    KT_EQ(fsck(), 0);
    KT_EQ(r.unlisted, 0);
    st_close(&one_b, st_log(&one_b, &one_topic, 3));
    KT_EQ(fsck(), 0);
    KT_EQ(r.unlisted, 1);
    tells("beyond the 1 partitions");
    ks_path_topic(meta, &one_topic, "meta");
    put(meta, "{\"format\":1");
    KT_EQ(fsck(), KC_E_CORRUPT); /* it hides every topic from the inventory */
    tells("no broker lists any topic");
    struct ks_inventory *inv;
    KT_EQ(ks_inventory_read(one_b.e, &inv, NULL), KC_E_CORRUPT);
    end();
}

static void a_volume_of_no_cluster_is_told(void)
{
    one_begin();
    put("cluster.json", "{}");
    KT_EQ(fsck(), KC_E_CORRUPT);
    tells("cluster.json is not of this format");
    gone("cluster.json");
    KT_EQ(fsck(), 0);
    tells("no cluster.json");
    end();
}

/* A removal that was interrupted leaves parts of a topic: no damage, until another one ends it. */
static void a_half_removed_topic_is_deleted(void)
{
    one_begin();
    char path[256], ctl[KS_PATH_MAX], id[KC_UUID_B64_LEN + 1];
    sealed(path);
    st_close(&one_b, st_log(&one_b, &one_topic, 0));
    ks_path_part(ctl, &one_topic, 0, "ctl.0");
    gone(ctl);
    KT_EQ(fsck(), KC_E_CORRUPT); /* without a tombstone it is damage */
    kc_uuid_to_b64(&one_topic, id);
    KT_EQ(ks_vol_publish(&one_b.e->fs, "deleted", id, "deleted\n", 8), 0);
    KT_EQ(fsck(), 0);
    KT_EQ(r.deleted, 1);
    KT_EQ(r.tombstones, 1);
    KT_EQ(r.topics + r.unlisted, 0);
    KT_EQ(ks_topic_remove(one_b.e, &one_topic, NULL), 0);
    KT_EQ(fsck(), 0);
    KT_EQ(r.deleted, 0);
    KT_EQ(r.tombstones, 1);
    end();
}

KT_MAIN("fsck", KT(an_open_epoch_is_no_error), KT(late_bytes_are_counted_and_no_error),
        KT(damage_under_a_seal_is_an_error), KT(a_file_that_is_missing_or_short_is_an_error),
        KT(a_chain_with_a_gap_is_an_error_and_not_repaired), KT(a_damaged_record_is_an_error),
        KT(files_that_no_record_names_are_told), KT(what_a_crash_left_unfinished_is_told),
        KT(names_that_no_broker_makes_are_told), KT(checkpoints_that_do_not_verify_are_no_error),
        KT(a_compacted_log_is_checked_as_others_are), KT(a_topic_that_nobody_would_serve_is_told),
        KT(a_volume_of_no_cluster_is_told), KT(a_half_removed_topic_is_deleted))
