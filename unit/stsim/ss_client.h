/* ss_client.h - the insides of a client: shared by its cache (ss_client.c), the way of a request
 * (ss_request.c) and the port (ss_port.c). */
#ifndef SS_CLIENT_H
#define SS_CLIENT_H

#include "base/kc_map.h"
#include "ss_srv.h"

enum { FDS = 1024 };
/* How old attributes and names may be, as measured. */
#define ATTR_US 3000000LL
#define NAME_US 30000000LL

struct page {
    size_t lo, hi; /* what is known of it */
    bool dirty; /* not sent */
    bool unstable; /* sent, but not committed */
    uint64_t boot; /* of the server that has it then */
    uint8_t b[SS_PAGE];
};

struct cfile {
    struct ss_ino *ino;
    uint64_t size, change; /* cached attributes */
    int64_t attr_us; /* when they came */
    uint64_t local; /* end of what was written here */
    int error; /* of a write-back: told once */
    int opens;
    char silly[KS_PATH_MAX]; /* its name since it was unlinked while open */
    struct page **pages;
    uint32_t n_pages, n_dirty, n_unstable;
    uint32_t dirty_at; /* place in the client's list of dirty files, if n_dirty > 0 */
};

struct dentry {
    struct ss_ino *ino; /* NULL: absent */
    int64_t until_us;
};

struct fd {
    struct cfile *f;
    enum ks_open_mode mode;
    bool log, journal; /* a data file, an incarnation's journal */
};

struct ss_client {
    int node, serial;
    bool dead, faults;
    int64_t cut_until_us;
    void (*struck)(void *ctx, enum ss_fault f);
    void *ctx;
    struct kc_map names; /* path -> struct dentry */
    uint32_t n_absent; /* entries that say so */
    struct cfile **files; /* by index of the inode */
    uint32_t n_files;
    struct cfile **dirty; /* files with pages that wait to be sent */
    uint32_t n_dirty, dirty_room;
    struct fd fds[FDS];
    uint64_t n_silly;
};

/* ---- a request and its way (ss_request.c) ---- */

struct ss_req {
    struct ss_client *c;
    enum ss_op op;
    uint32_t steps; /* it is part of */
    enum ss_fault fire; /* what strikes it; SS_FAULTS: nothing */
    uint64_t boot; /* of the server when it was sent */
};
#define SS_REQ(c, op, steps)                                                                       \
    __attribute__((cleanup(ss_req_end))) struct ss_req req = ss_req_begin(c, op, steps)
struct ss_req ss_req_begin(struct ss_client *c, enum ss_op op, uint32_t steps);
void ss_req_end(struct ss_req *r);

/* To the server: 0; an error instead; or IN_FLIGHT: the sender will not hear of it, it may be done. */
enum { IN_FLIGHT = 1 };
int ss_go(struct ss_req *r);
/* And back; nothing of a dead node matters any more. */
int ss_back(struct ss_req *r, int rc);
void ss_strike_late(struct ss_req *r); /* what had to wait until the request was done */
void ss_client_stall(struct ss_req *r); /* where no request is made */
/* Back, but the answer may be lost: then `lost`, if it is an error, or EIO is told instead. */
int ss_reply(struct ss_req *r, int rc, int lost);

void ss_client_set_here(int node, struct ss_client *c);

/* ---- names ---- */

void ss_know(struct ss_client *c, const char *path, struct ss_ino *ino);
void ss_unknow(struct ss_client *c, const char *path);
/* From the cache, else from the server. */
struct ss_ino *ss_resolve(struct ss_req *r, const char *path);
/* A directory that was read anew tells which names have appeared. */
void ss_forget_absent(struct ss_client *c, const char *dir);

/* ---- contents ---- */

struct cfile *ss_file_of(struct ss_client *c, struct ss_ino *ino);
void ss_revalidate(struct cfile *f);
void ss_drop_clean(struct cfile *f);
struct page *ss_page_at(struct cfile *f, uint64_t i);
/* Reads the rest of a page from the server around what is known of it. */
void ss_fill(struct page *p, const struct ss_ino *ino, uint64_t i);
void ss_page_dirty(struct ss_client *c, struct cfile *f, struct page *p);
/* Sends everything of a file, in several requests, and has it committed; or the error that waits,
 * told once. */
int ss_flush(struct ss_req *r, struct cfile *f);
static inline uint64_t ss_size_of(const struct cfile *f)
{
    return KC_MAX(f->size, f->local);
}

/* ss_port.c */
extern const struct ks_fs_ops ss_port_ops;

#endif
