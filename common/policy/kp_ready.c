#include "policy/kp_ready.h"

uint32_t kp_serving_terms(const struct kp_serving_facts *f, int64_t now_ms)
{
    if (!f->latched) {
        if (!f->image_lists_self) {
            return KP_UNREADY_IMAGE;
        }
        return f->boot_left > 0 ? KP_UNREADY_TAKEOVER : 0;
    }
    bool late = f->unopened_ms >= 0 && now_ms - f->unopened_ms > KP_UNOPENED_MS;
    return late ? KP_UNREADY_UNOPENED : 0;
}

uint32_t kp_ready_terms(const struct kp_ready_facts *f)
{
    uint32_t terms = f->listeners_bound ? 0u : KP_UNREADY_LISTENERS;
    terms |= f->main_alive ? 0u : KP_UNREADY_MAIN;
    terms |= f->storage_stalled ? KP_UNREADY_STORAGE : 0u;
    terms |= f->clustered && !f->serving ? KP_UNREADY_SERVING : 0u;
    return terms;
}
