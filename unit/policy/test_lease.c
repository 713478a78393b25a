#include "kt.h"

#include "base/kc_rng.h"
#include "policy/kp_lease.h"

static const struct kp_lease_opts opts = {
    .lease_ms = 4000, .renew_deadline_ms = 3000, .retry_ms = 500};

/* One Lease object and candidates with clocks of their own. */
struct server {
    bool exists;
    struct kp_lease_doc doc;
    int64_t version, stamp;
};

struct candidate {
    struct kp_lease l;
    int64_t skew, read_version;
    bool cut; /* no answers */
};

static struct server server;

static void candidate_init(struct candidate *c, const char *name, int64_t skew)
{
    memset(c, 0, sizeof(*c));
    c->skew = skew;
    kp_lease_init(&c->l, &opts, name);
}

static struct kp_lease_doc ours(const struct candidate *c)
{
    struct kp_lease_doc d = {.duration_ms = 4000, .transitions = kp_lease_transitions(&c->l)};
    snprintf(d.holder, sizeof(d.holder), "%s", c->l.me);
    snprintf(d.renewed, sizeof(d.renewed), "%lld", (long long)++server.stamp);
    return d;
}

static void act(struct candidate *c, int64_t now)
{
    int64_t local = now + c->skew, next;
    switch (kp_lease_step(&c->l, local, &next)) {
    case KP_LEASE_WAIT:
        return;
    case KP_LEASE_READ:
        if (c->cut) {
            kp_lease_failed(&c->l, local);
            return;
        }
        c->read_version = server.version;
        kp_lease_seen(&c->l, server.exists ? &server.doc : NULL, local);
        return;
    case KP_LEASE_CREATE:
    case KP_LEASE_UPDATE:
        if (c->cut || c->read_version != server.version) {
            kp_lease_failed(&c->l, local);
            return;
        }
        server.doc = ours(c);
        server.exists = true;
        c->read_version = ++server.version;
        kp_lease_wrote(&c->l, &server.doc, local, local);
        return;
    }
}

static void first_candidate_creates_and_keeps_the_lease(void)
{
    struct candidate a;
    memset(&server, 0, sizeof(server));
    candidate_init(&a, "a", 0);
    for (int64_t t = 0; t < 60000; t += 100) {
        act(&a, t);
        KT_TRUE(t < 1000 || kp_lease_held(&a.l, t));
    }
    KT_EQ(server.doc.transitions, 0);
}

static void a_standby_takes_over_only_after_the_lease_ran_out_by_its_own_clock(void)
{
    struct candidate a, b;
    memset(&server, 0, sizeof(server));
    candidate_init(&a, "a", 0);
    candidate_init(&b, "b", 1000000000); /* clocks differ by eleven days */
    for (int64_t t = 0; t < 10000; t += 100) {
        act(&a, t);
        act(&b, t);
        KT_FALSE(kp_lease_held(&b.l, t + b.skew));
    }
    a.cut = true;
    int64_t lost = -1, taken = -1;
    for (int64_t t = 10000; t < 30000 && taken < 0; t += 100) {
        act(&a, t);
        act(&b, t);
        lost = lost < 0 && !kp_lease_held(&a.l, t) ? t : lost;
        taken = kp_lease_held(&b.l, t + b.skew) ? t : taken;
    }
    KT_TRUE(lost > 0 && taken > lost);
    KT_TRUE(taken <= 15000);
    KT_EQ(server.doc.transitions, 1);
}

static void a_released_lease_is_taken_at_once(void)
{
    struct candidate a, b;
    memset(&server, 0, sizeof(server));
    candidate_init(&a, "a", 0);
    candidate_init(&b, "b", 0);
    for (int64_t t = 0; t < 2000; t += 100) {
        act(&a, t);
        act(&b, t);
    }
    server.doc.holder[0] = '\0';
    server.version++;
    for (int64_t t = 2000; t < 3200; t += 100) {
        act(&b, t);
    }
    KT_TRUE(kp_lease_held(&b.l, 3100));
}

static void a_hanging_renewal_ends_the_lead_at_the_deadline(void)
{
    struct candidate a;
    memset(&server, 0, sizeof(server));
    candidate_init(&a, "a", 0);
    for (int64_t t = 0; t <= 1000; t += 100) {
        act(&a, t);
    }
    int64_t next, t = a.l.next_ms;
    KT_EQ(kp_lease_step(&a.l, t, &next), KP_LEASE_UPDATE); /* never answered */
    int64_t last = a.l.renewed_ms;
    KT_TRUE(kp_lease_held(&a.l, last + 2999));
    KT_FALSE(kp_lease_held(&a.l, last + 3000));
    KT_EQ(kp_lease_step(&a.l, last + 3000, &next), KP_LEASE_WAIT);
    KT_FALSE(a.l.leader);
}

static void two_never_hold_it_together(void)
{
    struct kc_rng rng;
    kc_rng_seed(&rng, kt_seed());
    memset(&server, 0, sizeof(server));
    struct candidate c[3];
    char name[2] = "a";
    for (int i = 0; i < 3; i++) {
        name[0] = (char)('a' + i);
        candidate_init(&c[i], name, (int64_t)kc_rng_below(&rng, 1000000));
    }
    int64_t paused[3] = {0}, held = 0;
    for (int64_t t = 0; t < 3000000; t += 100) {
        int holders = 0;
        for (int i = 0; i < 3; i++) {
            if (kc_rng_below(&rng, 200) == 0) {
                c[i].cut = !c[i].cut;
            }
            if (kc_rng_below(&rng, 500) == 0) {
                paused[i] = t + (int64_t)kc_rng_below(&rng, 10000);
            }
            if (t >= paused[i]) {
                act(&c[i], t);
            }
            holders += kp_lease_held(&c[i].l, t + c[i].skew);
        }
        KT_TRUE(holders <= 1);
        held += holders;
    }
    KT_TRUE(held > 10000);
}

static void hurry_renews_at_once(void)
{
    struct candidate a;
    memset(&server, 0, sizeof(server));
    candidate_init(&a, "a", 0);
    for (int64_t t = 0; t <= 1000; t += 100) {
        act(&a, t);
    }
    kp_lease_hurry(&a.l, 1010);
    act(&a, 1010);
    KT_EQ(a.l.renewed_ms, 1010);
}

KT_MAIN("lease", KT(first_candidate_creates_and_keeps_the_lease),
        KT(a_standby_takes_over_only_after_the_lease_ran_out_by_its_own_clock),
        KT(a_released_lease_is_taken_at_once), KT(a_hanging_renewal_ends_the_lead_at_the_deadline),
        KT(two_never_hold_it_together), KT(hurry_renews_at_once))
