/* What brokers say again and again is not written again: the image and its root stand still. */
#include "base/kc_clock.h"
#include "kt.h"
#include "rig.h"

enum { STATUSES = 1000, SEEN_EVERY_MS = 30000 };

static struct rig rig;
static struct peer peer;

static bool is_told(const struct ki_image *im, void *arg)
{
    (void)arg;
    return ki_topic_by_name(im, KC_STR_LIT("__consumer_offsets")) &&
           ki_topic_by_name(im, KC_STR_LIT("__transaction_state")) && im->n_rows == 1 &&
           im->rows[0].state == KP_SERVING;
}

/* Writes that n statuses, each answered before the next, brought about. */
static int writes_of(int n)
{
    int before = atomic_load(&rig.flaky.writes);
    for (int i = 0; i < n; i++) {
        peer_status(&peer);
        KT_TRUE(peer_await(&peer, peer_all_answered, NULL));
    }
    return atomic_load(&rig.flaky.writes) - before;
}

static void a_thousand_statuses_without_news_write_nothing(void)
{
    rig_begin(&rig, 1);
    peer_init(&peer, 0);
    peer.serving = true;
    int64_t since = kc_mono_ms();
    peer_begin(&peer, &rig);
    KT_TRUE(atomic_load(&rig.flaky.writes) > 0);
    KT_TRUE(rig_await_image(&rig, is_told, NULL)); /* all that its coming brings about */
    /* When it was last heard of may be written, every 30 s (R13). */
    KT_TRUE(writes_of(STATUSES) <= (kc_mono_ms() - since) / SEEN_EVERY_MS);
    peer.draining = true;
    while (writes_of(1) == 0 && kc_mono_ms() - since < 60000) {
        /* news are written */
    }
    KT_TRUE(kc_mono_ms() - since < 60000);
    peer_fini(&peer);
    rig_stop(&rig);
}

KT_MAIN("idle", KT(a_thousand_statuses_without_news_write_nothing))
