/* The request side of the API client against a server that the test plays. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/kc_json.h"
#include "base/kc_mem.h"
#include "fake_api.h"
#include "kt.h"
#include "kt_dir.h"

static const struct k8s_resource CONFIGMAPS = {"v1", "configmaps"};

struct answer {
    int done, code, error;
    char reason[64], message[256], name[64];
    int64_t retry_after_ms;
};

static void keep(void *ctx, const struct k8s_result *r)
{
    struct answer *a = ctx;
    a->done++;
    a->code = r->code;
    a->error = r->error;
    a->retry_after_ms = r->retry_after_ms;
    snprintf(a->reason, sizeof(a->reason), "%s", r->reason);
    snprintf(a->message, sizeof(a->message), "%s", r->message);
    snprintf(a->name, sizeof(a->name), "%s", kc_json_str(r->doc, "metadata.name", ""));
}

/* What the server does: one mode a test. */
enum mode { OBJECT, MISSING, THROTTLED, SILENT, HUGE_BODY, GARBAGE, CUT, TOKEN };
struct server {
    struct fake_api api;
    struct k8s_client *client;
    enum mode mode;
    char target[512], method[8], type[96], auth[512];
    char good_auth[64];
    json_t *body;
};

static void handle(void *ctx, const struct fake_request *r)
{
    struct server *s = ctx;
    snprintf(s->target, sizeof(s->target), "%.511s", r->target);
    snprintf(s->method, sizeof(s->method), "%s", r->method);
    snprintf(s->type, sizeof(s->type), "%s", r->type);
    snprintf(s->auth, sizeof(s->auth), "%s", r->auth);
    json_decref(s->body);
    s->body = json_incref(r->body);
    json_t *big;
    switch (s->mode) {
    case OBJECT:
        fake_reply(r->conn, 200, NULL, fake_object("demo", "u1", "7"));
        break;
    case MISSING:
        fake_status(r->conn, 404, "NotFound", "configmaps \"demo\" not found");
        break;
    case THROTTLED:
        fake_reply(r->conn, 429, "Retry-After: 3\r\n", NULL);
        break;
    case SILENT:
        break;
    case HUGE_BODY:
        big = fake_object("demo", "u1", "7");
        for (int i = 0; i < 1000; i++) {
            char key[16];
            snprintf(key, sizeof(key), "k%d", i);
            json_object_set_new(big, key, json_string("0123456789"));
        }
        fake_reply(r->conn, 200, NULL, big);
        break;
    case GARBAGE:
        fake_stream(r->conn);
        fake_send(r->conn, "<html>");
        fake_end(r->conn);
        break;
    case CUT:
        fake_stream(r->conn);
        fake_send(r->conn, "{\"half\":");
        fake_drop(r->conn);
        break;
    case TOKEN:
        if (strcmp(r->auth, s->good_auth) == 0) {
            fake_reply(r->conn, 200, NULL, fake_object("demo", "u1", "7"));
        } else {
            fake_status(r->conn, 401, "Unauthorized", "Unauthorized");
        }
        break;
    }
}

static void begin(struct server *s, enum mode mode)
{
    memset(s, 0, sizeof(*s));
    s->mode = mode;
    fake_api_init(&s->api, handle, s);
    s->client = k8s_client_new(&s->api.loop, &s->api.config, NULL);
    KT_REQUIRE(s->client != NULL);
}

static void end(struct server *s)
{
    k8s_client_free(s->client);
    fake_api_fini(&s->api);
    json_decref(s->body);
}

static void get(struct server *s, struct answer *a)
{
    *a = (struct answer){0};
    k8s_get(s->client, CONFIGMAPS, "ns", "demo", keep, a);
    KT_EQ(a->done, 0); /* never before k8s_get returns */
    KT_TRUE(fake_api_until(&s->api, &a->done, 1));
}

static void get_returns_the_object(void)
{
    struct server s;
    struct answer a;
    begin(&s, OBJECT);
    get(&s, &a);
    KT_EQ(a.code, 200);
    KT_STR(a.name, "demo");
    KT_STR(s.target, "/api/v1/namespaces/ns/configmaps/demo");
    get(&s, &a);
    KT_EQ(s.api.open_conns, 1); /* kept alive */
    end(&s);
}

