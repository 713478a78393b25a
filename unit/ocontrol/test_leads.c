#include "kt.h"
#include "rig.h"

/* Who leads what is told over the streams, ahead of any image (ADR 19). */
static struct rig rig;
static struct peer peers[2];

/* Two brokers and an operator that decides over an empty volume. */
static void begin(void)
{
    rig_begin(&rig, 2);
    peer_init(&peers[0], 0);
    peer_init(&peers[1], 1);
    peer_begin(&peers[0], &rig);
    KT_TRUE(peer_dial(&peers[1], &rig, "secret"));
    peer_status(&peers[1]);
    KT_TRUE(peer_await(&peers[1], peer_is_active, NULL));
    KT_TRUE(rig_await_image(&rig, rig_image_names, (void *)(uintptr_t) "__consumer_offsets"));
}

static void end(void)
{
    peer_fini(&peers[0]);
    peer_fini(&peers[1]);
    rig_stop(&rig);
}

static bool heard_of_lead(struct peer *p, void *arg)
{
    const struct kp_led *led = arg;
    for (int32_t i = 0; i < KC_MIN(p->n_leads, 64); i++) {
        if (kc_uuid_eq(&p->leads[i].p.topic_id, &led->topic_id) &&
            p->leads[i].p.partition == led->partition && p->leads[i].epoch == led->epoch) {
            return true;
        }
    }
    return false;
}

/* The API server takes its time with the image: brokers agree nevertheless. */
static void brokers_hear_of_new_leaders_before_any_image(void)
{
    begin();
    struct ki_image *im = rig_image(&rig);
    const struct ki_topic *t = ki_topic_by_name(im, KC_STR_LIT("__consumer_offsets"));
    struct kp_led led = {t->id, 7, 5};
    ki_image_unref(im);
    atomic_store(&rig.flaky.refuse, INT32_MAX); /* from here on no image is written */
    peers[0].led[peers[0].n_led++] = led;
    peer_status(&peers[0]);
    KT_TRUE(peer_await(&peers[1], heard_of_lead, &led));
    const struct kp_lead *l = &peers[1].leads[(peers[1].n_leads - 1) % 64];
    KT_EQ(l->broker, 0);
    KT_TRUE(kc_uuid_eq(&l->incarnation, &peers[0].incarnation));
    KT_EQ(peers[0].n_leads, 0); /* who leads it knows */
    /* A stream that begins now is told what no image says yet. */
    peers[1].n_leads = 0;
    KT_TRUE(peer_dial(&peers[1], &rig, "secret"));
    peer_status(&peers[1]);
    KT_TRUE(peer_await(&peers[1], heard_of_lead, &led));
    atomic_store(&rig.flaky.refuse, 0);
    end();
}

KT_MAIN("leads", KT(brokers_hear_of_new_leaders_before_any_image))
