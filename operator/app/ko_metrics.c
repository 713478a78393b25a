#include "app/ko_metrics.h"

#include <inttypes.h>

#include "base/kc_out.h"
#include "reconcile/ko_gauges.h"

static void process(const struct ko_metrics *m, struct kc_out *o)
{
#define M(kind, name, help, value) kc_out_value(o, #kind, name, help, (int64_t)(value));
#include "app/ko_metrics.def"
#undef M
}

/* One family: a series a cluster, or one a state of its brokers. */
static void family(const struct ko_gauges *g, struct kc_out *o, const char *name, const char *label,
                   enum ko_gauge which)
{
    struct ko_gauge_sample s;
    for (int i = 0; i < KO_GAUGE_SLOTS; i++) {
        if (ko_gauges_read(g, i, &s)) { /* names of Kubernetes objects need no escapes */
            kc_out_printf(o, "%s{cluster=\"%s\"%s} %" PRId64 "\n", name, s.cluster, label,
                          s.values[which]);
        }
    }
}

static void clusters(const struct ko_gauges *g, struct kc_out *o)
{
    static const struct {
        enum ko_gauge which;
        const char *name, *help;
    } families[] = {
        {KO_G_PARTITIONS, "kaas_cluster_partitions", "Data partitions of a cluster."},
        {KO_G_OFFLINE, "kaas_cluster_partitions_offline",
         "Partitions that no broker can lead now."},
        {KO_G_LEADERLESS, "kaas_cluster_partitions_leaderless",
         "Partitions assigned, and not led yet; moves left out."},
        {KO_G_AWAY, "kaas_cluster_partitions_away", "Partitions led elsewhere than at home."},
        {KO_G_TERM, "kaas_cluster_image_term", "Term of the image published last."},
        {KO_G_GENERATION, "kaas_cluster_image_generation",
         "Generation of the image published last."},
    };
    kc_out_metric(o, "gauge", "kaas_cluster_brokers", "Brokers of a cluster, by state.");
    family(g, o, "kaas_cluster_brokers", ",state=\"serving\"", KO_G_SERVING);
    family(g, o, "kaas_cluster_brokers", ",state=\"fenced\"", KO_G_FENCED);
    family(g, o, "kaas_cluster_brokers", ",state=\"draining\"", KO_G_DRAINING);
    for (size_t i = 0; i < KC_ARRAY_LEN(families); i++) {
        kc_out_metric(o, "gauge", families[i].name, families[i].help);
        family(g, o, families[i].name, "", families[i].which);
    }
}

size_t ko_metrics_write(const struct ko_metrics *m, char *body, size_t cap)
{
    struct kc_out o = {.body = body, .cap = cap};
    kc_out_metric(&o, "gauge", "kaas_operator_build_info",
                  "The version of this operator; always 1.");
    kc_out_printf(&o, "kaas_operator_build_info{version=\"" KO_VERSION "\"} 1\n");
    process(m, &o);
    if (m->gauges) {
        clusters(m->gauges, &o);
    }
    return o.len;
}
