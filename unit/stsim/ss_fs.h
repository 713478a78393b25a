/* ss_fs.h - a simulated shared file system: one server, a client a node, behind the ks_fs port.
 *
 * The server does each request at one point in time. A client behaves like the measured Linux NFS
 * client: writes wait in its pages until a sync, a close or whenever; an error of such a write is
 * told once, by the next write or sync, and the pages count as clean afterwards; attributes are up to
 * 3 s old and names (also those that do not exist) up to 30 s, but for forced attribute reads,
 * exclusive creates and links, which ask the server; opening a file asks for its attributes; a
 * listing is read in several requests; an unlinked file that is open here stays under another name.
 *
 * What a client has written is in the server's cache until that client has it committed (a sync, a
 * close): a crash of the server takes it, or some of it, and the client sends it again if it still
 * lives (ADR 10). Names, links and sizes that were set are durable once answered. When a node crashes
 * any subset of its unsent pages is lost, and the others land whenever; so do the requests that were
 * on their way. */
#ifndef SS_FS_H
#define SS_FS_H

#include "ss_sched.h"
#include "ss_step.h"
#include "storage/ks_fs.h"

/* Faults that come by chance, per mille of the requests that can have them. */
struct ss_rates {
    uint32_t write_error; /* a page's write-back fails: EIO, or ENOSPC */
    uint32_t op_error; /* EIO or ESTALE, nothing done */
    uint32_t check_error; /* the same of a forced attribute read, which costs the incarnation */
    uint32_t lost_reply; /* done, or done later, but answered with an error; EEXIST for links */
    uint32_t stall; /* seconds */
    uint32_t stale_enoent; /* a truncate finds a name absent that is there */
};

/* What became of pages and requests: counted, no faults of their own. */
enum ss_effect {
    SS_E_LOST_PAGE,
    SS_E_LATE_PAGE,
    SS_E_LATE_REQUEST,
    SS_E_FORGOTTEN, /* writes, by a crash of the server */
    SS_E_SENT_AGAIN, /* pages, after it */
    SS_E_SILLY, /* renamed instead of removed */
    SS_EFFECTS
};
const char *ss_effect_name(enum ss_effect e);

/* Ways in which the file system breaks its promise: what the engine must not survive. */
enum ss_lie {
    SS_HONEST,
    SS_STAT_CACHED, /* forced attribute reads answer from the cache */
    SS_SYNC_NOTHING, /* fdatasync of a data file does nothing */
    SS_LINK_OVERWRITES /* link replaces what has the name */
};

/* What the checker is told of the server's doings. */
struct ss_watch {
    void (*linked)(void *ctx, const char *path, const uint8_t *data, size_t len);
    void (*unlinked)(void *ctx, const char *path);
    void (*broken)(void *ctx, const char *what, const char *path);
    void *ctx;
};

void ss_srv_start(const struct ss_watch *watch, enum ss_lie lie);
void ss_srv_stop(void);
void ss_srv_rates(const struct ss_rates *rates); /* of all clients */
void ss_srv_count(enum ss_effect e);
uint64_t ss_srv_counted(enum ss_effect e);
void ss_srv_full_until(int64_t us); /* ENOSPC until then */
/* Requests of dead nodes that are due land; all: every one. */
void ss_srv_land(bool all);
/* It forgets what nobody had committed, and answers again a while later. */
void ss_srv_crash(void);
uint64_t ss_srv_digest(const char *path,
                       uint64_t len); /* of the first bytes of a file; 0 = absent */

struct ss_client;
/* A freshly booted client of that node. struck: a fault of the whole node is due (ss_broker.c). */
struct ss_client *ss_client_new(int node, void (*struck)(void *ctx, enum ss_fault f), void *ctx);
void ss_client_fs(struct ss_client *c, struct ks_fs *ret);
/* The node is dead: every call fails from now on, unsynced pages are lost or land later (kill: its
 * process only; all of them land). */
void ss_client_crash(struct ss_client *c, bool kill);
void ss_client_cut(struct ss_client *c, int64_t until_us);
void ss_client_faults(struct ss_client *c, bool on);
bool ss_client_is_dirty(const struct ss_client *c); /* something waits to be written back */
/* The kernel writes some page back. */
void ss_client_write_back(struct ss_client *c);
void ss_client_free(struct ss_client *c); /* the engine over it is closed */
/* A point of the engine where no request is made: what strikes it there. */
void ss_client_point(struct ss_client *c);
/* Of the node of the calling thread; NULL: none. */
struct ss_client *ss_client_here(void);

#endif