static void a_status_gives_reason_and_message(void)
{
    struct server s;
    struct answer a;
    begin(&s, MISSING);
    get(&s, &a);
    KT_EQ(a.code, 404);
    KT_STR(a.reason, "NotFound");
    KT_STR(a.message, "configmaps \"demo\" not found");
    end(&s);
}

static void retry_after_reaches_the_caller(void)
{
    struct server s;
    struct answer a;
    begin(&s, THROTTLED);
    get(&s, &a);
    KT_EQ(a.code, 429);
    KT_EQ(a.retry_after_ms, 3000);
    end(&s);
}

static void a_silent_server_ends_at_the_deadline(void)
{
    struct server s;
    struct answer a = {0};
    begin(&s, SILENT);
    struct k8s_request req = {
        .resource = CONFIGMAPS, .ns = "ns", .name = "demo", .timeout_ms = 100};
    k8s_send(s.client, &req, keep, &a);
    KT_TRUE(fake_api_until(&s.api, &a.done, 1));
    KT_EQ(a.code, 0);
    KT_EQ(a.error, KC_E_TIMEOUT);
    end(&s);
}

static void an_answer_past_the_cap_is_an_error(void)
{
    struct server s;
    struct answer a = {0};
    begin(&s, HUGE_BODY);
    struct k8s_request req = {
        .resource = CONFIGMAPS, .ns = "ns", .name = "demo", .max_bytes = 4096};
    k8s_send(s.client, &req, keep, &a);
    KT_TRUE(fake_api_until(&s.api, &a.done, 1));
    KT_EQ(a.code, 0);
    KT_EQ(a.error, KC_E_TOO_LARGE);
    end(&s);
}

static void half_an_answer_is_no_answer(void)
{
    struct server s;
    struct answer a;
    begin(&s, CUT);
    get(&s, &a);
    KT_EQ(a.code, 0);
    KT_EQ(a.error, KC_E_CLOSED);
    s.mode = GARBAGE;
    get(&s, &a);
    KT_EQ(a.code, 0);
    KT_EQ(a.error, KC_E_MALFORMED);
    end(&s);
}

static void an_unreachable_server_is_refused(void)
{
    struct server s;
    struct answer a;
    begin(&s, OBJECT);
    uv_close((uv_handle_t *)&s.api.server, NULL);
    uv_run(&s.api.loop.uv, UV_RUN_NOWAIT);
    get(&s, &a);
    KT_EQ(a.code, 0);
    KT_EQ(a.error, -ECONNREFUSED);
    KT_TRUE(a.message[0] != '\0');
    end(&s);
}

static void apply_sends_a_patch_with_its_type_and_body(void)
{
    struct server s;
    struct answer a = {0};
    begin(&s, OBJECT);
    json_t *doc = fake_object("demo", "u1", "7");
    struct k8s_request req = {.method = K8S_PATCH,
                              .resource = {"kaas.dev/v1alpha1", "kaasclusters"},
                              .ns = "ns",
                              .name = "demo",
                              .subresource = "status",
                              .query = "fieldManager=x&force=true",
                              .content_type = K8S_APPLY_PATCH,
                              .body = doc};
    k8s_send(s.client, &req, keep, &a);
    KT_TRUE(fake_api_until(&s.api, &a.done, 1));
    KT_STR(s.method, "PATCH");
    KT_STR(s.type, "application/apply-patch+yaml");
    KT_STR(s.target, "/apis/kaas.dev/v1alpha1/namespaces/ns/kaasclusters/demo/status?"
                     "fieldManager=x&force=true");
    KT_TRUE(json_equal(s.body, doc));
    json_decref(doc);
    end(&s);
}

