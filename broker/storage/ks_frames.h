/* ks_frames.h - the frames of an incarnation's journals (ADR 13), as a claimant reads them.
 *
 * A frame is a header and the bytes of one partition's batches as they were written to its data file:
 *
 *   0 magic "KJF1"   4 CRC-32C of bytes 8..55    8 CRC-32C of the payload   12 payload length
 *   16 inc8, 20 seq of the data file             24 partition               28 zero
 *   32 position in the data file                 40 topic id (16)           56 payload
 *
 * numbers big-endian. Only the index of the frames is kept in memory, not their payload. */
#ifndef KS_FRAMES_H
#define KS_FRAMES_H

#include "storage/ks_fs.h"
#include "storage/ks_rec.h"

enum { KS_FRAME_HEADER = 56 };

struct ks_frame {
    struct kc_uuid topic;
    int32_t partition;
    struct ks_file_id file;
    uint64_t pos; /* in the data file */
    uint32_t len;
    uint32_t crc; /* of the payload */
};

void ks_frame_encode(const struct ks_frame *f, uint8_t out[KS_FRAME_HEADER]);
/* False: not a frame's header, or one that does not verify. */
bool ks_frame_decode(const uint8_t p[KS_FRAME_HEADER], struct ks_frame *ret);
void ks_path_journal(char out[KS_PATH_MAX], int32_t broker, const struct kc_uuid *incarnation,
                     uint32_t n);
/* Whether a name in inc/<broker> is one of a journal: <incarnation>.j<n>. */
bool ks_journal_named(const char *name, struct kc_uuid *ret_incarnation, uint32_t *ret_n);

/* ---- what the journals of an incarnation hold ---- */

struct ks_frame_at {
    struct ks_frame f;
    uint32_t journal; /* index of the open journal */
    uint64_t at; /* position of the payload in it */
};

/* An immutable index, by reference; the journals stay open with it. */
struct ks_frames {
    _Atomic uint32_t refs;
    struct ks_fs *fs;
    uint32_t n_journals, n;
    int *fds;
    struct ks_frame_at *frames; /* by topic, partition, file, position */
};

/* Lists and reads the journals of an incarnation, each up to the first frame that does not verify
 * (J3). After the fence of that incarnation, and before the data files are opened. A journal that
 * vanishes meanwhile is left out, once a listing is without it: its files were synced. -errno. */
int ks_frames_read(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation,
                   struct ks_frames **ret, struct kc_err *err);
struct ks_frames *ks_frames_ref(struct ks_frames *f);
void ks_frames_unref(struct ks_frames *f); /* NULL allowed; blocking: closes the journals */
/* J8: removes the journals of a dead incarnation, before its claim file goes. Only after it was fenced,
 * and then a look through all chains found no unsealed epoch of it, in this order. */
int ks_frames_remove(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation);

/* The frames of one data file, by position. */
struct ks_overlay {
    const struct ks_frames *of;
    const struct ks_frame_at *first;
    uint32_t n;
};
struct ks_overlay ks_frames_of(const struct ks_frames *f, const struct kc_uuid *topic,
                               int32_t partition, struct ks_file_id file);
/* Reads a data file as its frames complete it. Up to len bytes, fewer only at the end; a gap between
 * the file's end and a frame reads as zeros, which are no batch. -errno; -ESTALE: a journal went
 * away, read the frames anew. */
ssize_t ks_overlay_pread(const struct ks_overlay *o, struct ks_fs *fs, int fd, void *buf,
                         size_t len, uint64_t pos);

#endif
