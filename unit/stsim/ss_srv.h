/* ss_srv.h - the simulated server, as its clients see it. Every function is one request, done at one
 * point in time; travelling is the client's business. */
#ifndef SS_SRV_H
#define SS_SRV_H

#include "ss_fs.h"

enum { SS_PAGE = 4096 };

struct ss_name { /* in a directory */
    uint64_t cookie;
    char *name;
};

struct ss_write { /* not committed: what it replaced */
    int writer;
    uint64_t pos, size; /* of the file before it */
    size_t len, n_old;
    uint8_t *old;
};

struct ss_ino {
    uint32_t index;
    bool dir;
    int maker; /* serial of the client that made it */
    uint64_t nlink, size, change;
    uint8_t *data;
    size_t room;
    struct ss_write *writes; /* oldest first */
    uint32_t n_writes, writes_room;
    struct ss_name *names; /* of a directory, by cookie */
    uint32_t n_names, names_room;
};

struct ss_ino *ss_srv_lookup(const char *path); /* NULL: absent */
int ss_srv_create(const char *path, int maker, bool dir, struct ss_ino **ret);
int ss_srv_link(struct ss_ino *ino, const char *to);
int ss_srv_unlink(const char *path);
int ss_srv_rmdir(const char *path);
int ss_srv_rename(const char *from, const char *to);
void ss_srv_extend(struct ss_ino *ino, const char *path, uint64_t size);
int ss_srv_write(struct ss_ino *ino, int writer, uint64_t pos, const uint8_t *p, size_t len);
void ss_srv_commit(struct ss_ino *ino, int writer);
uint64_t ss_srv_boot(void); /* how often it has crashed */
int64_t ss_srv_up_at_us(void); /* it answers from then on */

/* The next names of a directory, in the order of their cookies; false: no more. */
struct ss_names {
    uint64_t cookie;
    char name[6][KS_PATH_MAX];
    int n;
};
bool ss_srv_list(const char *dir, struct ss_names *it);

/* What a dead client had sent lands at some time. */
void ss_srv_late_write(struct ss_ino *ino, int writer, uint64_t pos, const uint8_t *p, size_t len);
enum ss_late { SS_LATE_WRITE, SS_LATE_LINK, SS_LATE_UNLINK, SS_LATE_EXTEND };
void ss_srv_late(enum ss_late kind, struct ss_ino *ino, const char *path);

const struct ss_rates *ss_srv_get_rates(void);
bool ss_srv_is_full(void);
enum ss_lie ss_srv_lie(void);
int ss_srv_serial(void); /* of the next client */

#endif
