#include "image/ki_names.h"

#include "base/kc_str.h"

static bool allowed(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

const char *ki_topic_name_fault(struct kc_str name)
{
    if (!name.ptr || name.len <= 0) {
        return "the empty string is not allowed";
    }
    if (kc_str_eqz(name, ".") || kc_str_eqz(name, "..")) {
        return "'.' and '..' are not allowed";
    }
    if (name.len > KP_NAME_MAX) {
        return "it is longer than the max allowed length 249";
    }
    for (int32_t i = 0; i < name.len; i++) {
        if (!allowed(name.ptr[i])) {
            return "it contains one or more characters other than ASCII alphanumerics, '.', '_' "
                   "and "
                   "'-'";
        }
    }
    return NULL;
}

static char folded(char c)
{
    return c == '.' ? '_' : c;
}

bool ki_topic_names_collide(struct kc_str a, struct kc_str b)
{
    bool same = a.len == b.len;
    for (int32_t i = 0; same && i < a.len; i++) {
        same = folded(a.ptr[i]) == folded(b.ptr[i]);
    }
    return same;
}

static const char *const slot_topics[] = {
    [KP_GROUP_SLOTS] = "__consumer_offsets", [KP_TXN_SLOTS] = "__transaction_state"};

const char *ki_slot_topic_name(int32_t kind)
{
    KC_ASSERT(kind == KP_GROUP_SLOTS || kind == KP_TXN_SLOTS);
    return slot_topics[kind];
}

int32_t ki_slot_kind(struct kc_str name)
{
    return kc_str_eqz(name, slot_topics[KP_GROUP_SLOTS]) ? KP_GROUP_SLOTS
           : kc_str_eqz(name, slot_topics[KP_TXN_SLOTS]) ? KP_TXN_SLOTS
                                                         : KP_NOT_SLOTS;
}
