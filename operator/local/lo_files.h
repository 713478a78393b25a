/* lo_files.h - the files of a local host's directory (docs/architecture.md, The local host).
 *
 * Small, written at start of the host and of a child; blocking. Owner: the loop. */
#ifndef LO_FILES_H
#define LO_FILES_H

#include "base/kc_error.h"
#include "crd/ko_crd.h"

struct lo_ports {
    uint16_t base; /* broker n: +n; health +100+n; the operator: heartbeats +200, health +201 */
};
enum { LO_BROKERS_MAX = 100 };
uint16_t lo_port_listener(const struct lo_ports *p, int32_t broker, int32_t listener);
uint16_t lo_port_health(const struct lo_ports *p, int32_t broker);
uint16_t lo_port_heartbeat(const struct lo_ports *p);
uint16_t lo_port_operator_health(const struct lo_ports *p);

/* Makes dir and its folders, takes the lock that keeps a second host out. *ret_lock is held until
 * closed. KC_E_BUSY: another host runs there. */
int lo_dir_open(const char *dir, int *ret_lock, struct kc_err *err);
/* The heartbeat secret, made on first use: 64 hex digits, mode 0600. */
int lo_token(const char *dir, char out[65], struct kc_err *err);
/* DIR/brokers/<n>/broker.yaml of a child; bind is loopback. */
int lo_write_broker_file(const char *dir, const struct lo_ports *ports, const struct ko_cluster *c,
                         int32_t broker, struct kc_err *err);
/* DIR/brokers/<n>/pid; pid 0 removes it. */
void lo_write_pid(const char *dir, int32_t broker, int pid);
/* DIR/brokers/<n>/hold exists: the broker is not started (fault tests). */
bool lo_held(const char *dir, int32_t broker);
/* Whole text of a file of at most 1 MiB, owned (kc_free), or NULL with err. */
char *lo_read_file(const char *path, size_t *ret_len, struct kc_err *err);

#endif
