/* Who may speak for a broker: the pod the token is bound to, of the cluster's own account. */
#include "app/ko_token.h"
#include "kt.h"

static json_t *review(bool ok, const char *audience, const char *user, const char *pod,
                      const char *uid)
{
    json_t *extra = json_pack("{s:[s], s:[s]}", "authentication.kubernetes.io/pod-name", pod,
                              "authentication.kubernetes.io/pod-uid", uid);
    return json_pack("{s:{s:b, s:[s], s:{s:s, s:o}}}", "status", "authenticated", (int)ok,
                     "audiences", audience, "user", "username", user, "extra", extra);
}

#define ACCOUNT "system:serviceaccount:ns:demo-broker"

/* Takes doc. */
static bool accepted(json_t *doc)
{
    bool ok = ko_token_check(doc, "ns/demo", "demo-1", "u1") == NULL;
    json_decref(doc);
    return ok;
}

static void a_token_speaks_for_its_own_pod_only(void)
{
    KT_TRUE(accepted(review(true, "kaas-heartbeat", ACCOUNT, "demo-1", "u1")));
    KT_FALSE(accepted(review(false, "kaas-heartbeat", ACCOUNT, "demo-1", "u1")));
    KT_FALSE(accepted(review(true, "kubernetes", ACCOUNT, "demo-1", "u1")));
    KT_FALSE(accepted(review(true, "kaas-heartbeat", ACCOUNT, "demo-2", "u1")));
    KT_FALSE(accepted(review(true, "kaas-heartbeat", ACCOUNT, "demo-1", "u2")));
    /* A broker of another cluster of the namespace, and one of another namespace. */
    KT_FALSE(accepted(
        review(true, "kaas-heartbeat", "system:serviceaccount:ns:other-broker", "demo-1", "u1")));
    KT_FALSE(accepted(
        review(true, "kaas-heartbeat", "system:serviceaccount:nt:demo-broker", "demo-1", "u1")));
    KT_FALSE(accepted(json_object()));
}

struct answer {
    int calls;
    bool ok;
};

static void on_verdict(void *ctx, bool ok, const char *why)
{
    struct answer *a = ctx;
    a->calls++;
    a->ok = ok;
    KT_TRUE(ok == (*why == '\0'));
}

static void the_secret_must_match_as_a_whole(void)
{
    static const struct {
        const char *token;
        bool ok;
    } cases[] = {{"abcd", true},   {"abcd\n", true}, {"abc", false},
                 {"abcde", false}, {"abce", false},  {"", false}};
    for (size_t i = 0; i < KC_ARRAY_LEN(cases); i++) {
        struct answer a = {0};
        char secret[] = "abcd";
        ko_token_secret(secret, "ns/demo", cases[i].token, "p", "u", on_verdict, &a);
        KT_EQ(a.calls, 1);
        KT_EQ(a.ok, cases[i].ok);
    }
}

KT_MAIN("operator/token", KT(a_token_speaks_for_its_own_pod_only),
        KT(the_secret_must_match_as_a_whole))
