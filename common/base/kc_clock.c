#include "base/kc_clock.h"

#include <stdio.h>
#include <time.h>

int64_t kc_mono_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t kc_mono_ms(void)
{
    return kc_mono_us() / 1000;
}

int64_t kc_wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void kc_rfc3339(int64_t wall_ms, bool micro, char out[32])
{
    time_t s = (time_t)(wall_ms / 1000);
    struct tm tm;
    gmtime_r(&s, &tm);
    size_t n = strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &tm);
    if (micro) {
        snprintf(out + n, 32 - n, ".%06dZ", (int)(wall_ms % 1000) * 1000);
    } else {
        snprintf(out + n, 32 - n, "Z");
    }
}
