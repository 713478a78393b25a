#include "ss_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_mem.h"
#include "base/kc_str.h"
#include "ss_mutant.h"
#include "ss_records.h"
#include "storage/ks_batch.h"
#include "storage/ks_vol.h"

enum { BATCHES_MAX = 1 << 15, OFFSETS_MAX = 1 << 15, SEALS_MAX = 4096 };

struct sent {
    int part;
    int64_t acked; /* base offset; -1 = not */
    bool coord;
    uint32_t crc; /* of a coordinator's batch */
    int64_t final; /* where the final log has it; -1 = nowhere yet */
};

struct sealed {
    char path[KS_PATH_MAX];
    uint64_t len, digest;
    int part;
};

struct part {
    bool deleted, coord;
    bool relaxed; /* flush.messages: what was acked may go with whoever acked it */
    int64_t seen_end; /* behind the last offset that was acked or read */
    int64_t start; /* as told to somebody who had records deleted */
    int cleaners; /* at work on it */
    uint32_t seen[OFFSETS_MAX]; /* offset -> number + 1 of the batch: acks and reads */
    uint32_t final[OFFSETS_MAX];
    int32_t epoch[OFFSETS_MAX];
    uint8_t gone[OFFSETS_MAX]; /* a COMPACT took the record away */
    int64_t hw, final_end;
    struct ks_chain chain;
};

static struct {
    struct kc_uuid topic[SS_TOPICS];
    char prefix[SS_TOPICS][64]; /* their directories */
    uint64_t n_sent;
    struct sent sent[BATCHES_MAX];
    struct part part[SS_ALL_PARTS];
    int n_sealed;
    struct sealed sealed[SEALS_MAX];
    struct ss_counts counts;
    char broken[512];
} * C;

const char *ss_check_broken(void)
{
    return C->broken[0] ? C->broken : NULL;
}

void ss_check_fail(const char *fmt, ...)
{
    if (!C->broken[0]) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(C->broken, sizeof(C->broken), fmt, ap);
        va_end(ap);
    }
}

struct ss_counts *ss_check_counts(void)
{
    return &C->counts;
}

void ss_check_begin(const struct kc_uuid topics[SS_TOPICS])
{
    C = calloc(1, sizeof(*C)); /* zeroed lazily by the kernel: kc_zalloc would touch it all */
    KC_ASSERT(C);
    for (int t = 0; t < SS_TOPICS; t++) {
        char id[KC_UUID_B64_LEN + 1];
        C->topic[t] = topics[t];
        kc_uuid_to_b64(&topics[t], id);
        snprintf(C->prefix[t], sizeof(C->prefix[t]), "topics/%s/", id);
    }
    for (int p = 0; p < SS_ALL_PARTS; p++) {
        ks_chain_init(&C->part[p].chain);
    }
}

void ss_check_end(void)
{
    for (int p = 0; p < SS_ALL_PARTS; p++) {
        ks_chain_fini(&C->part[p].chain);
    }
    free(C);
    C = NULL;
}

/* ---- batches ---- */

uint64_t ss_check_new(int part)
{
    KC_ASSERT(C->n_sent < BATCHES_MAX);
    C->sent[C->n_sent] = (struct sent){.part = part, .acked = -1, .final = -1};
    return C->n_sent++;
}

uint64_t ss_check_new_coord(int part, uint32_t crc)
{
    uint64_t number = ss_check_new(part);
    C->sent[number].coord = C->part[part].coord = true;
    C->sent[number].crc = crc;
    return number;
}

/* ---- I4, I5, I1 ---- */

static void note(int part, uint64_t number, int64_t base, int64_t records, const char *how)
{
    struct part *p = &C->part[part];
    if (base < 0 || base + records > OFFSETS_MAX || number >= C->n_sent ||
        C->sent[number].part != part) {
        ss_check_fail("I4: %s gave offset %lld of partition %d to batch %llu, which is not of it",
                      how, (long long)base, part, (unsigned long long)number);
        return;
    }
    for (int64_t o = base; o < base + records; o++) {
        if (p->seen[o] && p->seen[o] != number + 1) {
            ss_check_fail("I4: %s gave offset %lld of partition %d to batch %llu; it was of %u",
                          how, (long long)o, part, (unsigned long long)number, p->seen[o] - 1);
        }
        p->seen[o] = (uint32_t)number + 1;
    }
    p->seen_end = KC_MAX(p->seen_end, base + records);
}

