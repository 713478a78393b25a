/* Events are bounded, and what is bounded first are details (ko_events.h). */
#include "base/kc_json.h"
#include "op_bed.h"
#include "reconcile/ko_events.h"

static struct bed b;

static int32_t written(const char *reason)
{
    size_t i;
    json_t *e;
    int32_t n = 0;
    bed_settle(&b);
    bed_list(&b, KO_EVENT);
    json_array_foreach(json_object_get(b.doc, "items"), i, e)
    {
        n += strcmp(kc_json_str(e, "reason", ""), reason) == 0;
    }
    return n;
}

static void a_stream_of_details_costs_no_transition(void)
{
    char text[32];
    bed_start(&b);
    json_t *about = op_cluster_doc("");
    struct ko_events *e = ko_events_new(b.store, "test");
    for (int i = 0; i < 200; i++) {
        snprintf(text, sizeof(text), "detail %d", i);
        KT_EQ(ko_event_emit(e, about, KO_EVENT_DETAIL, "Moved", text, 1000), i < 25);
    }
    for (int i = 0; i < 100; i++) {
        snprintf(text, sizeof(text), "transition %d", i);
        KT_EQ(ko_event_emit(e, about, KO_EVENT_NORMAL, "Changed", text, 1000), i < 25);
    }
    KT_EQ(written("Moved"), 25);
    KT_EQ(written("Changed"), 25);
    KT_FALSE(ko_event_emit(e, about, KO_EVENT_WARNING, "Changed", "too many", 1999));
    KT_TRUE(ko_event_emit(e, about, KO_EVENT_WARNING, "Changed", "a second later", 2000));
    ko_events_free(e);
    json_decref(about);
    bed_stop(&b);
}

KT_MAIN("events", KT(a_stream_of_details_costs_no_transition))
