/* Descriptors: connections leave half of them to the log. */
#include "kt.h"

#include "app/kb_limits.h"

static void connections_take_at_most_half_of_the_descriptors(void)
{
    KT_EQ(kb_connection_cap(INT64_MAX), INT32_MAX);
    KT_EQ(kb_connection_cap(20001), 10000);
    KT_EQ(kb_connection_cap(1024), 512);
    KT_EQ(kb_connection_cap(0), 1);
}

KT_MAIN("limits", KT(connections_take_at_most_half_of_the_descriptors))
