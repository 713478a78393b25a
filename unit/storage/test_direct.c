/* Reads answered with ranges of files: only bytes that were seen to be right, only what is in the page
 * cache, whole batches, and the same ones that the pool would have read. */
#include "sk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/kc_mem.h"
#include "base/kc_range.h"
#include "base/kc_rng.h"

/* The real file system, but the test says what is in the page cache. */
static struct {
    struct st_vol vol;
    struct st_broker b;
    struct kc_uuid topic;
    struct ks_fs_ops ops;
    const struct ks_fs_ops *real;
    _Atomic bool cold, network;
    _Atomic int looks; /* calls of peek */
    _Atomic int aheads; /* calls of ahead, and how far the file was asked for */
    _Atomic uint64_t ahead_to;
} fx;

static bool cached(void *ctx, int fd, uint64_t pos, uint64_t len)
{
    uint8_t b;
    KT_TRUE(len > 0 && fx.real->pread(ctx, fd, &b, 1, pos + len - 1) == 1); /* inside the file */
    return !atomic_load(&fx.cold);
}

static ssize_t peek(void *ctx, int fd, void *buf, size_t len, uint64_t pos)
{
    atomic_fetch_add(&fx.looks, 1);
    return atomic_load(&fx.cold) ? -EAGAIN : fx.real->pread(ctx, fd, buf, len, pos);
}

/* Where there is one reader, each call goes on where the one before ended, or where the reader is. */
static void ahead(void *ctx, int fd, uint64_t pos, uint64_t len)
{
    uint8_t b;
    KT_TRUE(!atomic_load(&fx.network) || pos >= atomic_load(&fx.ahead_to));
    KT_TRUE(fx.real->pread(ctx, fd, &b, 1, pos + len - 1) == 1); /* inside the file */
    atomic_store(&fx.ahead_to, pos + len);
    atomic_fetch_add(&fx.aheads, 1);
}

static bool network(void *ctx)
{
    (void)ctx;
    return atomic_load(&fx.network);
}

static void start(void)
{
    struct ks_fs fs;
    KT_REQUIRE(ks_fs_posix(&fs, fx.vol.dir, NULL) == 0);
    fx.real = fs.ops;
    fx.ops = *fs.ops;
    fx.ops.cached = cached;
    fx.ops.peek = peek;
    fx.ops.ahead = ahead;
    fx.ops.network = network;
    fs.ops = &fx.ops;
    st_broker_start_on(&fx.b, &fs, 1);
}

static void begin(void)
{
    atomic_store(&fx.cold, false);
    atomic_store(&fx.network, false);
    atomic_store(&fx.aheads, 0);
    atomic_store(&fx.ahead_to, 0);
    st_vol_make(&fx.vol);
    fx.topic = kc_uuid_random();
    start();
}

static void end(struct ks_log *log)
{
    st_close(&fx.b, log);
    st_end_checked(&fx.vol, &fx.b);
}

/* Another process on the same volume, which has seen nothing of it. */
static struct ks_log *restart(struct ks_log *log)
{
    st_close(&fx.b, log);
    st_broker_stop(&fx.b);
    start();
    return st_log(&fx.b, &fx.topic, 0);
}

static void put(struct ks_log *log, size_t value_len)
{
    KT_EQ(st_append(&fx.b, log, st_make(&(struct st_batch){.value_len = value_len})).error, 0);
}

/* ---- what a read brings ---- */

struct got {
    bool done, range;
    int16_t error;
    int32_t n;
    int64_t first, last, next; /* offsets of whole batches; -1 = none */
    size_t len;
    uint8_t *bytes; /* free */
    struct kc_buf *keep; /* of a range, when it was asked for */
};

static void copy(struct got *g, const struct kc_slice *s)
{
    g->bytes = realloc(g->bytes, g->len + s->len);
    KT_REQUIRE(g->bytes != NULL);
    const struct kc_range *r = kc_range_of(s->buf);
    if (r) {
        KT_TRUE(s->ptr == NULL && s->len == r->len);
        KT_EQ(pread(r->fd, g->bytes + g->len, r->len, (off_t)r->pos), r->len);
    } else {
        memcpy(g->bytes + g->len, s->ptr, s->len);
    }
    g->range = r != NULL;
    g->len += s->len;
}

