/* ks_fs.h - the port to the file system of the shared volume.
 *
 * Everything the log does to the volume goes through this narrow table, so that tests can inject
 * faults and a simulation can stand in for a real file system. Paths are relative to the volume's
 * root. Results are >= 0 or -errno. Thread-safe: any thread, many at once.
 *
 * What is missing is missing on purpose (storage.md): no append mode, no mmap, no truncate down, no
 * stat by path. None of them fences or tells the truth on NFS. */
#ifndef KS_FS_H
#define KS_FS_H

#include <stdatomic.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/kc_base.h"
#include "base/kc_error.h"

struct ks_stall; /* ks_engine.h */

enum { KS_PATH_MAX = 192 }; /* relative paths of the layout are far shorter */

struct ks_stat {
    uint64_t size;
    uint64_t nlink;
};

enum ks_open_mode {
    KS_READ,
    KS_CREATE, /* read and write; the name must not exist */
    KS_HANDLE /* O_PATH: for forced attribute reads only; takes no open state on a server */
};

/* Returns false to stop the listing. */
typedef bool (*ks_list_fn)(void *arg, const char *name);

struct ks_fs_ops {
    int (*open)(void *ctx, const char *path, enum ks_open_mode mode);
    int (*close)(void *ctx, int fd);
    ssize_t (*pwritev)(void *ctx, int fd, const struct iovec *iov, int n, uint64_t pos);
    ssize_t (*pread)(void *ctx, int fd, void *buf, size_t len, uint64_t pos);
    int (*datasync)(void *ctx, int fd);
    int (*syncdir)(void *ctx, const char *path);
    int (*link)(void *ctx, const char *from, const char *to);
    int (*unlink)(void *ctx, const char *path);
    int (*rmdir)(void *ctx, const char *path);
    int (*rename)(void *ctx, const char *from, const char *to);
    int (*mkdir)(void *ctx, const char *path);
    /* Truncates up: the size becomes `size` if it is smaller (one SETATTR). */
    int (*extend)(void *ctx, const char *path, uint64_t size);
    /* Attributes from the server, never from a cache: AT_STATX_FORCE_SYNC on the descriptor. */
    int (*stat)(void *ctx, int fd, struct ks_stat *ret);
    /* Names in a directory, after a forced attribute read of it ("." and ".." left out). */
    int (*list)(void *ctx, const char *path, ks_list_fn fn, void *arg);
    /* Drops cached pages, so that the next read asks the server. */
    void (*forget)(void *ctx, int fd);
    /* Is the range in the page cache, so that neither reading nor sending it waits? Never waits itself.
     * The range is inside the file. NULL = cannot be told: everything is read on a pool (ADR 21). */
    bool (*cached)(void *ctx, int fd, uint64_t pos, uint64_t len);
    /* Like pread, of what is in the page cache: -EAGAIN instead of waiting. NULL with cached. */
    ssize_t (*peek)(void *ctx, int fd, void *buf, size_t len, uint64_t pos);
    /* Begins to read the range into the page cache; does not wait for it. NULL = not here. */
    void (*ahead)(void *ctx, int fd, uint64_t pos, uint64_t len);
    /* May somebody else's crash take bytes that this machine can read? NULL = yes (ADR 10). */
    bool (*network)(void *ctx);
    /* Do names become durable at once, or in the order in which they were made? NULL = no. */
    bool (*ordered)(void *ctx);
    /* Bytes that are free for this process. NULL = not told. */
    int (*room)(void *ctx, uint64_t *ret_free);
    void (*fini)(void *ctx);
};

enum { KS_FS_SLOTS = 64 };

/* One file operation under way: what a storage stall is told by. */
struct ks_fs_slot {
    _Atomic int64_t since_ms; /* 0 = free */
    _Atomic(const char *) operation; /* a literal: "datasync" */
    _Atomic uint64_t thread[2]; /* the name of its thread, as 16 bytes */
};

