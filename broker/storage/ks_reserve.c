/* The reserve's I/O: trials on the pool of hints (nothing waits for them), giving up on the thread
 * that met the error. */
#include "storage/ks_reserve.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_log.h"
#include "base/kc_mem.h"
#include "base/kc_rng.h"
#include "base/kc_str.h"
#include "storage/ks_int.h"

enum { LOOK_MS = 10000, PROOF_BYTES = 4096 };
static const char prefix[] = "reserve.";

static void piece_path(const struct ks_engine *e, uint32_t i, char out[KS_PATH_MAX])
{
    snprintf(out, KS_PATH_MAX, "inc/%d/%s%u", e->broker_id, prefix, i);
}

static const char *state_text(enum ks_volume v)
{
    return v == KS_VOLUME_FULL        ? "the volume is full: records are refused, reads go on"
           : v == KS_VOLUME_READ_ONLY ? "the volume is read-only: records are refused, reads go on"
                                      : "the volume takes bytes again";
}

/* With the lock held. */
static void changed(struct ks_reserve *r, int rc)
{
    static const char *const names[] = {[KS_VOLUME_OK] = "volume_writable",
                                        [KS_VOLUME_FULL] = "volume_full",
                                        [KS_VOLUME_READ_ONLY] = "volume_read_only"};
    enum ks_volume v = r->room.state;
    atomic_store(&r->state, (int)v);
    kc_log(v == KS_VOLUME_OK ? KC_INFO : KC_ERROR, "storage",
           "event=%s error=%d reserve_pieces=%u text=\"%s\"", names[v], rc, r->have, state_text(v));
}

/* ---- giving up ---- */

static void on_refused(void *ctx, int rc)
{
    struct ks_engine *e = ctx;
    struct ks_reserve *r = &e->reserve;
    atomic_fetch_add(&r->refused, 1);
    pthread_mutex_lock(&r->lock);
    bool now = ks_room_error(&r->room, rc, kc_mono_ms());
    if (now) {
        changed(r, rc);
    }
    pthread_mutex_unlock(&r->lock);
    if (now) {
        ks_watch_wake(e); /* it may be over already, and if not, retention is to make room */
    }
}

static bool take_piece(struct ks_reserve *r, uint32_t *ret)
{
    bool found = false;
    *ret = 0;
    pthread_mutex_lock(&r->lock);
    for (uint32_t i = r->have > 0 ? KS_RESERVE_PIECES : 0; !found && i-- > 0;) {
        if (r->there[i / 64] >> (i % 64) & 1) {
            r->there[i / 64] &= ~(UINT64_C(1) << (i % 64));
            r->have--;
            *ret = i;
            found = true;
        }
    }
    pthread_mutex_unlock(&r->lock);
    return found;
}

static bool give(void *ctx)
{
    struct ks_engine *e = ctx;
    for (uint32_t i = 0; take_piece(&e->reserve, &i);) {
        char path[KS_PATH_MAX], dir[KS_PATH_MAX];
        piece_path(e, i, path);
        if (ks_fs_unlink(&e->fs, path) == 0) {
            /* Some file systems free the bytes only when their journal is written. */
            snprintf(dir, sizeof(dir), "inc/%d", e->broker_id);
            int rc = ks_fs_syncdir(&e->fs, dir);
            kc_log(KC_WARN, "storage", "event=reserve_given piece=%u sync=%d", i, rc);
            return true;
        }
    }
    return false;
}

/* ---- writing ---- */

static void add_piece(struct ks_reserve *r, uint32_t i)
{
    pthread_mutex_lock(&r->lock);
    if (!(r->there[i / 64] >> (i % 64) & 1)) {
        r->there[i / 64] |= UINT64_C(1) << (i % 64);
        r->have++;
    }
    pthread_mutex_unlock(&r->lock);
}

/* The lowest number that is free; KS_RESERVE_PIECES: none. */
static uint32_t free_number(struct ks_reserve *r)
{
    uint32_t i = 0;
    pthread_mutex_lock(&r->lock);
    while (i < KS_RESERVE_PIECES && r->there[i / 64] >> (i % 64) & 1) {
        i++;
    }
    pthread_mutex_unlock(&r->lock);
    return i;
}

static int write_piece(struct ks_engine *e, uint32_t i, const uint8_t *data, size_t len)
{
    char dir[KS_PATH_MAX], name[32];
    snprintf(dir, sizeof(dir), "inc/%d", e->broker_id);
    snprintf(name, sizeof(name), "%s%u", prefix, i);
    int rc = ks_vol_publish(&e->fs, dir, name, data, len);
    return rc == KC_E_EXISTS ? 0 : rc;
}

