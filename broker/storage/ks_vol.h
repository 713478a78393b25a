/* ks_vol.h - names and small files of the volume: create-once publication, claim files of
 * incarnations, and the loading of chains.
 *
 *   cluster.json                      which cluster this volume is of
 *   inc/<broker>/<incarnation>        claim file; its size is the fence bit
 *   topics/<topicId>/meta             name, partitions, configs of a topic
 *   topics/<topicId>/<n>/ctl.<k>      the chain of partition n
 *   topics/<topicId>/<n>/<inc8>-<seq>.log
 *   deleted/<topicId>                 tombstones
 *   pids/<block>                      producer id blocks
 *
 * Blocking; pool threads only. */
#ifndef KS_VOL_H
#define KS_VOL_H

#include "storage/ks_fs.h"
#include "storage/ks_rec.h"

enum { KS_FENCE_SIZE = 4096 };

/* ---- paths ---- */

/* topics/<topicId>/<n> and, if leaf is not NULL, "/" leaf. */
void ks_path_part(char out[KS_PATH_MAX], const struct kc_uuid *topic, int32_t partition,
                  const char *leaf);
void ks_path_topic(char out[KS_PATH_MAX], const struct kc_uuid *topic, const char *leaf);
void ks_path_file(char out[KS_PATH_MAX], const struct kc_uuid *topic, int32_t partition,
                  struct ks_file_id id);
void ks_path_inc(char out[KS_PATH_MAX], int32_t broker, const struct kc_uuid *incarnation);
void ks_path_inc_dir(char out[KS_PATH_MAX], int32_t broker);

/* ---- small files ---- */

/* Makes dir/name with these bytes, once for all (write, sync, link). 0 = it is ours, also when the
 * link's answer was lost; KC_E_EXISTS = somebody else's bytes stand there, for ever; else -errno:
 * unknown, ours may stand there or come to stand there yet (ADR 12), unless it is an error before the
 * link. The directory is not synced. */
int ks_vol_publish(struct ks_fs *fs, const char *dir, const char *name, const void *data,
                   size_t len);
/* The same for what a full volume must take, too: room is made for it (ks_fs_make_room). */
int ks_vol_publish_vital(struct ks_fs *fs, const char *dir, const char *name, const void *data,
                         size_t len);
/* Reads a file of at most cap bytes that is known to exist; returns its length or -errno; -EFBIG. */
ssize_t ks_vol_read(struct ks_fs *fs, const char *path, void *buf, size_t cap);

/* ---- incarnations ---- */

/* Publishes the claim file of a new incarnation and returns a handle on it for fence checks. */
int ks_inc_publish(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation,
                   struct kc_err *err);
/* 0 = live; KC_E_FENCED with the reason in *why: fenced, gone, or it cannot be told. */
int ks_inc_check(struct ks_fs *fs, int fd, const char **why);
/* Fences a condemned incarnation: when 0 is returned its fence checks fail for ever. */
int ks_inc_fence(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation);

/* Is this the name of a claim file, or (*ret_journal) of a journal, <incarnation>.j<n>? ret_journal may
 * be NULL. */
bool ks_inc_parse(const char *name, struct kc_uuid *ret, bool *ret_journal);
/* Removes the journals, then the claim file of an earlier incarnation of the same broker: fenced, and
 * named by no unsealed epoch of any chain, in this order (ADR 13, J8). */
int ks_inc_remove(struct ks_fs *fs, int32_t broker, const struct kc_uuid *incarnation);

/* ---- chains ---- */

/* Reads the records from c->next_k on. Names below known_k are known to exist, whatever a listing
 * says. KC_E_NOT_FOUND: no such directory. KC_E_CORRUPT: a gap, or a record that does not verify. */
int ks_chain_load(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition,
                  uint64_t known_k, struct ks_chain *c, struct kc_err *err);
/* Links r as ctl.<r->k>, filling in its nonce and r->issued. 0, KC_E_EXISTS (somebody else's record has
 * the name, files that only this one names may go) or -errno: unknown if r->issued, else it does not
 * stand there. The bytes, if wanted, go to out (KS_REC_MAX) and *ret_len. */
int ks_chain_append(struct ks_fs *fs, const struct kc_uuid *topic, int32_t partition,
                    struct ks_rec *r, uint8_t *out, size_t *ret_len);

#endif
