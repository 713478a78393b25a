#include "st.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_crc32c.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "storage/ks_bytes.h"

void st_vol_make(struct st_vol *v)
{
    kc_log_set_level(KC_ERROR + 1);
    kt_dir_make(v->dir);
}

void st_vol_remove(struct st_vol *v)
{
    kt_dir_remove(v->dir);
}

int st_fsck(const struct st_vol *v, const struct ks_fs *fs, struct ks_fsck_result *ret,
            char **ret_text)
{
    size_t len;
    FILE *out = open_memstream(ret_text, &len);
    KT_REQUIRE(out != NULL);
    struct ks_fsck_opts o = {.dir = v->dir, .verbose = true, .out = out};
    int rc = fs ? ks_fsck_on(fs, &o, ret, NULL) : ks_fsck(&o, ret, NULL);
    fclose(out);
    return rc;
}

void st_vol_check(const struct st_vol *v, struct ks_fsck_result *ret)
{
    char *text;
    if (st_fsck(v, NULL, ret, &text)) {
        fputs(text, stderr);
    }
    free(text);
    KT_EQ(ret->errors, 0);
}

/* ---- brokers ---- */

static void on_fenced(void *ctx, const char *why)
{
    struct st_broker *b = ctx;
    (void)why;
    b->n_fenced++;
    b->fenced = true;
}

int st_broker_open(struct st_broker *b, const struct ks_fs *fs, struct ks_opts opts,
                   struct kc_err *err)
{
    char cluster[KC_UUID_B64_LEN + 1] = "";
    memset(b, 0, sizeof(*b));
    b->id = opts.broker_id;
    KT_REQUIRE(rt_loop_init(&b->loop, "test") == 0);
    b->loop.thread = pthread_self();
    opts.loop = &b->loop;
    opts.on_fenced = on_fenced;
    opts.ctx = b;
    int rc = ks_engine_open_on(fs, &opts, cluster, &b->e, err);
    b->inc = kc_uuid_random();
    if (rc) {
        rt_loop_stop(&b->loop);
        rt_loop_run(&b->loop);
    }
    return rc;
}

void st_broker_start_reserve(struct st_broker *b, const struct ks_fs *fs, int32_t id,
                             int64_t reserve_bytes)
{
    struct kc_err err = {0};
    struct ks_opts opts = {.broker_id = id, .reserve_bytes = reserve_bytes};
    int rc = st_broker_open(b, fs, opts, &err);
    if (rc) {
        fprintf(stderr, "engine: %s\n", err.msg);
    }
    KT_REQUIRE(rc == 0);
    KT_REQUIRE(ks_register(b->e, &b->inc, &err) == 0);
    atomic_store(&b->e->inc->claimed, true); /* else the first claim has the volume tidied */
}

void st_broker_start_on(struct st_broker *b, const struct ks_fs *fs, int32_t id)
{
    st_broker_start_reserve(b, fs, id, 0);
}

void st_broker_start(struct st_broker *b, const struct st_vol *v, int32_t id)
{
    struct ks_fs fs;
    KT_REQUIRE(ks_fs_posix(&fs, v->dir, NULL) == 0);
    st_broker_start_on(b, &fs, id);
}

void st_turn(struct st_broker *b)
{
    uv_run(&b->loop.uv, UV_RUN_NOWAIT);
}

void st_broker_stop(struct st_broker *b)
{
    ks_engine_close(b->e);
    rt_loop_stop(&b->loop);
    rt_loop_run(&b->loop); /* runs what was posted, closes the handles */
}

void st_until(struct st_broker *b, const volatile bool *flag)
{
    int64_t end = kc_mono_ms() + 30000;
    while (!*flag && kc_mono_ms() < end) {
        uv_run(&b->loop.uv, UV_RUN_ONCE); /* woken by messages, and once a second by the tick */
    }
    KT_REQUIRE(*flag);
}

void st_broker_start_hooked(struct st_broker *b, const struct st_vol *v, int32_t id,
                            const struct st_hooks *hooks)
{
    struct ks_fs fs;
    st_fault_fs(&fs, v, hooks);
    st_broker_start_on(b, &fs, id);
}

void st_begin(struct st_vol *v, struct st_broker *b, int32_t id, const struct st_hooks *hooks,
              struct kc_uuid *topic)
{
    st_vol_make(v);
    if (hooks) {
        st_broker_start_hooked(b, v, id, hooks);
    } else {
        st_broker_start(b, v, id);
    }
    *topic = kc_uuid_random();
}

void st_end_pair(struct st_vol *v, struct st_broker *a, struct st_broker *b)
{
    st_broker_stop(a);
    st_end(v, b);
}

void st_end(struct st_vol *v, struct st_broker *b)
{
    st_broker_stop(b);
    st_vol_remove(v);
}

void st_end_checked(struct st_vol *v, struct st_broker *b)
{
    struct ks_fsck_result r;
    st_broker_stop(b);
    st_vol_check(v, &r);
    st_vol_remove(v);
}

/* ---- opening ---- */

