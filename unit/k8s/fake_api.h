/* fake_api.h - an HTTP server on the test's own loop, in place of the API server.
 *
 * The test answers each request itself, at once or later, and may keep an answer open as a stream
 * (a watch). One thread does everything, so a test is in full control of the order of things. */
#ifndef FAKE_API_H
#define FAKE_API_H

#include <jansson.h>

#include "k8s/k8s_client.h"
#include "rt/rt_loop.h"

struct fake_conn;
struct fake_request {
    struct fake_conn *conn;
    char method[8];
    char target[4096]; /* path and query, as sent */
    char auth[512]; /* the Authorization header, or "" */
    char type[96]; /* the Content-Type, or "" */
    json_t *body; /* NULL if none */
};
typedef void (*fake_handler)(void *ctx, const struct fake_request *r);

struct fake_api {
    struct rt_loop loop;
    uv_tcp_t server;
    uv_timer_t watchdog;
    struct k8s_config config; /* to dial it */
    fake_handler handler;
    void *ctx;
    int requests, open_conns;
    bool timed_out;
};

void fake_api_init(struct fake_api *f, fake_handler handler, void *ctx);
/* Runs the loop until *done >= want; false when that takes more than 10 s. */
bool fake_api_until(struct fake_api *f, const int *done, int want);
/* Clients must have been freed. */
void fake_api_fini(struct fake_api *f);

/* A whole answer; extra is header lines (each with its \r\n) or NULL. Steals body (NULL = none). */
void fake_reply(struct fake_conn *c, int code, const char *extra, json_t *body);
/* metav1.Status */
void fake_status(struct fake_conn *c, int code, const char *reason, const char *message);
/* Begins an endless 200 answer; then pieces of any kind. */
void fake_stream(struct fake_conn *c);
void fake_send(struct fake_conn *c, const char *text);
/* {"type":…,"object":…} and a newline; steals object. */
void fake_event(struct fake_conn *c, const char *type, json_t *object);
void fake_end(struct fake_conn *c); /* the orderly end of a stream */
void fake_drop(struct fake_conn *c); /* the connection breaks */

/* A ConfigMap. */
json_t *fake_object(const char *name, const char *uid, const char *version);
/* A ConfigMapList with a resourceVersion; append to its "items". */
json_t *fake_list(const char *version);

#endif