static void on_read(void *ctx, const struct ks_read_result *r)
{
    struct got *g = ctx;
    g->done = true;
    g->error = r->error;
    g->n = r->n_slices;
    g->next = r->next_offset;
    for (int32_t i = 0; i < r->n_slices; i++) {
        copy(g, &r->slices[i]);
        if (g->range) {
            g->keep = kc_buf_ref(r->slices[i].buf);
        }
        kc_buf_unref(r->slices[i].buf);
    }
}

static struct got read_args(struct ks_log *log, struct ks_read_args a)
{
    struct got g = {.first = -1, .last = -1};
    ks_log_read(log, &a, on_read, &g);
    st_until(&fx.b, &g.done);
    struct ks_batch b;
    for (size_t at = 0; at < g.len; at += b.size) {
        KT_REQUIRE(ks_batch_parse(g.bytes + at, &b) && at + b.size <= g.len);
        KT_TRUE(ks_batch_crc_ok(g.bytes + at, &b));
        KT_TRUE(g.first < 0 || b.base > g.last);
        g.first = g.first < 0 ? b.base : g.first;
        g.last = ks_batch_last(&b);
    }
    return g;
}

static void drop(struct got *g)
{
    free(g->bytes);
    kc_buf_unref(g->keep);
    *g = (struct got){0};
}

/* Reads with ranges allowed; checks what came, and lets it go. */
static void expect(struct ks_log *log, struct ks_read_args a, bool range, int64_t first,
                   int64_t last)
{
    a.ranges = true;
    struct got g = read_args(log, a);
    KT_EQ(g.error, 0);
    KT_EQ(g.range, range);
    KT_EQ(g.first, first);
    KT_EQ(g.last, last);
    KT_EQ(g.next, last < 0 ? a.offset : last + 1);
    drop(&g);
}

static struct ks_read_args from(int64_t offset, int64_t limit, int32_t max)
{
    return (struct ks_read_args){
        .offset = offset, .limit_offset = limit, .max_bytes = max, .at_least_one = true};
}

/* ---- which bytes go that way ---- */

static void what_this_process_wrote_is_answered_with_a_range(void)
{
    begin();
    struct ks_log *log = st_log(&fx.b, &fx.topic, 0);
    for (int i = 0; i < 8; i++) {
        put(log, 20000);
    }
    expect(log, from(0, 8, 1 << 20), false, 0, 7); /* from memory, which costs less */
    ks_cache_drop(log);
    expect(log, from(0, 8, 1 << 20), true, 0, 7);
    expect(log, from(3, 8, 1 << 20), true, 3, 7);
    expect(log, from(0, 8, 50000), true, 0, 1); /* whole batches */
    expect(log, from(2, 5, 1 << 20), true, 2, 4); /* the limit in the middle */
    expect(log, from(7, 8, 1 << 20), true, 7, 7);
    atomic_store(&fx.network, true);
    expect(log, from(0, 8, 1 << 20), false, 0, 7);
    struct got g = read_args(log, from(0, 8, 1 << 20));
    KT_FALSE(g.range); /* it was not allowed */
    drop(&g);
    end(log);
}

static void a_batch_larger_than_the_room_comes_only_where_one_is_due(void)
{
    begin();
    struct ks_log *log = st_log(&fx.b, &fx.topic, 0);
    put(log, 100);
    put(log, 90000);
    put(log, 100);
    ks_cache_drop(log);
    expect(log, from(0, 3, 50000), true, 0, 0);
    expect(log, from(1, 3, 50000), true, 1, 1);
    struct ks_read_args a = from(1, 3, 50000);
    a.at_least_one = false;
    int looks = atomic_load(&fx.looks);
    expect(log, a, false, -1, -1);
    KT_EQ(atomic_load(&fx.looks), looks + 1); /* told by its header, without the pool */
    KT_EQ(atomic_load(&fx.b.e->m_misses), 0);
    end(log);
}