void ss_check_deleted(int topic)
{
    C->counts.deletions++;
    for (int p = 0; p < SS_PARTS; p++) {
        C->part[topic * SS_PARTS + p].deleted = true;
    }
}

bool ss_check_is_deleted(int part)
{
    return C->part[part].deleted;
}

void ss_check_start(int part, int64_t start)
{
    C->part[part].start = KC_MAX(C->part[part].start, start);
}

void ss_check_relaxed(int partition)
{
    for (int t = 0; t < SS_TOPICS; t++) {
        C->part[t * SS_PARTS + partition].relaxed = true;
    }
}

/* The epoch was sealed before that offset, and what it had there was not synced (flush.messages). Of a
 * deleted topic, whose chain nobody follows: perhaps. */
static bool is_lost(int part, int64_t offset, int32_t epoch)
{
    const struct part *p = &C->part[part];
    const struct ks_epoch *e = p->relaxed ? ks_chain_epoch(&p->chain, epoch) : NULL;
    return p->relaxed && (p->deleted || (e && e->sealed && offset >= e->end));
}

void ss_check_acked(int part, uint64_t number, int64_t base, int32_t records, int32_t epoch)
{
    struct sent *s = &C->sent[number];
    C->counts.acks++;
    if (is_lost(part, base, epoch)) {
        return; /* heard of late */
    }
    note(part, number, base, records, "an ack");
    if (s->acked >= 0 && s->acked != base) {
        ss_check_fail("batch %llu was acked at offset %lld and at %lld", (unsigned long long)number,
                      (long long)s->acked, (long long)base);
    }
    s->acked = base;
}

void ss_check_high_watermark(int part, int64_t hw, int32_t epoch)
{
    const struct ks_epoch *e = ks_chain_epoch(&C->part[part].chain, epoch);
    if (e && is_lost(part, hw, epoch)) {
        hw = KC_MIN(hw, e->sealed ? e->end : 0);
    }
    C->part[part].hw = KC_MAX(C->part[part].hw, hw);
}

void ss_check_out_of_order(int part, int32_t epoch)
{
    const struct ks_epoch *last = ks_chain_last(&C->part[part].chain);
    bool owner = last && last->epoch == epoch && !last->sealed;
    C->counts.out_of_order++;
    ss_check_fail("epoch %d of partition %d, %s, calls a producer out of order", epoch, part,
                  owner ? "which is the last" : "which is over");
}

static void note_final(int part, uint64_t number, const struct ks_batch *b)
{
    struct part *p = &C->part[part];
    struct sent *s = &C->sent[number];
    const struct ks_epoch *e = ks_chain_epoch(&p->chain, b->epoch);
    if (s->final >= 0 && s->final != b->base) {
        ss_check_fail("batch %llu is in the log twice, at offsets %lld and %lld",
                      (unsigned long long)number, (long long)s->final, (long long)b->base);
    }
    if (!e || e->base < 0 || b->base < e->base || (e->sealed && ks_batch_last(b) >= e->end)) {
        ss_check_fail("I9: the batch at offset %lld says epoch %d, which is elsewhere",
                      (long long)b->base, b->epoch);
    }
    s->final = b->base;
    for (int64_t o = b->base; o <= ks_batch_last(b); o++) {
        if (p->final[o] && (p->final[o] != number + 1 || p->epoch[o] != b->epoch)) {
            ss_check_fail("I6: offset %lld of partition %d changed under a seal", (long long)o,
                          part);
        }
        p->final[o] = (uint32_t)number + 1;
        p->epoch[o] = b->epoch;
    }
}

/* Which batch of a coordinator it is: the one that is known to stand there, if the checksum is its own,
 * for among millions two have the same. UINT64_MAX: none that was sent. */
