/* Which pods a StatefulSet controller starts, stops and replaces. */
#include "kt.h"
#include "local/lo_plan.h"

#define UP                                                                                         \
    {                                                                                              \
        true, false, true, true, 0                                                                 \
    }
#define OLD                                                                                        \
    {                                                                                              \
        true, false, true, false, 0                                                                \
    }
#define DOWN                                                                                       \
    {                                                                                              \
        true, false, false, true, 0                                                                \
    }
#define NONE                                                                                       \
    {                                                                                              \
        false, false, false, false, 0                                                              \
    }
#define GOING                                                                                      \
    {                                                                                              \
        true, true, true, false, 0                                                                 \
    }

static void expect(struct lo_wish w, const struct lo_pod_view *pods, const char *want)
{
    enum lo_action a[4];
    char got[5] = "----";
    lo_plan(&w, pods, 4, 1000, a);
    for (int i = 0; i < 4; i++) {
        got[i] = "-+x"[a[i]];
    }
    KT_STR(got, want);
}

static void missing_ones_start_at_once(void)
{
    expect((struct lo_wish){3, 0, 0}, (struct lo_pod_view[]){NONE, NONE, NONE, NONE}, "+++-");
}

static void surplus_ones_stop_at_once(void)
{
    expect((struct lo_wish){1, 0, 0}, (struct lo_pod_view[]){UP, UP, GOING, UP}, "-x-x");
}

static void outdated_ones_go_from_the_top(void)
{
    expect((struct lo_wish){3, 0, 0}, (struct lo_pod_view[]){OLD, OLD, OLD, NONE}, "--x-");
    expect((struct lo_wish){3, 0, 0}, (struct lo_pod_view[]){OLD, OLD, GOING, NONE}, "----");
    expect((struct lo_wish){3, 0, 0}, (struct lo_pod_view[]){OLD, OLD, DOWN, NONE}, "----");
    expect((struct lo_wish){3, 0, 0}, (struct lo_pod_view[]){OLD, OLD, UP, NONE}, "-x--");
}

static void min_ready_seconds_pace_the_roll(void)
{
    struct lo_pod_view pods[] = {OLD, OLD, {true, false, true, true, 600}, NONE};
    expect((struct lo_wish){3, 0, 500}, pods, "----");
    expect((struct lo_wish){3, 0, 400}, pods, "-x--");
}

static void partition_holds_the_lower_ones(void)
{
    expect((struct lo_wish){3, 2, 0}, (struct lo_pod_view[]){OLD, OLD, UP, NONE}, "----");
    expect((struct lo_wish){3, 3, 0}, (struct lo_pod_view[]){OLD, OLD, OLD, NONE}, "----");
}

KT_MAIN("olocal/plan", KT(missing_ones_start_at_once), KT(surplus_ones_stop_at_once),
        KT(outdated_ones_go_from_the_top), KT(min_ready_seconds_pace_the_roll),
        KT(partition_holds_the_lower_ones))