static void places_once_found_are_not_looked_for_again(void)
{
    begin();
    struct ks_log *log = st_log(&fx.b, &fx.topic, 0);
    for (int i = 0; i < 100; i++) {
        put(log, 5000);
    }
    ks_cache_drop(log);
    for (int round = 0; round < 2; round++) {
        int looks = atomic_load(&fx.looks);
        for (int64_t at = 0; at < 90;) {
            struct ks_read_args a = from(at, 100, 40000);
            a.ranges = true;
            struct got g = read_args(log, a);
            KT_EQ(g.first, at);
            KT_TRUE(g.range && g.next > at);
            at = g.next;
            drop(&g);
        }
        if (round == 1) { /* readers that follow: one header a read, to see that no more fits */
            KT_TRUE(atomic_load(&fx.looks) - looks <= 15);
        }
    }
    end(log);
}

static void what_nobody_has_verified_goes_by_the_pool_once(void)
{
    begin();
    struct ks_log *log = st_log(&fx.b, &fx.topic, 0);
    for (int i = 0; i < 8; i++) {
        put(log, 20000);
    }
    log = restart(log);
    expect(log, from(2, 8, 70000), false, 2, 4);
    expect(log, from(2, 8, 70000), true, 2, 4);
    expect(log, from(2, 8, 1 << 20), true, 2, 4); /* no farther than what was verified */
    expect(log, from(5, 8, 1 << 20), false, 5, 7);
    expect(log, from(2, 8, 1 << 20), true, 2, 7);
    expect(log, from(0, 8, 1 << 20), false, 0, 7);
    expect(log, from(0, 8, 1 << 20), true, 0, 7);
    end(log);
}

static void a_damaged_batch_is_never_in_a_range(void)
{
    begin();
    struct ks_log *log = st_log(&fx.b, &fx.topic, 0);
    uint64_t at = 0;
    for (int i = 0; i < 6; i++) {
        at = i == 3 ? log->st.segs[0].len : at;
        put(log, 20000);
    }
    char path[256];
    st_data_path(&fx.vol, log, path);
    log = restart(log);
    int fd = open(path, O_WRONLY);
    KT_REQUIRE(fd >= 0 && pwrite(fd, "damage", 6, (off_t)at + 1000) == 6);
    close(fd);
    for (int round = 0; round < 2; round++) {
        expect(log, from(0, 6, 1 << 20), round > 0, 0, 2);
        struct ks_read_args a = from(3, 6, 1 << 20);
        a.ranges = true;
        struct got g = read_args(log, a);
        KT_EQ(g.error, 56);
        KT_EQ(g.len, 0);
        drop(&g);
        expect(log, from(4, 6, 1 << 20), round > 0, 4, 5);
    }
    st_close(&fx.b, log);
    st_end(&fx.vol, &fx.b);
}

/* ---- cold ---- */

static void what_is_not_in_the_page_cache_is_read_by_the_pool(void)
{
    begin();
    struct ks_log *log = st_log(&fx.b, &fx.topic, 0);
    for (int i = 0; i < 8; i++) {
        put(log, 20000);
    }
    ks_cache_drop(log);
    atomic_store(&fx.cold, true);
    expect(log, from(0, 8, 1 << 20), false, 0, 7);
    expect(log, from(1, 8, 50000), false, 1, 2);
    atomic_store(&fx.cold, false);
    expect(log, from(1, 8, 50000), true, 1, 2);
    end(log);
}

