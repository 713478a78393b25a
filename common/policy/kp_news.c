/* kp_news.c - who has just come to lead what, for brokers that the image has not told yet.
 *
 * Images go through the API server, which may take its time; brokers hear of a new leader over their
 * streams meanwhile (ADR 19). A ring of names: what is handed out is what holds now, so an
 * entry that was overtaken tells the newest. Whoever is behind by more than the ring waits for the image. */
#include "policy/kp_internal.h"

void kp_news_led(struct kp_ctl *c, const struct kp_topic *t, int32_t partition)
{
    c->news[c->news_seq % KP_NEWS_MAX] = (struct kp_news){
        .p = {t->id, partition},
        /* Its change is in the publication that is prepared next; one may be under way. */
        .until = KC_MAX(c->generation, c->published) + 1,
    };
    c->news_seq++;
}

uint64_t kp_ctl_leads_seq(const struct kp_ctl *c)
{
    return c->news_seq;
}

int32_t kp_ctl_leads(struct kp_ctl *c, uint64_t since, struct kp_lead *ret, int32_t cap)
{
    uint64_t oldest = c->news_seq > KP_NEWS_MAX ? c->news_seq - KP_NEWS_MAX : 0;
    int32_t n = 0;
    for (uint64_t i = KC_MAX(since, oldest); i < c->news_seq && n < cap; i++) {
        const struct kp_news *e = &c->news[i % KP_NEWS_MAX];
        struct kp_topic *t;
        const struct kp_part *p = e->until > c->published ? kp_part_find(c, &e->p, &t) : NULL;
        if (p && p->led >= 0) {
            ret[n++] = (struct kp_lead){e->p, p->led, p->led_incarnation, p->led_epoch};
        }
    }
    return n;
}
