#include "reconcile/ko_cond.h"

#include <string.h>

#include "base/kc_clock.h"
#include "base/kc_json.h"

const json_t *ko_cond_find(const json_t *list, const char *type)
{
    size_t i;
    json_t *v;
    json_array_foreach(list, i, v)
    {
        if (strcmp(kc_json_str(v, "type", ""), type) == 0) {
            return v;
        }
    }
    return NULL;
}

const char *ko_cond_status(const json_t *doc, const char *type)
{
    return kc_json_str(ko_cond_find(kc_json_at(doc, "status.conditions"), type), "status", "");
}

void ko_cond_add(struct ko_cond_list *l, const char *type, const char *status, const char *reason,
                 const char *message)
{
    const json_t *old = ko_cond_find(l->old, type);
    const char *since = kc_json_str(old, "lastTransitionTime", NULL);
    char now[32];
    if (!since || strcmp(kc_json_str(old, "status", ""), status) != 0) {
        kc_rfc3339(kc_wall_ms(), false, now);
        since = now;
    }
    json_array_append_new(l->out, json_pack("{s:s, s:s, s:s, s:s, s:s, s:I}", "type", type,
                                            "status", status, "reason", reason, "message", message,
                                            "lastTransitionTime", since, "observedGeneration",
                                            (json_int_t)l->generation));
}
