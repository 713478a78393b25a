#include "policy/kp_ready.h"

#include <string.h>

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

const char *kp_unready_text(uint32_t bit)
{
    switch (bit) {
    case KP_UNREADY_LISTENERS:
        return "listeners not bound";
    case KP_UNREADY_MAIN:
        return "main loop not alive";
    case KP_UNREADY_STORAGE:
        return "storage stalled";
    case KP_UNREADY_SERVING:
        return "not serving";
    case KP_UNREADY_IMAGE:
        return "no image lists this broker as alive";
    case KP_UNREADY_TAKEOVER:
        return "takeover not complete";
    case KP_UNREADY_UNOPENED:
        return "a partition is unopened for more than 10 s";
    default:
        return "";
    }
}

static void append(char *out, size_t size, size_t *len, const char *text)
{
    size_t n = KC_MIN(strlen(text), size - 1 - *len);
    memcpy(out + *len, text, n);
    *len += n;
    out[*len] = '\0';
}

void kp_ready_text(uint32_t terms, char *out, size_t size)
{
    size_t len = 0;
    if (size == 0) {
        return;
    }
    append(out, size, &len, terms ? "not ready: " : "ready");
    bool first = true;
    for (uint32_t bit = 1; bit <= KP_UNREADY_UNOPENED; bit <<= 1) {
        if (terms & bit) {
            append(out, size, &len, first ? "" : ", ");
            append(out, size, &len, kp_unready_text(bit));
            first = false;
        }
    }
}
