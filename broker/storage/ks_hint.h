/* ks_hint.h - checkpoints beside the data files: what saves reading them. Hints only.
 *
 *   <inc8>-<seq>.idx             of a finished data file: sparse marks, largest timestamp
 *   <inc8>-<seq>.<offset>.snap   producers at that offset, and the index of the file up to there
 *
 * A hint says nothing about what is acknowledged: it is believed only if it agrees with the chain (or
 * with the segment made from it) and if the batch it ends with stands in the file; else it is ignored
 * and the file is read. Names are linked once and never overwritten; a CRC-32C closes the content.
 *
 * A snapshot is written by the owner of an epoch, only after the bytes before its position were
 * synced and acknowledged. So whoever seals that epoch later may take everything before the position
 * for durable and whole (ADR 14). Encoding and checks are pure; the rest blocks: pool threads only. */
#ifndef KS_HINT_H
#define KS_HINT_H

#include "storage/ks_state.h"

enum {
    KS_HINT_MAX = 32 * 1024 * 1024, /* bytes of a hint that a reader accepts */
    KS_SNAPS_MAX = 8, /* snapshots of a partition that are looked at */
    KS_HINT_NAME = 48
};

struct ks_snap_name {
    struct ks_file_id file;
    int64_t offset;
};

/* A file before the one a snapshot stands in. */
struct ks_hint_file {
    struct ks_file_id id;
    uint64_t len;
    int64_t max_ts, max_ts_base;
};

struct ks_hint {
    bool snap;
    struct kc_uuid topic;
    int32_t partition;
    struct kc_uuid writer; /* incarnation */
    struct ks_file_id file;
    struct ks_seg seg; /* of that file up to the position: end and len; no file reference */
    /* snapshots */
    uint32_t n_files;
    struct ks_hint_file *files;
    struct ks_prods prods;
    struct ks_aborts aborts;
};

struct ks_hint_args {
    struct kc_uuid topic;
    int32_t partition;
    struct kc_uuid writer;
    const struct ks_seg *seg; /* the index is of this one; for a snapshot the last one of st */
    const struct ks_state *st; /* NULL: an index only */
    const struct ks_prods *prods; /* at seg->end */
    int64_t now_wall_ms; /* producers that expired are left out */
};

/* Returns owned bytes in *ret (kc_free). -ENOMEM; -EFBIG: more than a reader would accept. */
int ks_hint_encode(const struct ks_hint_args *args, uint8_t **ret, size_t *ret_len);
/* KC_E_CORRUPT or -ENOMEM; when 0 the caller frees it (ks_hint_fini). */
int ks_hint_decode(const uint8_t *p, size_t len, struct ks_hint *ret) KC_MUST_CHECK;
void ks_hint_fini(struct ks_hint *h);

void ks_idx_name(struct ks_file_id id, char out[KS_HINT_NAME]);
void ks_snap_name(const struct ks_snap_name *n, char out[KS_HINT_NAME]);
/* True: name is that of a snapshot. */
bool ks_snap_name_parse(const char *name, struct ks_snap_name *ret);
/* True: name is that of a hint of either kind; *ret is its data file. */
bool ks_hint_name_parse(const char *name, struct ks_file_id *ret);

/* What a listing found, newest first. */
struct ks_snaps {
    uint32_t n;
    struct ks_snap_name v[KS_SNAPS_MAX];
};
void ks_snaps_add(struct ks_snaps *s, const struct ks_snap_name *n);
int ks_snaps_list(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition,
                  struct ks_snaps *ret);

/* Reads and decodes dir/name of that partition; adds what it read to *bytes. */
int ks_hint_read(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition, const char *name,
                 struct ks_hint *ret, uint64_t *bytes);
/* Whether a snapshot agrees with the chain and with the file it names, if that is still there. */
bool ks_snap_fits(struct ks_fs *fs, const struct ks_hint *h, const struct ks_chain *c);
/* Whether an index is that of a finished segment; fd: its file. */
bool ks_idx_fits(struct ks_fs *fs, const struct ks_hint *h, struct ks_file_id file,
                 const struct ks_seg *seg, int fd);
/* The newest snapshot that fits, or KC_E_NOT_FOUND. snaps: what a listing found. */
int ks_snap_newest(struct ks_fs *fs, const struct ks_chain *c, const struct kc_uuid *topic,
                   int32_t partition, const struct ks_snaps *snaps, struct ks_hint *ret,
                   uint64_t *bytes);
/* Removes the index of a data file that is gone for good. */
void ks_idx_remove(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition,
                   struct ks_file_id id);

#endif
