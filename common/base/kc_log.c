#include "base/kc_log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/kc_clock.h"
#include "base/kc_str.h"

static _Atomic int min_level = KC_INFO;
static const char *const names[] = {"debug", "info", "warn", "error"};

void kc_log_set_level(enum kc_level level)
{
    atomic_store(&min_level, (int)level);
}

int kc_log_parse_level(struct kc_str s, enum kc_level *ret)
{
    for (size_t i = 0; i < KC_ARRAY_LEN(names); i++) {
        if (kc_str_eqz(s, names[i])) {
            *ret = (enum kc_level)i;
            return 0;
        }
    }
    return -22;
}

void kc_log(enum kc_level level, const char *sub, const char *fmt, ...)
{
    if ((int)level < atomic_load_explicit(&min_level, memory_order_relaxed)) {
        return;
    }
    char line[1024], ts[32];
    int64_t now = kc_wall_ms();
    kc_rfc3339(now, false, ts);
    ts[strlen(ts) - 1] = '\0';
    int n = snprintf(line, sizeof(line), "ts=%s.%03dZ level=%s sub=%s ", ts, (int)(now % 1000),
                     names[level], sub);
    va_list ap;
    va_start(ap, fmt);
    int m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
    va_end(ap);
    size_t len = (size_t)n + KC_MIN((size_t)KC_MAX(m, 0), sizeof(line) - (size_t)n - 2);
    line[len++] = '\n';
    ssize_t w = write(STDERR_FILENO, line, len);
    (void)w; /* nowhere to report a failure of the log itself */
}

const char *kc_log_str(struct kc_str s, struct kc_log_buf *out)
{
    size_t o = 0;
    out->s[o++] = '"';
    for (int32_t i = 0; i < s.len && o < 256; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (c == '"' || c == '\\') {
            out->s[o++] = '\\';
            out->s[o++] = (char)c;
        } else if (c < 0x20 || c >= 0x7f) {
            o += (size_t)snprintf(out->s + o, sizeof(out->s) - o, "\\x%02x", c);
        } else {
            out->s[o++] = (char)c;
        }
    }
    out->s[o++] = '"';
    out->s[o] = '\0';
    return out->s;
}