/* Also where no range is ever made, which is where it helps most. */
static void a_scan_of_cold_data_asks_for_what_comes_next(void)
{
    enum { BATCHES = 80, MOST = 4 << 20 };
    begin();
    atomic_store(&fx.network, true);
    struct ks_log *log = st_log(&fx.b, &fx.topic, 0);
    for (int i = 0; i < BATCHES; i++) {
        put(log, 100000);
    }
    struct st_seal seal; /* so that all of it stays one file */
    st_seal(&fx.b, log, &seal);
    st_broker_stop(&fx.b);
    start();
    log = st_log(&fx.b, &fx.topic, 0);
    uint64_t len = log->st.segs[0].len, size = len / BATCHES;
    int64_t far[] = {60, 20, 72, 40, 0};
    for (size_t i = 0; i < KC_ARRAY_LEN(far); i++) { /* here and there: nobody knows what is next */
        expect(log, from(far[i], BATCHES, 300000), false, far[i], far[i] + 1);
    }
    KT_EQ(atomic_load(&fx.aheads), 0);
    for (int64_t at = 2; at < BATCHES; at += 2) {
        expect(log, from(at, BATCHES, 300000), false, at, at + 1);
        uint64_t to = atomic_load(&fx.ahead_to), pos = (uint64_t)(at + 2) * size;
        KT_TRUE(to >= KC_MIN(pos + MOST / 2, len) && to <= pos + MOST + 300000);
    }
    KT_EQ(atomic_load(&fx.ahead_to), len);
    KT_TRUE(atomic_load(&fx.aheads) <= 2 + (int)(len / (MOST / 2)) + 2);
    end(log);
}

struct loaded {
    struct kc_load load;
    bool done;
};

static void on_loaded(struct kc_load *l)
{
    KC_CONTAINER_OF(l, struct loaded, load)->done = true;
}

static void a_range_that_went_cold_is_loaded(void)
{
    begin();
    struct ks_log *log = st_log(&fx.b, &fx.topic, 0);
    for (int i = 0; i < 8; i++) {
        put(log, 20000);
    }
    ks_cache_drop(log);
    struct ks_read_args a = from(0, 8, 1 << 20);
    a.ranges = true;
    struct got g = read_args(log, a);
    KT_REQUIRE(g.range);
    struct kc_range *r = kc_range_of(g.keep);
    KT_EQ(r->ops->ready(r, 100, 5000), 5000);
    atomic_store(&fx.cold, true);
    KT_EQ(r->ops->ready(r, 100, 5000), 0);
    struct loaded l = {.load = {.loop = &fx.b.loop, .done = on_loaded}};
    r->ops->load(r, 100, 5000, &l.load);
    st_until(&fx.b, &l.done);
    KT_REQUIRE(l.load.buf != NULL);
    KT_EQ(l.load.buf->len, 5000);
    KT_EQ(memcmp(l.load.buf->data, g.bytes + 100, 5000), 0);
    kc_buf_unref(l.load.buf);
    /* Longer than the file: an error, not fewer bytes. */
    l = (struct loaded){.load = {.loop = &fx.b.loop, .done = on_loaded}};
    r->ops->load(r, 100, r->len, &l.load);
    st_until(&fx.b, &l.done);
    KT_TRUE(l.load.buf == NULL);
    drop(&g);
    end(log);
}

/* ---- the file goes ---- */

static void on_deleted(struct ks_delete *d, int16_t error, int64_t log_start)
{
    (void)d;
    KT_EQ(error, 0);
    KT_EQ(log_start, 8);
}

static bool gone(const char *path)
{
    return access(path, F_OK) < 0;
}

static void a_range_outlives_its_file_and_its_log(void)
{
    begin();
    struct ks_log *log = st_log_small(&fx.b, &fx.topic, 100000);
    char path[256];
    put(log, 20000);
    st_data_path(&fx.vol, log, path);
    for (int i = 1; i < 8; i++) {
        put(log, 20000);
    }
    ks_cache_drop(log);
    struct ks_read_args a = from(0, 8, 1 << 20);
    a.ranges = true;
    struct got g = read_args(log, a);
    KT_TRUE(g.range && g.first == 0);
    struct ks_delete d = {.offset = -1, .done = on_deleted};
    ks_log_delete_records(log, &d);
    for (int i = 0; i < 30000 && !gone(path); i++) {
        st_turn(&fx.b);
        usleep(1000);
    }
    KT_TRUE(gone(path));
    KT_EQ(fx.b.e->fds.n_lent, 1);
    uint8_t *again = malloc(g.len);
    const struct kc_range *r = kc_range_of(g.keep);
    KT_EQ(pread(r->fd, again, g.len, (off_t)r->pos), g.len);
    KT_EQ(memcmp(again, g.bytes, g.len), 0);
    free(again);
    st_close(&fx.b, log);
    KT_EQ(fx.b.e->fds.n_lent, 1);
    drop(&g);
    KT_EQ(fx.b.e->fds.n_lent, 0);
    st_end_checked(&fx.vol, &fx.b);
}

