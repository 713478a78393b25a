/* The way of a request to the server and back, and what strikes it there. */
#include <errno.h>

#include "ss_client.h"

static struct ss_client *here[SS_NODES]; /* by node */

struct ss_client *ss_client_here(void)
{
    return here[ss_node()];
}

void ss_client_set_here(int node, struct ss_client *c)
{
    here[node] = c;
}

/* Faults of a whole node, or of the server. */
static bool is_large(enum ss_fault f)
{
    return f >= SS_F_KILL && f < SS_FAULTS;
}

static void strike(struct ss_client *c, enum ss_fault f)
{
    if (!c->dead) {
        c->struck(c->ctx, f);
    }
}

/* What comes by chance. */
static enum ss_fault by_chance(const struct ss_req *r)
{
    const struct ss_rates *rates = ss_srv_get_rates();
    bool check = r->op == SS_OP_STAT;
    if (ss_chance(check ? rates->check_error : rates->op_error)) {
        return ss_chance(700) ? SS_F_EIO : SS_F_ESTALE;
    }
    if (ss_chance(rates->stall)) {
        return SS_F_STALL;
    }
    if (r->op == SS_OP_EXTEND && ss_chance(rates->stale_enoent)) {
        return SS_F_STALE_NAME;
    }
    if (ss_fault_fits(SS_F_LOST_REPLY, r->op) && r->op != SS_OP_SYNC &&
        ss_chance(rates->lost_reply)) {
        return ss_fault_fits(SS_F_LATE, r->op) && ss_chance(250) ? SS_F_LATE : SS_F_LOST_REPLY;
    }
    return SS_FAULTS;
}

struct ss_req ss_req_begin(struct ss_client *c, enum ss_op op, uint32_t steps)
{
    struct ss_req r = {.c = c, .op = op, .steps = ss_doing(steps), .fire = SS_FAULTS};
    if (!c->faults || c->dead) {
        return r;
    }
    r.fire = ss_aim_at(op, r.steps);
    if (r.fire == SS_FAULTS && op != SS_OP_WRITE && op != SS_OP_CLOSE) {
        r.fire = by_chance(&r);
        if (!ss_fault_fits(r.fire == SS_FAULTS ? SS_F_STALL : r.fire, op)) {
            r.fire = SS_FAULTS;
        }
    }
    if (is_large(r.fire) && ss_chance(500)) {
        strike(c, r.fire); /* before it is sent; else after it was done */
        r.fire = SS_FAULTS;
    }
    return r;
}

void ss_req_end(struct ss_req *r)
{
    (void)r;
    ss_doing(0);
}

void ss_strike_late(struct ss_req *r)
{
    if (is_large(r->fire)) {
        enum ss_fault f = r->fire;
        r->fire = SS_FAULTS;
        strike(r->c, f);
    }
}

void ss_client_stall(struct ss_req *r)
{
    if (r->fire == SS_F_STALL) {
        r->fire = SS_FAULTS;
        ss_hit(SS_F_STALL, r->steps);
        ss_wait(r->c, ss_now_us() + (int64_t)ss_below(15000000));
    } else {
        ss_yield();
    }
}

void ss_client_point(struct ss_client *c)
{
    SS_REQ(c, SS_OP_NONE, 0);
    ss_client_stall(&req);
    ss_strike_late(&req);
}

/* ---- the way ---- */

static int64_t latency(void)
{
    int64_t us = 50 + (int64_t)ss_below(600);
    return ss_chance(20) ? us + (int64_t)ss_below(40000) : us;
}

/* Until then, or until the node is dead. */
static void travel(struct ss_client *c, int64_t us)
{
    int64_t at = ss_now_us() + us;
    do {
        at = KC_MAX(at, KC_MAX(c->cut_until_us, ss_srv_up_at_us()));
        ss_wait(c, at);
    } while (!c->dead && ss_now_us() < KC_MAX(c->cut_until_us, ss_srv_up_at_us()));
}

static bool takes(struct ss_req *r, enum ss_fault f)
{
    if (r->fire != f) {
        return false;
    }
    ss_hit(f, r->steps);
    r->fire = SS_FAULTS;
    return true;
}

int ss_go(struct ss_req *r)
{
    struct ss_client *c = r->c;
    if (c->dead) {
        return -EIO;
    }
    travel(c, latency() + (takes(r, SS_F_STALL) ? (int64_t)ss_below(15000000) : 0));
    r->boot = ss_srv_boot();
    if (c->dead) {
        return ss_chance(500) ? IN_FLIGHT : -EIO;
    }
    if (takes(r, SS_F_EIO)) {
        return -EIO;
    }
    if (takes(r, SS_F_ESTALE)) {
        return -ESTALE;
    }
    if (r->op != SS_OP_SYNC && takes(r, SS_F_ENOSPC)) {
        return -ENOSPC;
    }
    return takes(r, SS_F_LATE) ? IN_FLIGHT : 0;
}

int ss_back(struct ss_req *r, int rc)
{
    ss_strike_late(r);
    travel(r->c, latency() / 2);
    return r->c->dead ? -EIO : rc;
}

int ss_reply(struct ss_req *r, int rc, int lost)
{
    bool hit = rc == 0 && takes(r, SS_F_LOST_REPLY);
    rc = ss_back(r, rc);
    /* A server that comes back does not know what it did before it crashed. */
    hit = hit || (rc == 0 && r->boot != ss_srv_boot() && ss_chance(500));
    return rc == 0 && hit ? (lost && ss_chance(700) ? lost : -EIO) : rc;
}
