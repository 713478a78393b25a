#include "app/kb_limits.h"

int32_t kb_connection_cap(int32_t wanted, int64_t file_limit)
{
    int64_t half = KC_MAX(file_limit / 2, (int64_t)1);
    return half < wanted ? (int32_t)half : wanted;
}