static void a_compaction_under_way_changes_nothing_of_a_range(void)
{
    begin();
    struct st_open o;
    struct ks_open_args args = sk_args(&fx.b, &fx.topic, &o);
    struct ks_log *log = sk_log(&fx.b, &fx.topic, &args, &o);
    for (int i = 0; i < 200; i++) {
        sk_put(&fx.b, log, i % 3, i);
    }
    ks_cache_drop(log);
    struct ks_read_args a = from(0, 200, 1 << 20);
    a.ranges = true;
    struct got g = read_args(log, a);
    KT_REQUIRE(g.range && g.first == 0);
    sk_clean(&fx.b);
    struct got after = read_args(log, a);
    KT_FALSE(after.range); /* the new file is not known to be right */
    KT_TRUE(after.first > 0);
    struct got now = read_args(log, a);
    KT_TRUE(now.range);
    KT_EQ(now.first, after.first);
    KT_EQ(now.len, after.len);
    struct got old = {0};
    struct kc_slice s = kc_range_slice(g.keep);
    copy(&old, &s);
    KT_EQ(memcmp(old.bytes, g.bytes, g.len), 0);
    free(old.bytes);
    drop(&g);
    drop(&after);
    drop(&now);
    end(log);
}

static void no_more_files_are_lent_than_there_may_be(void)
{
    begin();
    struct ks_log *log = st_log(&fx.b, &fx.topic, 0);
    for (int i = 0; i < 4; i++) {
        put(log, 20000);
    }
    ks_cache_drop(log);
    fx.b.e->fds.n_lent += KS_FILES_LENT; /* as if by others */
    expect(log, from(0, 4, 1 << 20), false, 0, 3);
    fx.b.e->fds.n_lent -= 1;
    expect(log, from(0, 4, 1 << 20), true, 0, 3);
    fx.b.e->fds.n_lent -= KS_FILES_LENT - 1;
    KT_EQ(fx.b.e->fds.n_lent, 0);
    end(log);
}

/* ---- the same batches, either way ---- */

static void fill(struct ks_log *log, struct kc_rng *rng)
{
    for (int i = 0; i < 300; i++) {
        size_t len = kc_rng_below(rng, 4) ? kc_rng_below(rng, 2000) : kc_rng_below(rng, 60000);
        struct st_batch b = {.count = 1 + (int32_t)kc_rng_below(rng, 5), .value_len = 1 + len / 5};
        KT_EQ(st_append(&fx.b, log, st_make(&b)).error, 0);
    }
}

static void compare(struct ks_log *log, struct ks_read_args a, int *ranges)
{
    struct got want = read_args(log, a);
    a.ranges = true;
    struct got g = read_args(log, a);
    KT_EQ(g.error, 0);
    KT_EQ(want.error, 0);
    if (g.range) {
        KT_EQ(g.first, want.first); /* it may be shorter: files end, and places are looked for */
        KT_TRUE(g.len <= want.len || want.n == 0);
        KT_EQ(memcmp(g.bytes, want.bytes, KC_MIN(g.len, want.len)), 0);
        KT_TRUE(g.last < a.limit_offset && g.next == g.last + 1);
        *ranges += 1;
    } else {
        KT_EQ(g.first, want.first);
        KT_EQ(g.last, want.last);
    }
    drop(&want);
    drop(&g);
}

