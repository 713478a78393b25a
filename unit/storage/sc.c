#include "sc.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "sk.h"

enum { KEY_OF_PRODUCER = 9 };

void sc_bad(struct sc *s, const char *fmt, ...)
{
    va_list ap;
    s->errors++;
    if (s->errors < 20) {
        va_start(ap, fmt);
        fputs("  ", stderr);
        vfprintf(stderr, fmt, ap);
        fputc('\n', stderr);
        va_end(ap);
    }
}

/* ---- volumes and brokers ---- */

void sc_poison(struct sc *s)
{
    atomic_store(&s->poison, true);
}

void sc_kill(struct sc *s, int i)
{
    atomic_store(&s->dying, s->b[i].id);
}

static int before(void *ctx, enum st_op op, const char *path)
{
    const struct sc_port *p = ctx;
    struct sc *s = p->s;
    bool sync = op == ST_DATASYNC && st_ends_with(path, ".log");
    if (sync && atomic_load(&s->dying) == p->number) {
        atomic_store(&s->dead, p->number);
    }
    if (atomic_load(&s->dead) == p->number || (sync && atomic_exchange(&s->poison, false))) {
        return -EIO;
    }
    return s->hooks ? s->hooks->before(s->hooks->ctx, op, path) : 0;
}

static int after(void *ctx, enum st_op op, const char *path, int rc)
{
    const struct sc_port *p = ctx;
    return p->s->hooks ? p->s->hooks->after(p->s->hooks->ctx, op, path, rc) : rc;
}

void sc_config(struct sc *s, int64_t segment_bytes, int64_t retention_bytes)
{
    s->cfg.segment_bytes = segment_bytes;
    s->cfg.retention_bytes = retention_bytes;
}

void sc_begin(struct sc *s, bool in_memory, const struct st_hooks *hooks)
{
    memset(s, 0, sizeof(*s));
    kc_log_set_level(KC_ERROR + 1);
    if (in_memory) {
        s->mem = st_mem_new();
    } else {
        st_vol_make(&s->vol);
    }
    s->hooks = hooks;
    s->topic = kc_uuid_random();
    s->stamp = s->first_stamp = (kc_wall_ms() / 10 - 100000) * 10; /* the last digit is the key */
    struct st_open o;
    s->cfg = st_args(&s->b[0], &s->topic, 0, &o).config;
}

void sc_free(struct sc *s)
{
    if (s->mem) {
        if (st_mem_fds(s->mem)) {
            sc_bad(s, "%d descriptors stay open", st_mem_fds(s->mem));
        }
        st_mem_free(s->mem);
    } else {
        st_vol_remove(&s->vol);
    }
}

void sc_fs(struct sc *s, int port, struct ks_fs *ret)
{
    struct ks_fs base;
    if (s->mem) {
        st_mem_fs(s->mem, port, &base);
    } else {
        KT_REQUIRE(ks_fs_posix(&base, s->vol.dir, NULL) == 0);
    }
    KT_REQUIRE(s->n_ports < SC_PORTS);
    struct sc_port *p = &s->ports[s->n_ports];
    struct st_hooks *own = &s->own[s->n_ports++];
    *p = (struct sc_port){.s = s, .number = port};
    *own = (struct st_hooks){.before = before, .after = after, .ctx = p};
    st_fault_over(ret, &base, own);
}

bool sc_up_as(struct sc *s, int i, int32_t number)
{
    struct st_broker *b = &s->b[i];
    struct ks_opts opts = {.broker_id = number, .checkpoint_bytes = s->checkpoint_bytes};
    struct kc_err err = {0};
    struct ks_fs fs;
    sc_fs(s, number, &fs);
    int rc = st_broker_open(b, &fs, opts, &err);
    s->up[i] = rc == 0;
    rc = rc ? rc : ks_register(b->e, &b->inc, &err);
    if (rc && !s->faults) {
        sc_bad(s, "broker %d does not start: %s", number, err.msg);
    }
    return rc == 0;
}

bool sc_up(struct sc *s, int i)
{
    return sc_up_as(s, i, i + 1);
}

void sc_down(struct sc *s, int i)
{
    for (int n = 0; n < SC_LOGS; n++) {
        if (s->logs[n].log && s->logs[n].broker == i) {
            sc_close(s, s->logs[n].log);
        }
    }
    if (s->up[i]) {
        st_broker_stop(&s->b[i]);
        s->up[i] = false;
    }
}

void sc_end(struct sc *s)
{
    for (int i = 0; i < SC_BROKERS; i++) {
        sc_down(s, i);
    }
}

/* ---- logs ---- */