bool st_condemn_all(void *ctx, int32_t broker, const struct kc_uuid *inc)
{
    (void)ctx;
    (void)broker;
    (void)inc;
    return true;
}

bool st_condemn_none(void *ctx, int32_t broker, const struct kc_uuid *inc)
{
    (void)ctx;
    (void)broker;
    (void)inc;
    return false;
}

static void on_open(void *ctx, int rc, struct ks_log *log, const struct kc_err *err,
                    int32_t blocker_broker, const struct kc_uuid *blocker_incarnation)
{
    struct st_open *o = ctx;
    o->done = true;
    o->rc = rc;
    o->log = log;
    o->blocker = blocker_broker;
    o->blocker_inc = *blocker_incarnation;
    if (err) {
        o->err = *err;
    }
}

struct ks_open_args st_args(struct st_broker *b, const struct kc_uuid *topic, int32_t partition,
                            struct st_open *o)
{
    *o = (struct st_open){0};
    return (struct ks_open_args){
        .topic_id = *topic,
        .partition = partition,
        .may_create = true,
        .config = {.segment_bytes = 1 << 30,
                   .retention_ms = -1,
                   .retention_bytes = -1,
                   .max_message_bytes = 1048588,
                   .timestamp_before_max_ms = -1,
                   .timestamp_after_max_ms = 3600000,
                   .flush_messages = 1},
        .condemned = st_condemn_all,
        .loop = &b->loop,
        .done = on_open,
        .ctx = o,
    };
}

int st_open_rc(struct st_broker *b, const struct ks_open_args *args, struct st_open *o)
{
    o->handle = ks_log_open(b->e, args);
    st_until(b, &o->done);
    return o->rc;
}

struct ks_log *st_log_small(struct st_broker *b, const struct kc_uuid *topic, int64_t segment_bytes)
{
    struct st_open o;
    struct ks_open_args args = st_args(b, topic, 0, &o);
    args.config.segment_bytes = segment_bytes;
    KT_REQUIRE(st_open_rc(b, &args, &o) == 0);
    ks_log_own(o.log, &b->loop);
    return o.log;
}

struct ks_log *st_log(struct st_broker *b, const struct kc_uuid *topic, int32_t partition)
{
    struct st_open o;
    struct ks_open_args args = st_args(b, topic, partition, &o);
    if (st_open_rc(b, &args, &o)) {
        fprintf(stderr, "open: %d %s\n", o.rc, o.err.msg);
    }
    KT_REQUIRE(o.rc == 0 && o.log != NULL);
    ks_log_own(o.log, &b->loop);
    return o.log;
}

