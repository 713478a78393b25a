/* Frames of journals: format, reading up to the first that does not verify, the overlay. */
#include "st.h"

#include <errno.h>
#include <stdlib.h>

#include "base/kc_crc32c.h"
#include "storage/ks_frames.h"

static struct st_vol vol;
static struct ks_fs fs;
static struct kc_uuid inc, topic;
static const struct ks_file_id file_id = {.inc8 = 7, .seq = 3};

static void begin(void)
{
    st_vol_make(&vol);
    KT_REQUIRE(ks_fs_posix(&fs, vol.dir, NULL) == 0);
    KT_EQ(ks_fs_mkdir(&fs, "inc"), 0);
    KT_EQ(ks_fs_mkdir(&fs, "inc/1"), 0);
    inc = kc_uuid_random();
    topic = kc_uuid_random();
}

static void end(void)
{
    ks_fs_fini(&fs);
    st_vol_remove(&vol);
}

static void write_file(const char *path, const void *data, size_t len)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    int fd = ks_fs_open(&fs, path, KS_CREATE);
    KT_REQUIRE(fd >= 0);
    KT_EQ(len ? ks_fs_pwritev(&fs, fd, &iov, 1, 0) : 0, 0);
    ks_fs_close(&fs, fd);
}

static size_t put_frame(uint8_t *out, int32_t partition, struct ks_file_id file, uint64_t pos,
                        const char *text)
{
    size_t len = strlen(text);
    struct ks_frame f = {.topic = topic,
                         .partition = partition,
                         .file = file,
                         .pos = pos,
                         .len = (uint32_t)len,
                         .crc = kc_crc32c(0, text, len)};
    ks_frame_encode(&f, out);
    memcpy(out + KS_FRAME_HEADER, text, len);
    return KS_FRAME_HEADER + len;
}

static void journal(uint32_t n, const void *data, size_t len)
{
    char path[KS_PATH_MAX];
    ks_path_journal(path, 1, &inc, n);
    write_file(path, data, len);
}

static struct ks_frames *read_all(void)
{
    struct ks_frames *f = NULL;
    struct kc_err err;
    KT_REQUIRE(ks_frames_read(&fs, 1, &inc, &f, &err) == 0);
    return f;
}

static void a_header_is_what_was_encoded(void)
{
    uint8_t p[KS_FRAME_HEADER], q[KS_FRAME_HEADER];
    struct ks_frame f = {.topic = kc_uuid_random(),
                         .partition = 77,
                         .file = {.inc8 = 0xfedcba98, .seq = 4000000000u},
                         .pos = UINT64_C(0x123456789abc),
                         .len = 131072,
                         .crc = 0xdeadbeef};
    struct ks_frame g;
    ks_frame_encode(&f, p);
    KT_TRUE(ks_frame_decode(p, &g));
    KT_TRUE(kc_uuid_eq(&f.topic, &g.topic) && ks_file_eq(f.file, g.file));
    KT_TRUE(f.partition == g.partition && f.pos == g.pos && f.len == g.len && f.crc == g.crc);
    for (size_t i = 0; i < 8 * sizeof(p); i++) {
        memcpy(q, p, sizeof(p));
        q[i / 8] ^= (uint8_t)(1 << i % 8);
        KT_FALSE(ks_frame_decode(q, &g));
    }
    f.len = 0;
    ks_frame_encode(&f, p);
    KT_FALSE(ks_frame_decode(p, &g));
}

static void names_are_told_from_others(void)
{
    char path[KS_PATH_MAX];
    struct kc_uuid got, id = kc_uuid_random();
    uint32_t n;
    ks_path_journal(path, 12, &id, 4294967295u);
    const char *name = strrchr(path, '/') + 1;
    KT_TRUE(ks_journal_named(name, &got, &n));
    KT_TRUE(kc_uuid_eq(&got, &id));
    KT_EQ(n, 4294967295u);
    static const char *const bad[] = {"",
                                      ".j0",
                                      "0123456789abcdef0123456789abcdef",
                                      "0123456789abcdef0123456789abcdef.j",
                                      "0123456789abcdef0123456789abcdef.j-1",
                                      "0123456789abcdef0123456789abcdef.j4294967296",
                                      "0123456789abcdef0123456789abcdef.jx",
                                      "0123456789abcdef0123456789abcdeg.j0",
                                      "reserve.1"};
    for (size_t i = 0; i < KC_ARRAY_LEN(bad); i++) {
        KT_FALSE(ks_journal_named(bad[i], &got, &n));
    }
}

