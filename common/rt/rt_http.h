/* rt_http.h - a small HTTP/1.1 responder on a thread of its own (R39).
 *
 * For /readyz, /healthz and /metrics: GET only, requests of at most 1 KiB, one answer a
 * connection. It shares no lock and no allocator path with the loops it reports on: the answer is
 * written into a buffer that exists from the start. */
#ifndef RT_HTTP_H
#define RT_HTTP_H

#include "base/kc_base.h"
#include "base/kc_error.h"

struct rt_http;

/* Writes a body of at most cap bytes, sets *ret_len; returns the HTTP status code, 404 for an
 * unknown path. Runs on the responder's thread; must not block. */
typedef int (*rt_http_fn)(void *ctx, struct kc_str path, char *body, size_t cap, size_t *ret_len);

/* addr "" or NULL = any address (IPv6 dual-stack). port 0 picks one (rt_http_port tells).
 * Returns 0 or -errno with err filled. */
int rt_http_start(const char *addr, uint16_t port, rt_http_fn fn, void *ctx, struct rt_http **ret,
                  struct kc_err *err);
uint16_t rt_http_port(const struct rt_http *h);
void rt_http_stop(struct rt_http *h); /* joins; NULL allowed */

#endif