void st_close(struct st_broker *b, struct ks_log *log)
{
    struct ks_engine *e = b->e;
    struct ks_key key = ks_key_of(ks_log_topic(log), ks_log_partition(log));
    ks_log_close(log);
    pthread_mutex_lock(&e->lock);
    while (kc_map_get(&e->logs, &key, sizeof(key)) == log) {
        pthread_cond_wait(&e->log_gone, &e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    st_turn(b);
}

/* ---- batches ---- */

static void put_varint(uint8_t **p, int64_t v)
{
    uint64_t z = ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
    do {
        uint8_t b = (uint8_t)(z & 0x7f);
        z >>= 7;
        *(*p)++ = (uint8_t)(b | (z ? 0x80 : 0));
    } while (z);
}

void st_fix_crc(struct kc_slice b)
{
    ks_put32(b.buf->data + 17, kc_crc32c(0, b.ptr + 21, b.len - 21));
}

struct kc_slice st_make(const struct st_batch *s)
{
    int32_t count = s->count ? s->count : 1;
    size_t value = s->value_len ? s->value_len : 10;
    uint8_t *raw = calloc(1, 61 + (size_t)count * (value + 40));
    uint8_t *p = raw + 61;
    int64_t ts = s->ts ? s->ts : kc_wall_ms();
    for (int32_t i = 0; i < count; i++) {
        uint8_t body[64], *q = body;
        *q++ = 0;
        put_varint(&q, i); /* timestamp delta */
        put_varint(&q, i); /* offset delta */
        put_varint(&q, -1);
        put_varint(&q, (int64_t)value);
        size_t head = (size_t)(q - body);
        put_varint(&p, (int64_t)(head + value + 1));
        memcpy(p, body, head);
        p += head;
        memset(p, 'a' + i % 26, value);
        p += value;
        *p++ = 0; /* headers */
    }
    size_t len = (size_t)(p - raw);
    ks_put32(raw + 8, (uint32_t)(len - 12));
    ks_put32(raw + 12, UINT32_MAX);
    raw[16] = 2;
    ks_put16(raw + 21, s->attrs);
    ks_put32(raw + 23, (uint32_t)(count - 1));
    ks_put64(raw + 27, (uint64_t)ts);
    ks_put64(raw + 35, (uint64_t)(ts + count - 1));
    ks_put64(raw + 43, (uint64_t)(s->pid ? s->pid : -1));
    ks_put16(raw + 51, (uint16_t)(s->pid ? s->epoch : -1));
    ks_put32(raw + 53, (uint32_t)(s->pid ? s->seq : -1));
    ks_put32(raw + 57, (uint32_t)count);
    kc_mem_spare(true); /* an injected failure is meant for the log */
    struct kc_buf *buf = kc_buf_new(len);
    kc_mem_spare(false);
    memcpy(buf->data, raw, len);
    free(raw);
    struct kc_slice out = {.buf = buf, .ptr = buf->data, .len = len};
    st_fix_crc(out);
    return out;
}

static void on_append(void *ctx, const struct ks_append_result *r)
{
    struct st_append *a = ctx;
    KT_FALSE(a->done);
    a->done = true;
    a->r = *r;
}

void st_append_start(struct ks_log *log, struct kc_slice b, enum ks_origin origin,
                     struct st_append *a)
{
    *a = (struct st_append){0};
    struct ks_append_args args = {.batches = b,
                                  .origin = origin,
                                  .now_wall_ms = kc_wall_ms(),
                                  .acks = -1,
                                  .done = on_append,
                                  .ctx = a};
    ks_log_append(log, &args);
    kc_buf_unref(b.buf);
}

struct ks_append_result st_append(struct st_broker *b, struct ks_log *log, struct kc_slice batch)
{
    struct st_append a;
    st_append_start(log, batch, KS_FROM_CLIENT, &a);
    st_until(b, &a.done);
    return a.r;
}

int64_t st_put(struct st_broker *b, struct ks_log *log, int32_t n)
{
    struct ks_append_result r = st_append(b, log, st_make(&(struct st_batch){.count = n}));
    return r.error ? -r.error : r.base_offset;
}

static void on_read(void *ctx, const struct ks_read_result *r)
{
    struct st_read *s = ctx;
    s->done = true;
    s->r = *r;
}

struct st_read st_read(struct st_broker *b, struct ks_log *log, int64_t offset, int64_t limit,
                       int32_t max)
{
    struct st_read s = {.first = -1, .last = -1};
    struct ks_read_args args = {
        .offset = offset, .limit_offset = limit, .max_bytes = max, .at_least_one = true};
    ks_log_read(log, &args, on_read, &s);
    st_until(b, &s.done);
    for (int32_t i = 0; i < s.r.n_slices; i++) {
        struct ks_batch batch;
        for (size_t at = 0; at < s.r.slices[i].len; at += batch.size) {
            const uint8_t *p = s.r.slices[i].ptr + at;
            KT_REQUIRE(ks_batch_parse(p, &batch));
            KT_REQUIRE(at + batch.size <= s.r.slices[i].len);
            KT_TRUE(ks_batch_crc_ok(p, &batch));
            if (s.first < 0) {
                s.first = batch.base;
            } else {
                KT_EQ(batch.base, s.last + 1);
            }
            s.last = ks_batch_last(&batch);
            s.batches++;
        }
        s.bytes += s.r.slices[i].len;
        kc_buf_unref(s.r.slices[i].buf);
    }
    return s;
}

int64_t st_count(struct st_broker *b, struct ks_log *log)
{
    struct ks_offsets o = ks_log_offsets(log);
    int64_t n = 0, at = o.start;
    while (at < o.high_watermark) {
        struct st_read s = st_read(b, log, at, o.high_watermark, 1 << 20);
        KT_EQ(s.r.error, 0);
        KT_EQ(s.first, at);
        if (s.first != at) {
            break;
        }
        n += s.last - s.first + 1;
        at = s.r.next_offset;
    }
    return n;
}

static void on_lookup(void *ctx, int16_t error, int64_t offset, int64_t ts, int32_t epoch)
{
    *(struct st_lookup *)ctx = (struct st_lookup){true, error, offset, ts, epoch};
}

struct st_lookup st_lookup(struct st_broker *b, struct ks_log *log, int64_t ts)
{
    struct st_lookup l = {0};
    ks_log_lookup(log, ts, on_lookup, &l);
    st_until(b, &l.done);
    return l;
}

static void on_seal(void *ctx, int rc, struct kc_bytes record, int64_t end, int32_t epoch)
{
    struct st_seal *s = ctx;
    s->done = true;
    s->rc = rc;
    s->end = end;
    s->epoch = epoch;
    if (record.ptr) {
        memcpy(s->record, record.ptr, (size_t)record.len);
        s->bytes = (struct kc_bytes){s->record, record.len};
    }
}

void st_seal(struct st_broker *b, struct ks_log *log, struct st_seal *s)
{
    memset(s, 0, sizeof(*s));
    ks_log_seal(log, &b->loop, on_seal, s);
    st_until(b, &s->done);
}

/* ---- files ---- */

void st_data_path(const struct st_vol *v, struct ks_log *log, char out[256])
{
    char path[KS_PATH_MAX];
    ks_path_file(path, &log->topic, log->partition, log->c_file->id);
    snprintf(out, 256, "%s/%s", v->dir, path);
}

void st_file_append(const char *path, const void *data, size_t len)
{
    int fd = open(path, O_WRONLY | O_APPEND);
    KT_REQUIRE(fd >= 0);
    KT_EQ(write(fd, data, len), (ssize_t)len);
    close(fd);
}