struct ks_fs {
    const struct ks_fs_ops *ops;
    void *ctx;
    struct ks_fs_slot busy[KS_FS_SLOTS];
    /* Closes a file elsewhere: closing can block (NFS flushes there), and the last holder of a file
     * may be a data loop. NULL: ks_fs_close_later closes at once. */
    void (*bury)(void *ctx, int fd);
    void *bury_ctx;
    /* Hears of every error that says that the volume takes no bytes: ENOSPC, EDQUOT, EROFS. */
    void (*refused)(void *ctx, int rc);
    /* Gives up something to make room; false: nothing left. Both may be NULL. */
    bool (*make_room)(void *ctx);
    void *room_ctx;
};

/* The real one, rooted at dir, which must exist. */
int ks_fs_posix(struct ks_fs *fs, const char *dir, struct kc_err *err);
void ks_fs_init(struct ks_fs *fs, const struct ks_fs_ops *ops, void *ctx);
void ks_fs_fini(struct ks_fs *fs);
/* The oldest operation under way; all zero when there is none. Lock-free. */
void ks_fs_oldest(struct ks_fs *fs, int64_t now_mono_ms, struct ks_stall *ret);

int ks_fs_open(struct ks_fs *fs, const char *path, enum ks_open_mode mode);
int ks_fs_close(struct ks_fs *fs, int fd);
void ks_fs_close_later(struct ks_fs *fs, int fd); /* never blocks where a loop may be the caller */
/* All bytes or an error: short writes and EINTR are continued at their own position. iov is
 * consumed. */
int ks_fs_pwritev(struct ks_fs *fs, int fd, struct iovec *iov, int n, uint64_t pos);
/* Up to len bytes; fewer only at the end of the file. */
ssize_t ks_fs_pread(struct ks_fs *fs, int fd, void *buf, size_t len, uint64_t pos);
int ks_fs_datasync(struct ks_fs *fs, int fd);
int ks_fs_syncdir(struct ks_fs *fs, const char *path);
int ks_fs_link(struct ks_fs *fs, const char *from, const char *to);
int ks_fs_unlink(struct ks_fs *fs, const char *path);
int ks_fs_rmdir(struct ks_fs *fs, const char *path);
int ks_fs_rename(struct ks_fs *fs, const char *from, const char *to);
int ks_fs_mkdir(struct ks_fs *fs, const char *path); /* 0 = made, 1 = it was there */
int ks_fs_extend(struct ks_fs *fs, const char *path, uint64_t size);
int ks_fs_stat(struct ks_fs *fs, int fd, struct ks_stat *ret);
int ks_fs_list(struct ks_fs *fs, const char *path, ks_list_fn fn, void *arg);
void ks_fs_forget(struct ks_fs *fs, int fd);
int ks_fs_room(struct ks_fs *fs, uint64_t *ret_free); /* -ENOTSUP: it does not tell */
/* After an error rc of what must be written on a full volume, too (the chain, claim files): true if
 * room was made and another try may succeed. Blocking. */
bool ks_fs_make_room(struct ks_fs *fs, int rc);
/* ks_fs_cached.c; these do not wait, and are not watched as operations of the volume */
/* Data loops may read and send what is in the page cache: only where whether it is there can be told,
 * and on file systems of this machine. On a network file system a page that is there may have to be
 * asked for again first (NFS revalidates), which waits for the server. */
bool ks_fs_direct(struct ks_fs *fs);
bool ks_fs_cached(struct ks_fs *fs, int fd, uint64_t pos, uint64_t len);
/* Up to len bytes, or -EAGAIN, or another error. */
ssize_t ks_fs_peek(struct ks_fs *fs, int fd, void *buf, size_t len, uint64_t pos);
void ks_fs_ahead(struct ks_fs *fs, int fd, uint64_t pos, uint64_t len); /* pool threads */
bool ks_posix_cached(void *ctx, int fd, uint64_t pos, uint64_t len);
ssize_t ks_posix_peek(void *ctx, int fd, void *buf, size_t len, uint64_t pos);
void ks_posix_ahead(void *ctx, int fd, uint64_t pos, uint64_t len);
/* False only for file systems known to be of this machine: one crash ends them and us, and a sync
 * of a file covers what others wrote (ADR 10). */
bool ks_fs_network(struct ks_fs *fs);
/* True: a name that is durable implies those made before it, so a record needs no sync of the
 * directory for the files it names; only the last name of a row does. */
bool ks_fs_ordered(struct ks_fs *fs);

#endif
