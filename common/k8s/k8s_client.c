/* k8s_client.c - requests, their credentials and their answers.
 *
 * User code never runs inside one of libcurl's callbacks: they only store bytes and mark calls, and
 * pump() hands results out afterwards. So callbacks may send, cancel, and free as they like. */
#include "k8s/k8s_client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_dyn.h"
#include "base/kc_json.h"
#include "base/kc_list.h"
#include "base/kc_mem.h"
#include "k8s/k8s_multi.h"
#include "k8s/k8s_stream.h"

enum {
    CALLS_MAX = 4096, /* at once; more end with KC_E_BUSY */
    TOKEN_MAX = 32 << 10,
    TOKEN_AGE_MS = 60 * 1000, /* projected tokens rotate well before they expire */
    CONNECT_MS = 5000,
    DEADLINE_MS = 10000,
    STREAM_PENDING_MAX = 64 << 20
};
static const size_t ANSWER_MAX = 16 << 20;

struct k8s_client {
    struct k8s_config cfg;
    struct k8s_multi multi;
    struct kc_list calls; /* struct k8s_call.link */
    struct kc_list ready; /* struct k8s_call.ready */
    int n_calls, n_holders;
    bool pumping, doomed;
    char *auth; /* "Authorization: Bearer …" or NULL */
    int64_t auth_read_ms; /* when the token file was read; 0 = not yet */
};

struct k8s_call {
    struct kc_list link, ready;
    struct k8s_client *client;
    CURL *easy;
    struct curl_slist *headers;
    char *url;
    char *body;
    const char *verb;
    const char *content_type;
    int64_t timeout_ms;
    struct kc_dyn in;
    k8s_data_fn data; /* streams only */
    k8s_done done;
    void *ctx;
    bool in_multi, finished, retried, dispatching, cancelled;
    bool opened; /* a stream's headers have come, and that is still to be told */
    int error; /* finished without an answer */
    char message[CURL_ERROR_SIZE];
};

struct rt_loop *k8s_client_loop(struct k8s_client *c)
{
    return c->multi.loop;
}

void k8s_client_hold(struct k8s_client *c, int delta)
{
    c->n_holders += delta;
}

static size_t on_bytes(char *data, size_t size, size_t n, void *ctx)
{
    struct k8s_call *call = ctx;
    kc_dyn_add(&call->in, data, size * n);
    if (!kc_dyn_ok(&call->in)) {
        call->error = call->in.over ? KC_E_TOO_LARGE : -ENOMEM;
        return 0; /* ends the transfer */
    }
    if (call->data && kc_list_empty(&call->ready)) {
        kc_list_add_tail(&call->client->ready, &call->ready);
    }
    return size * n;
}

static size_t on_header(char *line, size_t size, size_t n, void *ctx)
{
    struct k8s_call *call = ctx;
    if (n == 2 && line[0] == '\r') { /* the empty line that ends them */
        call->opened = true;
        if (kc_list_empty(&call->ready)) {
            kc_list_add_tail(&call->client->ready, &call->ready);
        }
    }
    return size * n;
}

/* ---- credentials ---- */

/* A token file is a small file in memory; it is read at most once a minute, or after a 401. A
 * failure keeps the previous token: the server has the last word. */
static void refresh_token(struct k8s_client *c)
{
    int64_t now = kc_mono_ms();
    if (!c->cfg.token_file || (c->auth_read_ms && now - c->auth_read_ms < TOKEN_AGE_MS)) {
        return;
    }
    size_t len;
    char *token = k8s_read_file(c->cfg.token_file, TOKEN_MAX, &len);
    if (!token) {
        return;
    }
    len = strcspn(token, "\r\n \t");
    size_t room = len + 32;
    kc_free(c->auth);
    c->auth = kc_alloc(room);
    snprintf(c->auth, room, "Authorization: Bearer %.*s", (int)len, token);
    kc_free(token);
    c->auth_read_ms = now;
}

static void set_pem(CURL *e, CURLoption opt, const char *pem)
{
    struct curl_blob blob = {
        .data = (void *)(uintptr_t)pem, .len = strlen(pem), .flags = CURL_BLOB_COPY};
    curl_easy_setopt(e, opt, &blob);
}

