/* kc_log.h - leveled logfmt lines on standard error.
 *
 *   kc_log(KC_INFO, "broker", "event=listening port=%d", port);
 *   → ts=2026-11-30T01:02:03.004Z level=info sub=broker event=listening port=9092
 *
 * Fields are key=value; strings from outside go through kc_log_str, which escapes control
 * characters and cuts at 256 bytes. Secrets and record bytes are never logged. Any thread; one
 * write(2) a line. */
#ifndef KC_LOG_H
#define KC_LOG_H

#include "base/kc_base.h"

enum kc_level { KC_DEBUG, KC_INFO, KC_WARN, KC_ERROR };

void kc_log_set_level(enum kc_level level);
int kc_log_parse_level(struct kc_str s, enum kc_level *ret) KC_MUST_CHECK;
void kc_log(enum kc_level level, const char *sub, const char *fmt, ...) KC_PRINTF(3, 4);

struct kc_log_buf {
    char s[272];
};
/* Quotes and escapes an outside string for a log field; returns out->s. */
const char *kc_log_str(struct kc_str s, struct kc_log_buf *out);

#endif
