/* st_mem.h - a file system in memory behind the ks_fs port, which may keep a record of what was done.
 *
 * One volume, seen by every port on it at once, as local processes see a local file system. What a
 * crash leaves of it is the business of cr_states: the volume itself forgets nothing. Thread-safe. */
#ifndef ST_MEM_H
#define ST_MEM_H

#include "kt.h"
#include "storage/ks_fs.h"

enum { ST_MEM_PATH = 160 };

enum st_mem_op {
    SM_CREATE, /* file `ino` gets its first name, path */
    SM_MKDIR, /* directory `ino` */
    SM_WRITE, /* bytes at pos */
    SM_EXTEND, /* the size becomes pos */
    SM_SYNC, /* of file `ino`, by `port` */
    SM_SYNCDIR, /* path */
    SM_LINK, /* one more name, path */
    SM_UNLINK, /* path; rmdir, too */
    SM_RENAME, /* path becomes to */
    SM_MARK /* the test's: an answer was given (pos: the test's number) */
};

struct st_mem_rec {
    enum st_mem_op op;
    int port; /* who did it */
    uint32_t ino;
    char path[ST_MEM_PATH];
    char to[ST_MEM_PATH];
    uint64_t pos;
    size_t len;
    uint8_t *data; /* owned by the record */
};

struct st_mem;
struct st_mem *st_mem_new(void);
void st_mem_free(struct st_mem *m);
/* A port of its own number, which the records carry. The volume outlives it. */
void st_mem_fs(struct st_mem *m, int port, struct ks_fs *ret);
/* It says of itself that it is a network's (ADR 10); before the first port. */
void st_mem_network(struct st_mem *m, bool network);
/* It says that it keeps names in order (ks_fs_ordered), which is for the test to make true; as above. */
void st_mem_ordered(struct st_mem *m, bool ordered);
int st_mem_fds(struct st_mem *m); /* open descriptors, all ports */

/* Starts anew, or ends. */
void st_mem_record(struct st_mem *m, bool on);
/* Records all that is there, as if it were made now. */
void st_mem_dump(struct st_mem *m);
void st_mem_mark(struct st_mem *m, uint64_t number); /* adds SM_MARK */
/* What was recorded; stays the volume's. */
const struct st_mem_rec *st_mem_records(struct st_mem *m, size_t *ret_n);

/* ---- building a volume from records ---- */

/* Removes every name but those below `keep` ("" = all go), whatever is open. */
void st_mem_clear(struct st_mem *m, const char *keep);
/* Files made from now on have numbers from there. */
void st_mem_number_from(struct st_mem *m, uint32_t number);
/* Does one record again; files are told by their number in the records, which they keep. What
 * cannot be done because something before it was left out is left out, too. */
void st_mem_redo(struct st_mem *m, const struct st_mem_rec *r);
/* Forgets which file a number means; before another run of st_mem_redo. */
void st_mem_redo_start(struct st_mem *m);
/* A hash of all names below `topics` and `inc`, and of what is in the files. */
uint64_t st_mem_hash(struct st_mem *m);
/* Changes the bytes of a file for good; false: no such byte. */
bool st_mem_damage(struct st_mem *m, const char *path, uint64_t pos);

#endif