static uint64_t by_checksum(int part, const struct ks_batch *b)
{
    const uint32_t *seen = C->part[part].seen;
    if (b->base >= 0 && b->base < OFFSETS_MAX && seen[b->base] &&
        C->sent[seen[b->base] - 1].crc == b->crc) {
        return seen[b->base] - 1;
    }
    for (uint64_t i = C->n_sent; i-- > 0;) {
        if (C->sent[i].coord && C->sent[i].part == part && C->sent[i].crc == b->crc) {
            return i;
        }
    }
    return UINT64_MAX;
}

/* Where a read gave no record, a cleaning took it away. Of a deleted topic nobody follows the chain. */
static void check_gap(int part, int64_t from, int64_t end, const char *how)
{
    const struct part *p = &C->part[part];
    for (int64_t o = from; o < end && o < OFFSETS_MAX && !p->deleted; o++) {
        if (!p->gone[o]) {
            ss_check_fail("I5: %s left out offset %lld of partition %d", how, (long long)o, part);
        }
    }
}

/* The records that a batch still has; returns its number. */
static uint64_t check_records(int part, const uint8_t *raw, const struct ks_batch *b, bool final,
                              const char *how)
{
    const struct part *p = &C->part[part];
    uint64_t number = p->coord ? by_checksum(part, b) : UINT64_MAX;
    int64_t next = b->base;
    struct ks_record_iter it;
    struct ks_record r;
    ks_records_begin(&it, raw, b);
    while (ks_records_next(&it, &r) > 0) {
        int64_t at = b->base + r.offset_delta;
        number = p->coord || number != UINT64_MAX ? number : ss_record_number(&r);
        if (!p->coord && !ss_record_is(&r, number)) {
            ss_check_fail("I4: %s gave offset %lld of partition %d to a record of nobody", how,
                          (long long)at, part);
        }
        if (final && at < OFFSETS_MAX && p->gone[at]) {
            ss_check_fail("offset %lld of partition %d, which was cleaned, is back", (long long)at,
                          part);
        }
        check_gap(part, next, at, how);
        next = at + 1;
    }
    check_gap(part, next, ks_batch_last(b) + 1, how);
    return number;
}

/* Returns the offset behind the batch. */
static int64_t check_batch(int part, const uint8_t *raw, const struct ks_batch *b, int64_t from,
                           bool final)
{
    const char *how = final ? "the final log" : "a read";
    if (is_lost(part, b->base, b->epoch)) {
        if (final) {
            ss_check_fail("I2: offset %lld of partition %d is beyond the seal of its epoch",
                          (long long)b->base, part);
        }
        return ks_batch_last(b) + 1;
    }
    check_gap(part, from, b->base, how);
    uint64_t number = check_records(part, raw, b, final, how);
    C->counts.batches_read++;
    C->counts.batches_empty += b->count == 0;
    if (b->count > 0) {
        note(part, number, b->base, b->last_delta + 1LL, how);
    }
    if (final && b->count > 0 && !ss_check_broken()) {
        note_final(part, number, b);
    }
    return ks_batch_last(b) + 1;
}

void ss_check_read(int part, int64_t from, const struct ks_read_result *r, bool final)
{
    C->counts.reads++;
    for (int32_t i = 0; i < r->n_slices; i++) {
        const uint8_t *p = r->slices[i].ptr;
        struct ks_batch b;
        for (size_t at = 0; at < r->slices[i].len; at += b.size) {
            if (r->slices[i].len - at < KS_BATCH_HEADER || !ks_batch_parse(p + at, &b) ||
                b.size > r->slices[i].len - at || !ks_batch_crc_ok(p + at, &b)) {
                ss_check_fail("a read of partition %d gave bytes that are no batch", part);
                return;
            }
            from = check_batch(part, p + at, &b, from, final);
        }
    }
}