static void a_journal_ends_at_the_first_frame_that_does_not_verify(void)
{
    uint8_t buf[1024];
    size_t ends[4] = {0}, len = 0;
    begin();
    for (uint64_t i = 0; i < 3; i++) {
        len += put_frame(buf + len, 0, file_id, 10 * i, "0123456789");
        ends[i + 1] = len;
    }
    for (size_t cut = 0; cut <= len; cut++) {
        inc = kc_uuid_random();
        journal(0, buf, cut);
        uint32_t want = 0;
        while (want < 3 && ends[want + 1] <= cut) {
            want++;
        }
        struct ks_frames *f = read_all();
        KT_EQ(f->n, want);
        ks_frames_unref(f);
    }
    for (size_t at = 0; at < len; at++) {
        inc = kc_uuid_random();
        buf[at] ^= 1;
        journal(0, buf, len);
        buf[at] ^= 1;
        struct ks_frames *f = read_all();
        KT_EQ(f->n, at < ends[1] ? 0 : at < ends[2] ? 1 : 2);
        ks_frames_unref(f);
    }
    end();
}

static void frames_lie_over_their_file_only(void)
{
    uint8_t a[1024], b[1024];
    size_t n = 0, m = 0;
    struct ks_file_id next = {.inc8 = 7, .seq = 4};
    begin();
    n += put_frame(a + n, 0, file_id, 20, "CCCCCCCCCC");
    n += put_frame(a + n, 1, file_id, 0, "other partition");
    m += put_frame(b + m, 0, file_id, 10, "BBBBBBBBBB");
    m += put_frame(b + m, 0, next, 0, "next file");
    journal(0, a, n);
    journal(7, b, m);
    write_file("data", "aaaaaaaaaabbbbb", 15);
    int fd = ks_fs_open(&fs, "data", KS_READ);
    struct ks_frames *f = read_all();
    KT_EQ(f->n, 4);
    struct ks_overlay o = ks_frames_of(f, &topic, 0, file_id);
    KT_EQ(o.n, 2);
    KT_EQ(o.first->f.pos, 10);
    static const char whole[] = "aaaaaaaaaaBBBBBBBBBBCCCCCCCCCC";
    for (uint64_t pos = 0; pos <= 31; pos++) {
        for (size_t len = 1; len <= 32; len++) {
            char buf[32];
            ssize_t got = ks_overlay_pread(&o, &fs, fd, buf, len, pos);
            KT_EQ(got, (ssize_t)(pos < 30 ? KC_MIN(len, (size_t)(30 - pos)) : 0));
            KT_TRUE(got <= 0 || memcmp(buf, whole + pos, (size_t)got) == 0);
        }
    }
    o = ks_frames_of(f, &topic, 0, next);
    KT_EQ(o.n, 1);
    o = ks_frames_of(f, &topic, 2, file_id);
    KT_EQ(o.n, 0);
    char buf[32];
    KT_EQ(ks_overlay_pread(&o, &fs, fd, buf, 32, 0), 15);
    ks_frames_unref(f);
    ks_fs_close(&fs, fd);
    end();
}