void sc_own(struct sc *s, int i, int32_t part, struct ks_log *log)
{
    int n = 0;
    while (s->logs[n].log) {
        n++;
        KT_REQUIRE(n < SC_LOGS);
    }
    s->logs[n].log = log;
    s->logs[n].broker = i;
    s->logs[n].part = part;
    ks_log_own(log, &s->b[i].loop);
}

static int place_of(struct sc *s, const struct ks_log *log)
{
    int n = 0;
    while (s->logs[n].log != log) {
        n++;
        KT_REQUIRE(n < SC_LOGS);
    }
    return n;
}

static struct st_broker *broker_of(struct sc *s, const struct ks_log *log)
{
    return &s->b[s->logs[place_of(s, log)].broker];
}

struct ks_log *sc_open(struct sc *s, int i, int32_t part)
{
    struct st_open o;
    if (!s->up[i]) {
        return NULL;
    }
    struct ks_open_args args = st_args(&s->b[i], &s->topic, part, &o);
    args.config = s->cfg;
    if (st_open_rc(&s->b[i], &args, &o)) {
        if (o.rc == KC_E_CORRUPT) {
            sc_bad(s, "open calls partition %d corrupt: %s", part, o.err.msg);
        } else if (!s->faults) {
            sc_bad(s, "open of partition %d: %d %s", part, o.rc, o.err.msg);
        }
        return NULL;
    }
    sc_own(s, i, part, o.log);
    return o.log;
}

void sc_close(struct sc *s, struct ks_log *log)
{
    if (log) {
        struct st_broker *b = broker_of(s, log);
        s->logs[place_of(s, log)].log = NULL;
        st_close(b, log);
    }
}

void sc_seal(struct sc *s, struct ks_log *log, struct st_seal *seal)
{
    struct st_broker *b = broker_of(s, log);
    s->logs[place_of(s, log)].log = NULL;
    st_seal(b, log, seal);
}

/* ---- the ledger ---- */

static void add(struct sc *s, int32_t part, const struct sc_ack *a)
{
    KT_REQUIRE(s->n_acks < SC_ACKS);
    s->acks[s->n_acks] = *a;
    s->acks[s->n_acks++].part = part;
    if (s->mem) {
        st_mem_mark(s->mem, (uint64_t)s->n_acks);
    }
}

static void note(struct sc *s, int32_t part, const struct sc_ack *a)
{
    for (int i = 0; i < s->n_acks; i++) {
        struct sc_ack *old = &s->acks[i];
        if (old->part == part && old->crc == a->crc && old->base != a->base) {
            sc_bad(s, "partition %d: the batch at %lld is at %lld, too", part, (long long)old->base,
                   (long long)a->base);
        }
        if (old->part != part || old->base + old->count <= a->base ||
            old->base >= a->base + a->count) {
            continue;
        }
        if (old->base != a->base || old->crc != a->crc) {
            sc_bad(s, "partition %d: two batches at offset %lld", part, (long long)a->base);
        }
        old->seq = KC_MAX(old->seq, a->seq);
        return;
    }
    add(s, part, a);
}

void sc_tell(struct sc *s, int32_t kind, int64_t base, int32_t count)
{
    struct sc_ack a = {.base = base, .count = count, .seq = -1};
    add(s, kind, &a);
    sc_learn(s, &s->acks[s->n_acks - 1]);
}

void sc_learn(struct sc *s, const struct sc_ack *a)
{
    if (a->part == SC_TOPIC) {
        s->removed[a->base] = a->count == SC_GONE;
        s->written[a->base] = KC_MAX(a->count, 0);
    } else if (a->part == SC_PIDS) {
        KT_REQUIRE(s->n_pids < (int)KC_ARRAY_LEN(s->pids));
        s->pids[s->n_pids++] = a->base;
    }
}

struct sc_ack sc_told_of(const struct ks_batch *b)
{
    return (struct sc_ack){.base = b->base,
                           .count = b->last_delta + 1,
                           .crc = b->crc,
                           .seq = b->producer_id > 0 ? b->first_seq : -1,
                           .key = (int32_t)KC_MAX(b->base_ts % 10, 0)};
}

struct sent {
    struct st_append a;
    struct sc_ack ack;
};

/* Records of compacted logs have keys, and batches one record: what is cleaned goes as a whole. */
static struct kc_slice make(const struct sc *s, const struct st_batch *b)
{
    if (!s->cfg.compact) {
        return st_make(b);
    }
    struct sk_record r = {.key = (int32_t)(b->ts % 10), .value = 1, .ts = b->ts};
    KT_REQUIRE(b->count <= 1);
    kc_mem_spare(true); /* an injected failure is meant for the log */
    struct kc_slice slice = sk_make(&(struct sk_batch){
        .n = 1, .records = &r, .pid = b->pid, .seq = b->seq, .padding = b->value_len});
    kc_mem_spare(false);
    return slice;
}