void ss_check_final(int part, int64_t start, int64_t end)
{
    struct part *p = &C->part[part];
    if (start < p->start) {
        ss_check_fail("partition %d starts at %lld again; records were deleted up to %lld", part,
                      (long long)start, (long long)p->start);
    }
    if (p->hw > end || end < p->final_end || end > OFFSETS_MAX) {
        ss_check_fail("I5: partition %d ends at %lld; a high watermark was %lld, an end %lld", part,
                      (long long)end, (long long)p->hw, (long long)p->final_end);
        return;
    }
    p->final_end = end;
    for (int64_t o = start; o < end; o++) {
        if (!p->final[o] && !p->gone[o]) {
            ss_check_fail("the final log of partition %d has no offset %lld", part, (long long)o);
        }
    }
    for (int64_t o = start; o < p->seen_end && !ss_check_broken(); o++) {
        if (p->seen[o] && p->seen[o] != p->final[o] && (p->final[o] || !p->gone[o])) {
            ss_check_fail("I1/I5: batch %u had offset %lld of partition %d; the final log has %s",
                          p->seen[o] - 1, (long long)o, part,
                          o >= end ? "no such offset" : "another batch there");
        }
    }
}

/* ---- I2, I6, I7, I8: what happens on the volume ---- */

static int part_of(const char *path, const char **ret_leaf)
{
    for (int t = 0; t < SS_TOPICS; t++) {
        size_t n = strlen(C->prefix[t]);
        if (strncmp(path, C->prefix[t], n) == 0 && path[n] >= '0' && path[n] < '0' + SS_PARTS &&
            path[n + 1] == '/') {
            *ret_leaf = path + n + 2;
            return t * SS_PARTS + path[n] - '0';
        }
    }
    return -1;
}

static void remember_sealed(int part, struct ks_file_id id, uint64_t len)
{
    KC_ASSERT(C->n_sealed < SEALS_MAX);
    struct sealed *s = &C->sealed[C->n_sealed++];
    s->part = part;
    ks_path_file(s->path, &C->topic[part / SS_PARTS], part % SS_PARTS, id);
    s->len = len;
    s->digest = ss_srv_digest(s->path, len);
    if (!s->digest) {
        ss_check_fail("%s is sealed at byte %llu, which is not on the volume", s->path,
                      (unsigned long long)len);
    }
}

/* Before it is part of the chain. */
static void check_compact(int part, const struct ks_rec *r)
{
    struct part *p = &C->part[part];
    struct ss_compaction cp = {.chain = &p->chain,
                               .topic = C->topic[part / SS_PARTS],
                               .partition = part % SS_PARTS,
                               .now_wall_ms = SS_WALL_MS + ss_now_us() / 1000,
                               .gone = p->gone,
                               .n_gone = OFFSETS_MAX};
    const char *wrong = ss_compact_check(&cp, r);
    C->counts.cleaned += cp.removed;
    if (wrong) {
        ss_check_fail("a COMPACT of offsets %lld to %lld of partition %d: %s, at %lld",
                      (long long)r->drop.start, (long long)r->drop.end, part, wrong,
                      (long long)cp.at);
    }
}

/* flush.messages: an epoch that others sealed may lack what its owner acked, at its end. The owner's own
 * seal may not. What is left is one log again. */
static void lose(int part, int64_t end)
{
    struct part *p = &C->part[part];
    for (int64_t o = end; o < p->seen_end; o++) {
        if (p->seen[o] && ss_inside(SS_S_OWN_SEAL)) {
            ss_check_fail("I1: the owner's seal leaves out offset %lld of partition %d",
                          (long long)o, part);
        }
        if (p->seen[o]) {
            C->sent[p->seen[o] - 1].acked = C->sent[p->seen[o] - 1].final = -1;
            C->counts.lost++;
        }
        p->seen[o] = p->final[o] = 0;
    }
    p->seen_end = KC_MIN(p->seen_end, end);
    p->final_end = KC_MIN(p->final_end, end);
    p->hw = KC_MIN(p->hw, end);
}

/* It is part of the chain now. rolled: the file that was the newest before it. */
static void note_record(int part, const struct ks_rec *r, struct ks_file_id rolled)
{
    struct ss_counts *n = &C->counts;
    bool cleaning = C->part[part].cleaners > 0;
    switch (r->type) {
    case KS_CLAIM:
        n->claims++;
        n->claims_cleaning += cleaning;
        break;
    case KS_ROLL:
        n->rolls++;
        remember_sealed(part, rolled, r->roll.prev_len);
        break;
    case KS_SEAL:
        n->seals++;
        n->seals_cleaning += cleaning;
        if (C->part[part].relaxed) {
            lose(part, r->seal.end);
        }
        remember_sealed(part, r->seal.file, r->seal.len);
        if (r->seal.rescued) {
            remember_sealed(part, r->seal.copy.file, r->seal.copy.len);
            n->copies++;
        }
        break;
    case KS_COMPACT:
        n->compacts++;
        remember_sealed(part, r->drop.new_files[0].file, r->drop.new_files[0].len);
        break;
    case KS_TRIM:
        n->trims++;
        break;
    }
}