static void a_rotated_token_is_read_again_after_401(void)
{
    struct server s;
    struct answer a;
    char path[] = "/tmp/kaas-token-XXXXXX";
    int fd = mkstemp(path);
    KT_REQUIRE(fd >= 0);
    close(fd);
    memset(&s, 0, sizeof(s));
    s.mode = TOKEN;
    fake_api_init(&s.api, handle, &s);
    s.api.config.token_file = kc_strdup(path);
    s.client = k8s_client_new(&s.api.loop, &s.api.config, NULL);

    kt_file_write(path, "first\n");
    snprintf(s.good_auth, sizeof(s.good_auth), "Bearer first");
    get(&s, &a);
    KT_EQ(a.code, 200);

    kt_file_write(path, "second\n");
    snprintf(s.good_auth, sizeof(s.good_auth), "Bearer second");
    get(&s, &a);
    KT_EQ(a.code, 200);
    KT_EQ(s.api.requests, 3);

    snprintf(s.good_auth, sizeof(s.good_auth), "Bearer other"); /* the file has nothing newer */
    get(&s, &a);
    KT_EQ(a.code, 401);
    KT_EQ(s.api.requests, 4);
    end(&s);
    unlink(path);
}

static void a_cancelled_call_is_silent(void)
{
    struct server s;
    struct answer a = {0}, b = {0};
    begin(&s, SILENT);
    struct k8s_call *call = k8s_get(s.client, CONFIGMAPS, "ns", "demo", keep, &a);
    KT_TRUE(fake_api_until(&s.api, &s.api.requests, 1));
    k8s_cancel(call);
    s.mode = OBJECT;
    get(&s, &b);
    KT_EQ(b.code, 200);
    KT_EQ(a.done, 0);
    end(&s);
}

struct freeing {
    struct server *s;
    int done;
};

static void free_inside(void *ctx, const struct k8s_result *r)
{
    struct freeing *f = ctx;
    (void)r;
    f->done++;
    k8s_client_free(f->s->client);
    f->s->client = NULL;
}

static void freeing_the_client_in_a_callback_cancels_the_rest(void)
{
    struct server s;
    struct answer b = {0};
    begin(&s, OBJECT);
    struct freeing f = {&s, 0};
    k8s_get(s.client, CONFIGMAPS, "ns", "demo", free_inside, &f);
    k8s_get(s.client, CONFIGMAPS, "ns", "demo", keep, &b);
    KT_TRUE(fake_api_until(&s.api, &f.done, 1));
    end(&s);
    KT_EQ(f.done, 1);
    KT_EQ(b.done, 0);
}

static void names_from_outside_stay_in_their_place(void)
{
    struct server s;
    struct answer a = {0};
    begin(&s, OBJECT);
    k8s_get(s.client, CONFIGMAPS, "ns", "../secrets", keep, &a);
    KT_TRUE(fake_api_until(&s.api, &a.done, 1));
    KT_EQ(a.error, KC_E_MALFORMED);
    KT_EQ(s.api.requests, 0);
    char path[256], q[64] = "";
    struct k8s_request req = {
        .resource = {"apps/v1", "statefulsets"}, .ns = "a b", .name = "x?y#z"};
    KT_EQ(k8s_request_path(&req, path, sizeof(path)), 0);
    KT_STR(path, "/apis/apps/v1/namespaces/a%20b/statefulsets/x%3Fy%23z");
    KT_EQ(k8s_request_path(&req, path, 20), KC_E_TOO_LARGE);
    req.name = "..";
    KT_EQ(k8s_request_path(&req, path, sizeof(path)), KC_E_MALFORMED);
    KT_EQ(k8s_query_add(q, sizeof(q), "labelSelector", "a=b,c"), 0);
    KT_EQ(k8s_query_add(q, sizeof(q), "n", "1"), 0);
    KT_STR(q, "labelSelector=a%3Db%2Cc&n=1");
    end(&s);
}

KT_MAIN("client", KT(get_returns_the_object), KT(a_status_gives_reason_and_message),
        KT(retry_after_reaches_the_caller), KT(a_silent_server_ends_at_the_deadline),
        KT(an_answer_past_the_cap_is_an_error), KT(half_an_answer_is_no_answer),
        KT(an_unreachable_server_is_refused), KT(apply_sends_a_patch_with_its_type_and_body),
        KT(a_rotated_token_is_read_again_after_401), KT(a_cancelled_call_is_silent),
        KT(freeing_the_client_in_a_callback_cancels_the_rest),
        KT(names_from_outside_stay_in_their_place))