/* Queues a batch; the caller waits for sent->a.done and then calls judge(). */
static void send_batch(const struct sc *s, struct ks_log *log, const struct st_batch *b,
                       struct sent *ret)
{
    struct ks_batch head;
    struct kc_slice slice = make(s, b);
    KT_REQUIRE(ks_batch_parse(slice.ptr, &head));
    ret->ack = sc_told_of(&head);
    st_append_start(log, slice, KS_FROM_CLIENT, &ret->a);
}

static bool judge(struct sc *s, int32_t part, struct sent *sent)
{
    const struct ks_append_result *r = &sent->a.r;
    if (r->error == 0) {
        sent->ack.base = r->base_offset;
        note(s, part, &sent->ack);
        return true;
    }
    if (r->error != 56 && r->error != 6) {
        sc_bad(s, "partition %d: an append is answered with %d", part, r->error);
    } else if (!s->faults) {
        sc_bad(s, "partition %d: an append fails with %d on a healthy volume", part, r->error);
    }
    return false;
}

static struct st_batch plain(struct sc *s, int32_t n)
{
    s->stamp += 10;
    int64_t key = s->cfg.compact ? 1 + s->stamp / 10 % 3 : 0;
    return (struct st_batch){.count = n, .ts = s->stamp + key, .value_len = SC_VALUE};
}

bool sc_put(struct sc *s, struct ks_log *log, int32_t n)
{
    if (!log) {
        return false;
    }
    struct st_batch b = plain(s, n);
    struct sent sent;
    send_batch(s, log, &b, &sent);
    st_until(broker_of(s, log), &sent.a.done);
    return judge(s, s->logs[place_of(s, log)].part, &sent);
}

bool sc_put_idem(struct sc *s, struct ks_log *log)
{
    if (!log) {
        return false;
    }
    int32_t part = s->logs[place_of(s, log)].part;
    struct sc_producer *p = &s->producers[part];
    struct st_batch b = {.pid = 1000 + part,
                         .seq = p->seq,
                         .ts = s->first_stamp + 100000 * (part + 1) + 10 * p->seq +
                               (s->cfg.compact ? KEY_OF_PRODUCER : 0),
                         .value_len = SC_VALUE};
    struct sent sent;
    send_batch(s, log, &b, &sent);
    st_until(broker_of(s, log), &sent.a.done);
    bool ok = judge(s, part, &sent);
    p->seq += ok;
    return ok;
}

void sc_journal(struct sc *s, int i, uint64_t bytes, struct ks_log *a, struct ks_log *b)
{
    struct ks_engine *e = s->b[i].e;
    int64_t end = kc_mono_ms() + 30000;
    e->direct_files = 0; /* the appends that follow are behind this */
    e->journal_bytes = bytes;
    sc_put_group(s, a, b, 1);
    while (atomic_load(&e->m_journals) == 0) {
        KT_REQUIRE(kc_mono_ms() < end);
        sched_yield();
    }
    sc_put_group(s, a, b, 1);
    KT_TRUE(atomic_load(&e->m_frames) > 0);
}

void sc_put_refused(struct sc *s, struct ks_log *log, bool allowed)
{
    bool faults = s->faults;
    s->faults = true; /* to be refused is right here */
    if (sc_put(s, log, 1) && !allowed) {
        sc_bad(s, "an owner that is fenced acks");
    }
    s->faults = faults;
}

void sc_put_group(struct sc *s, struct ks_log *a, struct ks_log *b, int each)
{
    enum { MAX = 8 };
    struct sent sent[2 * MAX];
    struct ks_log *logs[] = {a, b};
    KT_REQUIRE(each <= MAX);
    for (int i = 0; i < 2 * each; i++) {
        struct st_batch batch = plain(s, 1 + i % 3);
        if (logs[i % 2]) {
            send_batch(s, logs[i % 2], &batch, &sent[i]);
        }
    }
    for (int i = 0; i < 2 * each; i++) {
        if (logs[i % 2]) {
            st_until(broker_of(s, logs[i % 2]), &sent[i].a.done);
            judge(s, s->logs[place_of(s, logs[i % 2])].part, &sent[i]);
        }
    }
}

/* A recovery that waits for its next attempt need not wait, nor the next trial of a volume that
 * refused something. */
static void hurry(struct ks_log *log)
{
    struct ks_reserve *r = &log->e->reserve;
    int64_t at = atomic_load(&log->c_retry_at_ms);
    bool wake = at > 1 && atomic_compare_exchange_strong(&log->c_retry_at_ms, &at, 1);
    pthread_mutex_lock(&r->lock);
    if (r->room.state != KS_VOLUME_OK && r->room.next_ms > 1 && !r->busy) {
        r->room.next_ms = 1;
        wake = true;
    }
    pthread_mutex_unlock(&r->lock);
    if (wake) {
        ks_watch_wake(log->e);
    }
}

