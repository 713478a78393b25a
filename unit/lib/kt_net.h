/* kt_net.h - blocking sockets on loopback, for the clients of tests. */
#ifndef KT_NET_H
#define KT_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Connects; a read that waits longer than patience_s fails (0: never). -1: refused. */
int kt_dial(uint16_t port, int patience_s);
/* All of it, or false. */
bool kt_send(int fd, const void *data, size_t len);
bool kt_recv(int fd, void *out, size_t len);

#endif