static void set_credentials(struct k8s_client *c, CURL *e)
{
    const struct k8s_config *k = &c->cfg;
    if (k->ca_pem) {
        set_pem(e, CURLOPT_CAINFO_BLOB, k->ca_pem);
    } else if (k->ca_file) {
        curl_easy_setopt(e, CURLOPT_CAINFO, k->ca_file);
    }
    /* The CA file may be replaced under us (rotation): parsed again after this many seconds. */
    curl_easy_setopt(e, CURLOPT_CA_CACHE_TIMEOUT, 60L);
    if (k->cert_pem) {
        set_pem(e, CURLOPT_SSLCERT_BLOB, k->cert_pem);
    } else if (k->cert_file) {
        curl_easy_setopt(e, CURLOPT_SSLCERT, k->cert_file);
    }
    if (k->key_pem) {
        set_pem(e, CURLOPT_SSLKEY_BLOB, k->key_pem);
    } else if (k->key_file) {
        curl_easy_setopt(e, CURLOPT_SSLKEY, k->key_file);
    }
}

/* ---- calls ---- */

static void add_header(struct k8s_call *call, const char *line)
{
    struct curl_slist *l = curl_slist_append(call->headers, line);
    KC_ASSERT(l);
    call->headers = l;
}

static void set_headers(struct k8s_call *call)
{
    char type[96];
    curl_slist_free_all(call->headers);
    call->headers = NULL;
    refresh_token(call->client);
    if (call->client->auth) {
        add_header(call, call->client->auth);
    }
    add_header(call, "Accept: application/json");
    add_header(call, "Expect:"); /* no 100-continue round trip */
    if (call->body) {
        snprintf(type, sizeof(type), "Content-Type: %s", call->content_type);
        add_header(call, type);
    }
    curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->headers);
}

static void set_options(struct k8s_call *call)
{
    CURL *e = call->easy;
    curl_easy_setopt(e, CURLOPT_URL, call->url);
    curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, call->verb);
    if (call->body) {
        curl_easy_setopt(e, CURLOPT_POSTFIELDS, call->body);
        curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(call->body));
    }
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_PROXY, ""); /* the server of our own cluster: never by a proxy */
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS,
                     (long)KC_MIN(call->timeout_ms, (int64_t)CONNECT_MS));
    if (call->data) {
        curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
        curl_easy_setopt(e, CURLOPT_HEADERDATA, call);
    } else {
        curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)call->timeout_ms);
    }
    curl_easy_setopt(e, CURLOPT_SOCKOPTFUNCTION, k8s_multi_socket_made);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, call->message);
    curl_easy_setopt(e, CURLOPT_PRIVATE, call);
    curl_easy_setopt(e, CURLOPT_USERAGENT, "kaas");
    set_credentials(call->client, e);
    set_headers(call);
}

static void end_later(struct k8s_call *call, int error, const char *why)
{
    call->finished = true;
    call->error = error;
    snprintf(call->message, sizeof(call->message), "%s", why);
    kc_list_add_tail(&call->client->ready, &call->ready);
    k8s_multi_kick(&call->client->multi);
}

static void start(struct k8s_call *call)
{
    if (curl_multi_add_handle(call->client->multi.curl, call->easy) != CURLM_OK) {
        end_later(call, -ENOMEM, "libcurl refuses the request");
        return;
    }
    call->in_multi = true;
}

static void call_free(struct k8s_call *call)
{
    if (call->in_multi) {
        curl_multi_remove_handle(call->client->multi.curl, call->easy);
    }
    curl_easy_cleanup(call->easy);
    curl_slist_free_all(call->headers);
    kc_list_del(&call->link);
    kc_list_del(&call->ready);
    call->client->n_calls--;
    kc_dyn_fini(&call->in);
    free(call->body); /* jansson's */
    kc_free(call->url);
    kc_free(call);
}

static int prepare(struct k8s_call *call, const struct k8s_request *req)
{
    static const char *const verbs[] = {"GET", "POST", "PUT", "PATCH", "DELETE"};
    char path[4096];
    int rc = k8s_request_path(req, path, sizeof(path));
    if (rc) {
        return rc;
    }
    if (call->client->n_calls > CALLS_MAX) {
        return KC_E_BUSY;
    }
    size_t room = strlen(call->client->cfg.server) + strlen(path) + 1;
    call->url = kc_alloc(room);
    snprintf(call->url, room, "%s%s", call->client->cfg.server, path);
    call->verb = verbs[req->method];
    call->content_type = !req->content_type                                ? "application/json"
                         : strcmp(req->content_type, K8S_MERGE_PATCH) == 0 ? K8S_MERGE_PATCH
                                                                           : K8S_APPLY_PATCH;
    if (req->body) {
        call->body = json_dumps(req->body, JSON_COMPACT);
    }
    call->easy = curl_easy_init();
    if (!call->easy || (req->body && !call->body)) {
        return -ENOMEM;
    }
    set_options(call);
    return 0;
}