static void check_record(const char *path, const uint8_t *data, size_t len)
{
    const char *leaf = "";
    int part = part_of(path, &leaf);
    struct ks_rec r;
    struct kc_err err = {0};
    if (part < 0 || C->part[part].deleted || strncmp(leaf, "ctl.", 4) != 0) {
        return; /* a claimant of a deleted topic stops before it opens (ADR 11), not before it links */
    }
    struct ks_chain *c = &C->part[part].chain;
    if (ks_rec_decode(data, len, &r)) {
        ss_check_fail("I7: %s is no record", path);
        return;
    }
    const struct ks_chain_file *prev = c->n_files ? &c->files[c->n_files - 1] : NULL;
    struct ks_file_id rolled = prev ? prev->id : (struct ks_file_id){0};
    int64_t named;
    bool due = !kc_parse_i64(kc_str_of(leaf + 4), &named) && (uint64_t)named == c->next_k;
    if (due && r.type == KS_COMPACT) {
        check_compact(part, &r);
    }
    if (!due) {
        ss_check_fail("I7: %s stands where ctl.%llu was due", path, (unsigned long long)c->next_k);
    } else if (ss_chain_apply(c, &r, &err)) {
        ss_check_fail("I7: %s", err.msg);
    } else if (c->late_seals) {
        ss_check_fail("I2: epoch %d was sealed twice", r.epoch);
    } else {
        note_record(part, &r, rolled);
    }
    ks_rec_fini(&r);
}

static void linked(void *ctx, const char *path, const uint8_t *data, size_t len)
{
    (void)ctx;
    ss_local()->ours = true;
    check_record(path, data, len);
    ss_local()->ours = false;
}

static const struct ks_chain_file *file_named(int part, const char *leaf)
{
    const struct ks_chain *c = &C->part[part].chain;
    for (uint32_t i = 0; i < c->n_files; i++) {
        char name[KS_FILE_NAME_LEN];
        ks_file_name(c->files[i].id, name);
        if (strcmp(name, leaf) == 0) {
            return &c->files[i];
        }
    }
    return NULL;
}

static void unlinked(void *ctx, const char *path)
{
    const char *leaf = "";
    int part = part_of(path, &leaf);
    (void)ctx;
    if (part < 0 || C->part[part].deleted) {
        return;
    }
    const struct ks_chain_file *f = file_named(part, leaf);
    if (strncmp(leaf, "ctl.", 4) == 0 || (f && !f->dropped && !f->replaced)) {
        ss_check_fail("I8: %s was removed, and no record says so", path);
    }
}

static void broken(void *ctx, const char *what, const char *path)
{
    (void)ctx;
    ss_check_fail("%s %s", what, path);
}

void ss_check_cleaning(const struct kc_uuid *topic, int32_t partition, int more)
{
    for (int t = 0; t < SS_TOPICS && partition < SS_PARTS; t++) {
        C->part[t * SS_PARTS + partition].cleaners += kc_uuid_eq(&C->topic[t], topic) ? more : 0;
    }
}

struct ss_watch ss_check_watch(void)
{
    return (struct ss_watch){.linked = linked, .unlinked = unlinked, .broken = broken};
}

void ss_check_sealed(void)
{
    for (int i = 0; i < C->n_sealed; i++) {
        const struct sealed *s = &C->sealed[i];
        const struct ks_chain_file *f = file_named(s->part, strrchr(s->path, '/') + 1);
        if (f && !f->dropped && !f->replaced && !C->part[s->part].deleted &&
            ss_srv_digest(s->path, s->len) != s->digest) {
            ss_check_fail("I6: the first %llu bytes of %s changed after they were sealed",
                          (unsigned long long)s->len, s->path);
        }
    }
}