/* Writes what is missing. Nothing is missing: writes something and removes it. */
static int fill(struct ks_engine *e, uint32_t want)
{
    struct ks_reserve *r = &e->reserve;
    uint8_t *data = kc_try_alloc(KS_RESERVE_PIECE);
    int rc = data ? 0 : -ENOMEM;
    bool wrote = false;
    if (!rc) {
        kc_random_bytes(data, KS_RESERVE_PIECE);
    }
    for (uint32_t i; !rc && (i = free_number(r)) < want;) {
        rc = write_piece(e, i, data, KS_RESERVE_PIECE);
        if (!rc) {
            add_piece(r, i);
            wrote = true;
        }
    }
    if (!rc && !wrote) {
        char path[KS_PATH_MAX];
        rc = write_piece(e, KS_RESERVE_PIECES, data, PROOF_BYTES);
        piece_path(e, KS_RESERVE_PIECES, path);
        rc = rc ? rc : ks_fs_unlink(&e->fs, path);
    }
    kc_free(data);
    return rc;
}

static void look(struct rt_work *w)
{
    struct ks_engine *e = KC_CONTAINER_OF(w, struct ks_engine, reserve.work);
    struct ks_reserve *r = &e->reserve;
    uint64_t free = UINT64_MAX;
    bool told = ks_fs_room(&e->fs, &free) == 0;
    atomic_store(&r->free_bytes, told && free <= INT64_MAX ? (int64_t)free : -1);
    pthread_mutex_lock(&r->lock);
    uint32_t want = ks_room_want(r->bytes, atomic_load(&e->n_logs));
    uint64_t errors = r->room.errors;
    bool trial = r->trial &&
                 ks_room_worth(&r->room, want > r->have ? want - r->have : 0, free, kc_mono_ms());
    pthread_mutex_unlock(&r->lock);
    int rc = trial ? fill(e, want) : 0;
    pthread_mutex_lock(&r->lock);
    if (trial && ks_room_tried(&r->room, rc, errors, kc_mono_ms())) {
        changed(r, 0);
    }
    r->busy = false;
    pthread_mutex_unlock(&r->lock);
}

bool ks_reserve_tick(struct ks_engine *e)
{
    struct ks_reserve *r = &e->reserve;
    int64_t now = kc_mono_ms();
    uint32_t want = ks_room_want(r->bytes, atomic_load(&e->n_logs));
    pthread_mutex_lock(&r->lock);
    bool trial = ks_room_due(&r->room, r->have, want, now);
    bool post = !r->busy && (trial || now >= r->look_ms);
    if (post) {
        r->busy = true;
        r->trial = trial;
        r->look_ms = now + LOOK_MS;
        r->work.fn = look;
    }
    bool wanted = r->room.state == KS_VOLUME_FULL;
    pthread_mutex_unlock(&r->lock);
    if (post) { /* the watch thread ends before the pool */
        rt_pool_post(e->hint, &r->work);
    }
    return wanted;
}

/* ---- the start ---- */

static bool on_name(void *arg, const char *name)
{
    struct ks_engine *e = arg;
    int64_t i;
    if (strncmp(name, prefix, sizeof(prefix) - 1) != 0 ||
        kc_parse_i64(kc_str_of(name + sizeof(prefix) - 1), &i) || i < 0 || i >= KS_RESERVE_PIECES) {
        return true;
    }
    add_piece(&e->reserve, (uint32_t)i); /* a name is made when the piece is whole and synced */
    return true;
}

void ks_reserve_find(struct ks_engine *e)
{
    char dir[KS_PATH_MAX];
    snprintf(dir, sizeof(dir), "inc/%d", e->broker_id);
    if (e->reserve.bytes) {
        ks_fs_list(&e->fs, dir, on_name, e); /* what fails is written anew, beside */
    }
}

bool ks_reserve_may_retry(struct ks_engine *e)
{
    struct ks_reserve *r = &e->reserve;
    pthread_mutex_lock(&r->lock);
    bool may = ks_room_may_retry(&r->room, r->have, kc_mono_ms());
    pthread_mutex_unlock(&r->lock);
    return may;
}

void ks_reserve_init(struct ks_engine *e, int64_t bytes)
{
    struct ks_reserve *r = &e->reserve;
    pthread_mutex_init(&r->lock, NULL);
    ks_room_init(&r->room, kc_mono_ms());
    r->bytes = bytes;
    atomic_init(&r->state, KS_VOLUME_OK);
    atomic_init(&r->free_bytes, -1);
    e->fs.refused = on_refused;
    e->fs.make_room = give;
    e->fs.room_ctx = e;
}

void ks_reserve_fini(struct ks_engine *e)
{
    pthread_mutex_destroy(&e->reserve.lock);
}

enum ks_volume ks_volume_state(struct ks_engine *e)
{
    return (enum ks_volume)atomic_load_explicit(&e->reserve.state, memory_order_relaxed);
}

uint64_t ks_reserve_bytes(struct ks_engine *e)
{
    return (uint64_t)atomic_load(&e->reserve.have) * KS_RESERVE_PIECE;
}