static struct k8s_call *send_any(struct k8s_client *c, const struct k8s_request *req,
                                 k8s_data_fn data, k8s_done done, void *ctx)
{
    struct k8s_call *call = kc_zalloc(sizeof(*call));
    call->client = c;
    call->data = data;
    call->done = done;
    call->ctx = ctx;
    call->timeout_ms = req->timeout_ms ? req->timeout_ms : DEADLINE_MS;
    kc_dyn_init(&call->in, data             ? (size_t)STREAM_PENDING_MAX
                           : req->max_bytes ? req->max_bytes
                                            : ANSWER_MAX);
    kc_list_init(&call->ready);
    kc_list_add_tail(&c->calls, &call->link);
    c->n_calls++;
    int rc = prepare(call, req);
    if (rc) {
        end_later(call, rc, kc_strerror(rc));
    } else {
        start(call);
    }
    return call;
}

struct k8s_call *k8s_send(struct k8s_client *c, const struct k8s_request *req, k8s_done done,
                          void *ctx)
{
    return send_any(c, req, NULL, done, ctx);
}

struct k8s_call *k8s_send_stream(struct k8s_client *c, const struct k8s_request *req,
                                 k8s_data_fn data, k8s_done done, void *ctx)
{
    return send_any(c, req, data, done, ctx);
}

struct k8s_call *k8s_get(struct k8s_client *c, struct k8s_resource resource, const char *ns,
                         const char *name, k8s_done done, void *ctx)
{
    struct k8s_request req = {.method = K8S_GET, .resource = resource, .ns = ns, .name = name};
    return k8s_send(c, &req, done, ctx);
}

void k8s_cancel(struct k8s_call *call)
{
    if (call->dispatching) {
        call->cancelled = true; /* pump() frees it when the callback returns */
        return;
    }
    call_free(call);
}

/* ---- results ---- */

static int error_of(CURLcode rc)
{
    switch (rc) {
    case CURLE_OPERATION_TIMEDOUT:
        return KC_E_TIMEOUT;
    case CURLE_OUT_OF_MEMORY:
        return -ENOMEM;
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
        return -ECONNREFUSED;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
        return KC_E_REFUSED;
    default:
        return KC_E_CLOSED;
    }
}

/* Ends calls that libcurl is done with. */
static void collect(struct k8s_client *c)
{
    CURLMsg *m;
    int left;
    while ((m = curl_multi_info_read(c->multi.curl, &left))) {
        if (m->msg != CURLMSG_DONE) {
            continue;
        }
        struct k8s_call *call = NULL;
        CURLcode rc = m->data.result;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&call);
        curl_multi_remove_handle(c->multi.curl, call->easy);
        call->in_multi = false;
        call->finished = true;
        if (rc != CURLE_OK) {
            call->error = call->error ? call->error : error_of(rc);
            if (!call->message[0]) {
                snprintf(call->message, sizeof(call->message), "%s", curl_easy_strerror(rc));
            }
        }
        if (kc_list_empty(&call->ready)) {
            kc_list_add_tail(&c->ready, &call->ready);
        }
    }
}

/* A token may have been rotated since it was read: one second try with what the file says now. */
static bool retry_unauthorized(struct k8s_call *call, long code)
{
    struct k8s_client *c = call->client;
    if (code != 401 || call->retried || !c->cfg.token_file) {
        return false;
    }
    char *old = c->auth ? kc_strdup(c->auth) : NULL;
    c->auth_read_ms = 0;
    set_headers(call);
    bool changed = c->auth && (!old || strcmp(old, c->auth) != 0);
    kc_free(old);
    if (!changed) {
        return false;
    }
    call->retried = true;
    call->finished = false;
    kc_dyn_reset(&call->in);
    start(call);
    return true;
}