/* No owner makes frames that overlap. What is read of such ones may be either's, and stays in bounds. */
static void frames_that_overlap_are_harmless(void)
{
    uint8_t a[1024];
    size_t n = 0;
    begin();
    n += put_frame(a + n, 0, file_id, 0, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    n += put_frame(a + n, 0, file_id, 1, "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB");
    n += put_frame(a + n, 0, file_id, 2, "C");
    journal(0, a, n);
    write_file("data", "", 0);
    int fd = ks_fs_open(&fs, "data", KS_READ);
    struct ks_frames *f = read_all();
    struct ks_overlay o = ks_frames_of(f, &topic, 0, file_id);
    KT_EQ(o.n, 3);
    for (uint64_t pos = 0; pos < 40; pos++) {
        for (size_t len = 1; len < 40; len++) {
            char *buf = malloc(len); /* of that size: the sanitizer sees what goes beyond */
            ssize_t got = ks_overlay_pread(&o, &fs, fd, buf, len, pos);
            KT_TRUE(got >= 0 && got <= (ssize_t)len);
            free(buf);
        }
    }
    ks_frames_unref(f);
    ks_fs_close(&fs, fd);
    end();
}

/* What lies between the end of the file and a frame is no batch. */
static void a_gap_reads_as_zeros(void)
{
    uint8_t a[256];
    char buf[32];
    begin();
    journal(0, a, put_frame(a, 0, file_id, 8, "xx"));
    write_file("data", "abc", 3);
    int fd = ks_fs_open(&fs, "data", KS_READ);
    struct ks_frames *f = read_all();
    struct ks_overlay o = ks_frames_of(f, &topic, 0, file_id);
    KT_EQ(ks_overlay_pread(&o, &fs, fd, buf, sizeof(buf), 0), 10);
    KT_TRUE(memcmp(buf, "abc\0\0\0\0\0xx", 10) == 0);
    ks_frames_unref(f);
    ks_fs_close(&fs, fd);
    end();
}

static void the_journals_of_one_incarnation_go(void)
{
    uint8_t a[256];
    size_t n;
    begin();
    n = put_frame(a, 0, file_id, 0, "x");
    struct kc_uuid mine = inc, theirs = kc_uuid_random();
    journal(0, a, n);
    journal(3, a, n);
    inc = theirs;
    journal(0, a, n);
    KT_EQ(ks_frames_remove(&fs, 1, &mine), 0);
    struct ks_frames *f = read_all();
    KT_EQ(f->n, 1);
    ks_frames_unref(f);
    inc = mine;
    f = read_all();
    KT_EQ(f->n, 0);
    ks_frames_unref(f);
    KT_EQ(ks_frames_remove(&fs, 1, &mine), 0); /* again */
    end();
}

/* ---- what vanishes ---- */

static struct {
    int opens, error;
} open_fault;

static int fail_open(void *ctx, enum st_op op, const char *path)
{
    (void)ctx;
    bool hit = op == ST_OPEN && strstr(path, ".j") && open_fault.opens > 0;
    open_fault.opens -= hit;
    return hit ? open_fault.error : 0;
}

/* Only a listing tells that a journal is gone: an answer that a name or handle is stale does not (J9). */
static void a_stale_answer_is_not_believed(void)
{
    static const struct st_hooks hooks = {.before = fail_open};
    static const int errors[] = {-ESTALE, -ENOENT};
    uint8_t a[256];
    struct ks_fs faulty;
    begin();
    journal(0, a, put_frame(a, 0, file_id, 0, "x"));
    st_fault_fs(&faulty, &vol, &hooks);
    for (size_t i = 0; i < KC_ARRAY_LEN(errors); i++) {
        struct ks_frames *f = NULL;
        open_fault.opens = 1;
        open_fault.error = errors[i];
        KT_EQ(ks_frames_read(&faulty, 1, &inc, &f, NULL), 0);
        KT_EQ(f->n, 1);
        ks_frames_unref(f);
        open_fault.opens = 1000000; /* for good: it is there, and cannot be read */
        KT_EQ(ks_frames_read(&faulty, 1, &inc, &f, NULL), errors[i]);
        open_fault.opens = 0;
    }
    ks_fs_fini(&faulty);
    struct ks_frames *f = NULL;
    KT_EQ(ks_frames_read(&fs, 2, &inc, &f, NULL), -ENOENT); /* no such broker */
    end();
}

KT_MAIN("frames", KT(a_header_is_what_was_encoded), KT(names_are_told_from_others),
        KT(a_journal_ends_at_the_first_frame_that_does_not_verify),
        KT(frames_lie_over_their_file_only), KT(frames_that_overlap_are_harmless),
        KT(a_gap_reads_as_zeros), KT(the_journals_of_one_incarnation_go),
        KT(a_stale_answer_is_not_believed))