bool sc_try(struct sc *s, struct ks_log *log, int times)
{
    bool faults = s->faults, ok = false;
    s->faults = true; /* until the log is back, refusals are right */
    for (int i = 0; log && i < times && !log->gone && !ok; i++) {
        ok = sc_put_idem(s, log);
        if (!ok) {
            hurry(log);
            uv_run(&broker_of(s, log)->loop.uv, UV_RUN_NOWAIT);
            sched_yield();
        }
    }
    s->faults = faults;
    return ok;
}

bool sc_resume(struct sc *s, struct ks_log *log)
{
    int64_t end = kc_mono_ms() + 30000;
    bool ok = false;
    while (log && !(ok = sc_try(s, log, 1)) && !log->gone) {
        if (kc_mono_ms() > end) {
            sc_bad(s, "partition %d neither resumes nor is let go", log->partition);
            break;
        }
    }
    return ok;
}

static void on_read(void *ctx, const struct ks_read_result *r)
{
    struct st_read *read = ctx;
    read->done = true;
    read->r = *r;
}

bool sc_walk(struct sc *s, struct ks_log *log, sc_batch_fn fn)
{
    struct ks_offsets o = ks_log_offsets(log);
    int32_t part = s->logs[place_of(s, log)].part;
    ks_cache_drop(log);
    for (int64_t at = o.start; at < o.high_watermark;) {
        struct st_read read = {0};
        struct ks_read_args args = {.offset = at,
                                    .limit_offset = o.high_watermark,
                                    .max_bytes = 10000,
                                    .at_least_one = true};
        ks_log_read(log, &args, on_read, &read);
        st_until(broker_of(s, log), &read.done);
        for (int32_t i = 0; i < read.r.n_slices; i++) {
            struct ks_batch b;
            for (size_t off = 0; off < read.r.slices[i].len; off += b.size) {
                const uint8_t *p = read.r.slices[i].ptr + off;
                KT_REQUIRE(ks_batch_parse(p, &b));
                if (!ks_batch_crc_ok(p, &b) || (s->cfg.compact ? b.base < at : b.base != at)) {
                    sc_bad(s, "partition %d: at offset %lld a bad batch, of %lld", part,
                           (long long)at, (long long)b.base);
                }
                fn(s, part, &b);
                at = ks_batch_last(&b) + 1;
            }
            kc_buf_unref(read.r.slices[i].buf);
        }
        if (read.r.error == 1 && ks_log_offsets(log).start > at) {
            at = ks_log_offsets(log).start; /* retention was faster */
            continue;
        }
        if (read.r.error || read.r.n_slices == 0) {
            if (read.r.error != 56 && read.r.error != 6) {
                sc_bad(s, "partition %d: a read is answered with %d", part, read.r.error);
            } else if (!s->faults) {
                sc_bad(s, "partition %d: a read at %lld of %lld fails with %d", part, (long long)at,
                       (long long)o.high_watermark, read.r.error);
            }
            return false;
        }
    }
    return true;
}

static void note_read(struct sc *s, int32_t part, const struct ks_batch *b)
{
    struct sc_ack a = sc_told_of(b);
    if (b->count > 0) { /* else what a cleaning left of it */
        note(s, part, &a);
    }
}

void sc_read(struct sc *s, struct ks_log *log)
{
    if (log && !log->gone) {
        sc_walk(s, log, note_read);
    }
}

/* ---- work behind the scenes ---- */

void sc_clean(struct sc *s, int i)
{
    struct st_broker *b = &s->b[i];
    int64_t end = kc_mono_ms() + 30000;
    bool logs = false;
    for (int n = 0; n < SC_LOGS; n++) {
        logs = logs || (s->logs[n].log && s->logs[n].broker == i);
    }
    while (logs && !ks_clean_now(b->e) && kc_mono_ms() < end) {
        uv_run(&b->loop.uv, UV_RUN_ONCE);
    }
    while (logs && !ks_clean_idle(b->e) && kc_mono_ms() < end) {
        uv_run(&b->loop.uv, UV_RUN_ONCE);
    }
    if (kc_mono_ms() >= end) {
        sc_bad(s, "the cleaner does not come to an end");
    }
}

void sc_settle(struct ks_log *log)
{
    while (log && atomic_load(&log->ckpt.busy)) {
        sched_yield();
    }
}

void sc_tidied(struct sc *s, int i)
{
    struct ks_engine *e = s->up[i] ? s->b[i].e : NULL;
    while (e && !ks_tidy_idle(e) && ks_volume_state(e) == KS_VOLUME_OK) {
        sched_yield();
    }
}