static void finish(struct k8s_call *call)
{
    long code = 0;
    curl_off_t after = 0;
    struct k8s_result r = {.error = call->error, .reason = "", .message = call->message};
    json_t *doc = NULL;
    if (call->error == 0) {
        curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &code);
        curl_easy_getinfo(call->easy, CURLINFO_RETRY_AFTER, &after);
        if (retry_unauthorized(call, code)) {
            return;
        }
        r.code = (int)code;
        r.retry_after_ms = (int64_t)after * 1000;
        if (call->in.len) {
            doc = json_loadb((const char *)call->in.data, call->in.len, 0, NULL);
        }
        if (!doc && call->in.len && k8s_ok(&r)) {
            r.code = 0;
            r.error = KC_E_MALFORMED;
            r.message = "the answer is no JSON";
        } else {
            bool status = !k8s_ok(&r) && strcmp(kc_json_str(doc, "kind", ""), "Status") == 0;
            r.doc = doc;
            r.reason = status ? kc_json_str(doc, "reason", "") : "";
            r.message = status ? kc_json_str(doc, "message", "") : "";
        }
    }
    if (call->done) {
        call->dispatching = true;
        call->done(call->ctx, &r);
    }
    json_decref(doc);
    call_free(call);
}

/* Gives a stream's bytes out. False when the call was cancelled and is gone. */
static bool give_bytes(struct k8s_call *call)
{
    long code = 0;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &code);
    if (code != 200 || (call->in.len == 0 && !call->opened)) {
        return true;
    }
    call->opened = false;
    call->dispatching = true;
    call->data(call->ctx, call->in.data, call->in.len);
    call->dispatching = false;
    if (call->cancelled) {
        call_free(call);
        return false;
    }
    kc_dyn_reset(&call->in);
    return true;
}

static void gone(void *ctx)
{
    kc_free(ctx);
}

static void destroy(struct k8s_client *c)
{
    while (!kc_list_empty(&c->calls)) {
        call_free(KC_LIST_ENTRY(c->calls.next, struct k8s_call, link));
    }
    k8s_config_fini(&c->cfg);
    kc_free(c->auth);
    k8s_multi_close(&c->multi, gone);
}

static void pump(void *ctx)
{
    struct k8s_client *c = ctx;
    KC_ASSERT(!c->pumping);
    c->pumping = true;
    collect(c);
    while (!c->doomed && !kc_list_empty(&c->ready)) {
        struct k8s_call *call = KC_LIST_ENTRY(c->ready.next, struct k8s_call, ready);
        kc_list_del(&call->ready);
        if (call->data && call->easy && !give_bytes(call)) {
            continue;
        }
        if (call->finished && !c->doomed) {
            finish(call);
        }
        collect(c);
    }
    c->pumping = false;
    if (c->doomed) {
        destroy(c);
    }
}

/* ---- the client ---- */

static char *dup_or_null(const char *s)
{
    return s ? kc_strdup(s) : NULL;
}

struct k8s_client *k8s_client_new(struct rt_loop *loop, const struct k8s_config *cfg,
                                  struct kc_err *err)
{
    struct k8s_client *c = kc_zalloc(sizeof(*c));
    if (k8s_multi_init(&c->multi, loop, pump, c, err)) {
        kc_free(c);
        return NULL;
    }
    c->cfg = (struct k8s_config){.server = kc_strdup(cfg->server),
                                 .namespace_ = kc_strdup(cfg->namespace_),
                                 .ca_file = dup_or_null(cfg->ca_file),
                                 .ca_pem = dup_or_null(cfg->ca_pem),
                                 .cert_file = dup_or_null(cfg->cert_file),
                                 .cert_pem = dup_or_null(cfg->cert_pem),
                                 .key_file = dup_or_null(cfg->key_file),
                                 .key_pem = dup_or_null(cfg->key_pem),
                                 .token_file = dup_or_null(cfg->token_file),
                                 .token = dup_or_null(cfg->token)};
    if (c->cfg.token) {
        size_t room = strlen(c->cfg.token) + 32;
        c->auth = kc_alloc(room);
        snprintf(c->auth, room, "Authorization: Bearer %s", c->cfg.token);
    }
    kc_list_init(&c->calls);
    kc_list_init(&c->ready);
    return c;
}

void k8s_client_free(struct k8s_client *c)
{
    if (!c) {
        return;
    }
    KC_ASSERT(c->n_holders == 0);
    if (c->pumping) {
        c->doomed = true;
    } else {
        destroy(c);
    }
}
