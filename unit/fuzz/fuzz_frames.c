/* libFuzzer target: a journal as a claimant reads it (ADR 13). The first byte says how many frames get
 * right checksums here, so that what the fuzzer changes behind them is reached; then their lengths are
 * taken as they are. What was read is looked at through the overlay. */
#include <errno.h>
#include <string.h>

#include "base/kc_crc32c.h"
#include "base/kc_mem.h"
#include "storage/ks_bytes.h"
#include "storage/ks_frames.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LEN_AT = 12, CRC_AT = 8, HEAD_CRC_AT = 4, JOURNAL = 3, FILE_FD = 4 };

/* A file system with one journal, and an empty data file. */
static uint8_t *journal;
static size_t journal_len;
static const struct kc_uuid incarnation = {{1, 2, 3}};

static int f_open(void *ctx, const char *path, enum ks_open_mode mode)
{
    (void)ctx;
    (void)path;
    (void)mode;
    return JOURNAL;
}

static int f_close(void *ctx, int fd)
{
    (void)ctx;
    (void)fd;
    return 0;
}

static ssize_t f_pread(void *ctx, int fd, void *buf, size_t len, uint64_t pos)
{
    (void)ctx;
    size_t n = fd == JOURNAL && pos < journal_len ? KC_MIN(len, journal_len - (size_t)pos) : 0;
    if (n) {
        memcpy(buf, journal + pos, n);
    }
    return (ssize_t)n;
}

static int f_list(void *ctx, const char *path, ks_list_fn fn, void *arg)
{
    char name[KS_PATH_MAX];
    (void)ctx;
    (void)path;
    ks_path_journal(name, 1, &incarnation, 0);
    fn(arg, strrchr(name, '/') + 1);
    return 0;
}

static void f_forget(void *ctx, int fd)
{
    (void)ctx;
    (void)fd;
}

static const struct ks_fs_ops ops = {
    .open = f_open, .close = f_close, .pread = f_pread, .list = f_list, .forget = f_forget};

/* Right checksums for so many frames. */
static void mend(uint32_t frames)
{
    for (size_t at = 0; frames-- > 0 && journal_len - at >= KS_FRAME_HEADER;) {
        uint8_t *p = journal + at;
        size_t len = ks_get32(p + LEN_AT), room = journal_len - at - KS_FRAME_HEADER;
        if (len == 0 || len > room) {
            return;
        }
        static const uint8_t magic[] = {'K', 'J', 'F', '1'};
        memcpy(p, magic, sizeof(magic));
        ks_put32(p + CRC_AT, kc_crc32c(0, p + KS_FRAME_HEADER, len));
        ks_put32(p + HEAD_CRC_AT, kc_crc32c(0, p + CRC_AT, KS_FRAME_HEADER - CRC_AT));
        at += KS_FRAME_HEADER + len;
    }
}

/* Every frame lies in the journal; the overlay of its file gives nothing beyond what was asked for. Owners
 * never make frames that overlap: of such ones it gives either, or nothing. */
static void check(struct ks_fs *fs, const struct ks_frames *f)
{
    uint8_t buf[96];
    for (uint32_t i = 0; i < f->n; i++) {
        const struct ks_frame_at *a = &f->frames[i];
        KC_ASSERT(a->journal < f->n_journals && a->f.len > 0);
        KC_ASSERT(a->at >= KS_FRAME_HEADER && a->at + a->f.len <= journal_len);
        struct ks_overlay o = ks_frames_of(f, &a->f.topic, a->f.partition, a->f.file);
        KC_ASSERT(o.n > 0 && o.n <= f->n);
        KC_ASSERT(f->n > 1 || ks_overlay_pread(&o, fs, FILE_FD, buf, 1, a->f.pos) == 1);
        size_t want = 1 + i % sizeof(buf);
        ssize_t n = ks_overlay_pread(&o, fs, FILE_FD, buf, want, a->f.pos);
        KC_ASSERT(n >= 0 && n <= (ssize_t)want);
        ks_overlay_pread(&o, fs, FILE_FD, buf, want, a->f.pos > 40 ? a->f.pos - 40 : 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ks_fs fs;
    struct ks_frames *f = NULL;
    if (size == 0) {
        return 0;
    }
    journal_len = size - 1;
    journal = kc_alloc(size);
    memcpy(journal, data + 1, journal_len);
    mend(data[0]);
    ks_fs_init(&fs, &ops, NULL);
    KC_ASSERT(ks_frames_read(&fs, 1, &incarnation, &f, NULL) == 0);
    check(&fs, f);
    ks_frames_unref(f);
    kc_free(journal);
    return 0;
}