static void ranges_hold_what_the_pool_reads(void)
{
    struct kc_rng rng;
    int ranges = 0;
    kc_rng_seed(&rng, kt_seed());
    begin();
    struct ks_log *log = st_log_small(&fx.b, &fx.topic, 1 << 20);
    fill(log, &rng);
    for (int round = 0; round < 2; round++) {
        int64_t hw = ks_log_offsets(log).high_watermark;
        ks_cache_drop(log); /* what the pool reads is compared */
        for (int i = 0; i < 1000; i++) {
            struct ks_read_args a = from((int64_t)kc_rng_below(&rng, (uint64_t)hw), 0,
                                         (int32_t)kc_rng_below(&rng, 200000));
            a.limit_offset = a.offset + 1 + (int64_t)kc_rng_below(&rng, (uint64_t)(hw - a.offset));
            a.at_least_one = kc_rng_below(&rng, 2);
            compare(log, a, &ranges);
        }
        log = restart(log);
    }
    KT_TRUE(ranges > 800);
    end(log);
}

/* ---- the page cache itself ---- */

/* What is told to be there is there, page by page; what was just read is. */
static void the_page_cache_is_told_of_truly(void)
{
    enum { LEN = 700 * 1024 + 5 };
    struct ks_fs fs;
    st_vol_make(&fx.vol);
    KT_REQUIRE(ks_fs_posix(&fs, fx.vol.dir, NULL) == 0);
    int fd = ks_fs_open(&fs, "bytes", KS_CREATE);
    uint8_t *bytes = kc_alloc(LEN), b[8];
    memset(bytes, 7, LEN);
    struct iovec iov = {bytes, LEN};
    KT_REQUIRE(fd >= 0 && ks_fs_pwritev(&fs, fd, &iov, 1, 0) == 0);
    KT_EQ(ks_fs_datasync(&fs, fd), 0);
    bool can =
        ks_fs_peek(&fs, fd, b, 1, 0) == 1; /* not every file system answers without waiting */
    KT_EQ(ks_fs_cached(&fs, fd, 0, LEN), can);
    KT_EQ(ks_fs_cached(&fs, fd, 4095, 2), can);
    KT_EQ(ks_fs_cached(&fs, fd, LEN - 1, 1), can);
    for (int round = 0; round < 20; round++) {
        ks_fs_forget(&fs, fd);
        KT_EQ(ks_fs_pread(&fs, fd, b, 8, (uint64_t)round * 31 * 1024), 8);
        ks_fs_ahead(&fs, fd, LEN / 2, 100);
        bool all = ks_fs_cached(&fs, fd, 0, LEN);
        for (uint64_t at = 0; all && at < LEN; at += 4096) {
            KT_EQ(ks_fs_peek(&fs, fd, b, 1, at), 1);
        }
    }
    KT_EQ(ks_fs_pread(&fs, fd, bytes, LEN, 0), LEN);
    KT_EQ(ks_fs_cached(&fs, fd, 0, LEN), can);
    kc_free(bytes);
    ks_fs_close(&fs, fd);
    ks_fs_fini(&fs);
    st_vol_remove(&fx.vol);
}

KT_MAIN("storage/direct", KT(what_this_process_wrote_is_answered_with_a_range),
        KT(a_batch_larger_than_the_room_comes_only_where_one_is_due),
        KT(places_once_found_are_not_looked_for_again),
        KT(what_nobody_has_verified_goes_by_the_pool_once), KT(a_damaged_batch_is_never_in_a_range),
        KT(what_is_not_in_the_page_cache_is_read_by_the_pool), KT(a_range_that_went_cold_is_loaded),
        KT(a_scan_of_cold_data_asks_for_what_comes_next), KT(a_range_outlives_its_file_and_its_log),
        KT(a_compaction_under_way_changes_nothing_of_a_range),
        KT(no_more_files_are_lent_than_there_may_be), KT(ranges_hold_what_the_pool_reads),
        KT(the_page_cache_is_told_of_truly))
