/* ks_rec.h - the records of a partition's chain (storage.md, "One chain per partition").
 *
 * Pure: encoding, decoding, and the fold of a chain into epochs and files. A record is one small
 * immutable file ctl.<k>, made by link; fields are big-endian, a CRC-32C closes it. A random nonce
 * tells our own record from another claimant's when a link's outcome is unknown. */
#ifndef KS_REC_H
#define KS_REC_H

#include "base/kc_error.h"
#include "policy/kp_types.h"

enum ks_rec_type { KS_CLAIM = 1, KS_ROLL, KS_SEAL, KS_COMPACT, KS_TRIM };

enum {
    KS_REC_MAX = 16384, /* bytes of a record */
    KS_REC_FILES_MAX = 500, /* files a COMPACT or TRIM record names */
    KS_FILE_NAME_LEN = 24 /* "<inc8>-<seq>.log" and its terminator */
};

/* A data file by name: first 8 hex digits of its writer's incarnation, and a counter. */
struct ks_file_id {
    uint32_t inc8;
    uint32_t seq;
};

struct ks_rec {
    enum ks_rec_type type;
    uint64_t k;
    uint8_t nonce[16];
    bool issued; /* set by ks_chain_append: its link was sent, so it may stand there (ADR 12) */
    int32_t epoch; /* CLAIM: the new one; ROLL, SEAL: whose it is; COMPACT, TRIM: of the writer */
    union {
        struct {
            int32_t broker;
            struct kc_uuid incarnation;
            struct kp_order order;
            struct ks_file_id file; /* first data file, empty and synced */
        } claim;
        struct {
            struct ks_file_id file; /* the next one */
            int64_t base; /* end of the previous one, which is synced and acked whole */
            uint64_t prev_len; /* its length */
            uint32_t prev_crc; /* CRC field of its last batch */
        } roll;
        /* Lengths of the files before the last one stand in their ROLL records. */
        struct {
            int64_t end; /* end offset of the epoch */
            struct ks_file_id file; /* where it ends, or where its copied tail begins */
            uint64_t len; /* sealed length of that file */
            uint32_t crc; /* CRC field of its last batch; 0 if it is empty */
            /* ADR 10: what was scanned behind `len` may vanish in a crash of the server, so the
             * claimant wrote it again, unchanged, to a file of its own. */
            bool rescued;
            struct ks_rescue {
                struct ks_file_id file;
                int64_t base; /* first offset copied = end of what counts of `file` */
                uint64_t len; /* the whole copy: from base to end */
                uint32_t crc; /* CRC field of its last batch */
            } copy;
        } seal;
        struct {
            int64_t start; /* first offset kept; for COMPACT: first offset replaced */
            int64_t end; /* COMPACT: end of the range replaced */
            int64_t clean; /* COMPACT: no key has two records before this offset, once it stands */
            uint16_t n_old, n_new;
            struct ks_file_id *old; /* dropped; owned by the record */
            struct ks_new_file {
                struct ks_file_id file;
                int64_t base;
                uint64_t len;
                uint32_t crc; /* CRC field of its last batch */
            } * new_files; /* COMPACT: what replaces them: one file */
        } drop;
    };
};

/* Appends the encoded record to out (which must have KS_REC_MAX bytes); returns its length. */
size_t ks_rec_encode(const struct ks_rec *r, uint8_t *out);
/* 0, or KC_E_CORRUPT; -ENOMEM. The caller frees it (ks_rec_fini) when 0. */
int ks_rec_decode(const uint8_t *p, size_t len, struct ks_rec *ret) KC_MUST_CHECK;
void ks_rec_fini(struct ks_rec *r);
const char *ks_rec_type_name(enum ks_rec_type t);
void ks_file_name(struct ks_file_id id, char out[KS_FILE_NAME_LEN]);
/* False: name is not that of a data file. */
bool ks_file_parse(const char *name, struct ks_file_id *ret);
static inline bool ks_file_eq(struct ks_file_id a, struct ks_file_id b)
{
    return a.inc8 == b.inc8 && a.seq == b.seq;
}

/* ---- what a chain says ---- */

struct ks_chain_file {
    struct ks_file_id id;
    int64_t base; /* first offset; -1 = not known yet (older epochs unsealed) */
    int64_t end; /* -1 = open: the scan decides */
    uint64_t len; /* meaningful when end >= 0 */
    uint32_t crc; /* of the last batch, 0 = unknown or empty */
    uint64_t rescued; /* bytes behind len that are in the log, too, as the next file (ADR 10) */
    int32_t epoch;
    int32_t last_epoch; /* of a compacted file: its batches are of epoch..last_epoch */
    bool dropped; /* by TRIM */
    bool compacted; /* made by a COMPACT: whole, durable, with gaps between its batches */
    bool replaced; /* its content is part of an earlier entry, which is compacted; base = end */
};

struct ks_epoch {
    int32_t epoch;
    int32_t broker;
    struct kc_uuid incarnation;
    struct kp_order order;
    uint64_t claim_k;
    bool sealed;
    bool never_opened; /* another CLAIM came before every older epoch was sealed (M12) */
    int64_t base; /* -1 = older epochs are unsealed */
    int64_t end; /* when sealed */
    uint32_t first_file; /* index in files; its last file is the one before the next epoch's */
};

struct ks_chain {
    uint64_t next_k;
    uint32_t n_epochs, n_files;
    struct ks_epoch *epochs;
    struct ks_chain_file *files;
    uint32_t epochs_room, files_room;
    int64_t log_start;
    int64_t clean; /* see struct ks_rec */
    uint32_t compactions; /* COMPACT records so far */
    struct ks_file_id *gone; /* files that a TRIM dropped or a COMPACT replaced: to be removed */
    uint32_t n_gone, gone_room;
    uint32_t late_seals; /* second SEALs of an epoch: must not exist, ignored, counted */
};

void ks_chain_init(struct ks_chain *c);
void ks_chain_fini(struct ks_chain *c);
/* Applies the record c->next_k. KC_E_CORRUPT with the reason if it breaks the chain's rules;
 * -ENOMEM. The chain is unchanged then. */
int ks_chain_apply(struct ks_chain *c, const struct ks_rec *r, struct kc_err *err);
/* The fold of a COMPACT (ks_compact.c); part of ks_chain_apply. */
int ks_chain_compact(struct ks_chain *c, const struct ks_rec *r, struct kc_err *err);
/* Notes a file that no reader needs any more. -ENOMEM. */
int ks_chain_gone(struct ks_chain *c, struct ks_file_id id);
/* The last epoch, or NULL if nobody ever claimed. */
struct ks_epoch *ks_chain_last(const struct ks_chain *c);
struct ks_epoch *ks_chain_epoch(const struct ks_chain *c, int32_t epoch);
/* Index range of an epoch's files: first .. *ret_end - 1. */
uint32_t ks_chain_files(const struct ks_chain *c, const struct ks_epoch *e, uint32_t *ret_end);
/* The oldest unsealed epoch older than `before`, or NULL. */
struct ks_epoch *ks_chain_unsealed(const struct ks_chain *c, int32_t before);

#endif
