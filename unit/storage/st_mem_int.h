/* st_mem_int.h - the insides of st_mem, shared by its two files. */
#ifndef ST_MEM_INT_H
#define ST_MEM_INT_H

#include <pthread.h>

#include "base/kc_map.h"
#include "st_mem.h"

enum { SM_FDS = 4096 };

struct sm_ino {
    uint32_t refs; /* names, descriptors, and the number of a redo */
    uint32_t number;
    bool dir;
    uint64_t nlink, size;
    uint8_t *data;
    size_t room;
};

struct sm_port {
    struct st_mem *m;
    int number;
};

struct st_mem {
    pthread_mutex_t lock; /* guards all of it */
    struct kc_map names; /* path -> struct sm_ino; the root is not in it */
    struct {
        struct sm_ino *ino;
        bool writes;
    } fds[SM_FDS];
    int n_fds;
    uint32_t next_number;
    bool recording, network, ordered;
    struct st_mem_rec *recs;
    size_t n_recs, recs_room;
    struct sm_ino **redone; /* number in the records -> file */
    uint32_t n_redone;
};

/* With the lock held, all of them. */
void *sm_grow(void *p, size_t size); /* the tests' own memory: an injected failure is not for it */
struct sm_ino *sm_ino_new(struct st_mem *m, bool dir);
void sm_ino_drop(struct sm_ino *ino);
struct sm_ino *sm_get(struct st_mem *m, const char *path);
bool sm_has_parent(struct st_mem *m, const char *path);
bool sm_has_entries(struct st_mem *m, const char *dir);
/* The last part of a name that is a direct entry of `dir` ("." = the root), or NULL. */
const char *sm_entry_of(const char *dir, const char *name);
void sm_enter(struct st_mem *m, const char *path, struct sm_ino *ino); /* replaces */
void sm_leave(struct st_mem *m, const char *path);
/* p NULL: only the size. */
void sm_put_bytes(struct sm_ino *ino, uint64_t pos, const uint8_t *p, size_t len);
/* A new record, or a place nobody looks at. */
struct st_mem_rec *sm_note(struct st_mem *m, int port, enum st_mem_op op, const struct sm_ino *ino,
                           const char *path);
void sm_note_bytes(struct st_mem *m, int port, const struct sm_ino *ino, uint64_t pos,
                   const void *data, size_t len);

#endif
