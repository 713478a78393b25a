#include "app/kb_limits.h"

int32_t kb_connection_cap(int64_t file_limit)
{
    int64_t half = KC_MAX(file_limit / 2, (int64_t)1);
    return (int32_t)KC_MIN(half, (int64_t)INT32_MAX);
}
