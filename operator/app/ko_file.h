/* ko_file.h - the YAML file of a local host as desired state: applied at start and on every change.
 *
 * Its folder is watched, so editors that rename work. KaasCluster (one) and KaasTopic documents; a
 * file with an error is reported and changes nothing. Internal to operator/app; the loop's. */
#ifndef KO_FILE_H
#define KO_FILE_H

#include "store/ko_store.h"

struct ko_file;
/* Applies the file once and follows it. An error in the first reading is an error. */
int ko_file_start(struct ko_store *store, const char *path, struct ko_file **ret,
                  struct kc_err *err);
void ko_file_stop(struct ko_file *f); /* NULL allowed */

#endif
