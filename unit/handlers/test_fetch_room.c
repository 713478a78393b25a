/* Fetch under a byte limit, of partitions that different loops own. */
#include "fx.h"

static struct hx h;

enum { LOOPS = 2, PARTS = 8, BATCHES = 4, SIZE = 10000, BATCH = SIZE + 100 };

static struct hx_client client[LOOPS]; /* connections are given to the loops in turn */
static int32_t of_loop[LOOPS][PARTS]; /* partitions, by owner */
static int32_t n_of_loop[LOOPS];

static void up(void)
{
    hx_up_engine(&h, 1, LOOPS);
    hx_row(&h, 1);
    const struct hx_topic *t = hx_topic(&h, "t", PARTS, 1);
    hx_publish(&h);
    memset(n_of_loop, 0, sizeof(n_of_loop));
    for (int32_t i = 0; i < LOOPS; i++) {
        hx_dial(&h, &client[i], 0);
    }
    for (int32_t p = 0; p < PARTS; p++) {
        int32_t l = kd_loop_of(h.app.data, &t->id, p) == kd_loop(h.app.data, 0) ? 0 : 1;
        of_loop[l][n_of_loop[l]++] = p;
        hx_open_part(&h, t, p);
    }
    KT_REQUIRE(n_of_loop[0] >= 2 && n_of_loop[1] >= 2);
}

static void fill_all(void)
{
    for (int32_t p = 0; p < PARTS; p++) {
        fx_produce(&client[0], &h.topics[0], p, BATCHES, SIZE);
    }
}

static void down(void)
{
    for (int32_t p = 0; p < PARTS; p++) {
        hx_close_part(&h, &h.topics[0], p, -1);
    }
    for (int32_t i = 1; i < LOOPS; i++) {
        hx_hang_up(&client[i]);
    }
    hx_end(&h, &client[0]);
}

static int64_t got(const struct kw_fetch_response *r, int32_t partition)
{
    const struct kw_fetch_response_partition_data *p = fx_find(r, &h.topics[0], partition);
    KT_REQUIRE(p != NULL);
    KT_EQ(p->error_code, 0);
    return p->records.len;
}

/* A client that rotates its partitions is fair to them: whoever owns the first one, and whichever loop
 * the connection is on. */
static void the_first_of_the_request_is_read_first_whichever_loop_owns_it(void)
{
    up();
    fill_all();
    for (int round = 0; round < 20; round++) {
        for (int32_t first = 0; first < LOOPS; first++) {
            for (int32_t on = 0; on < LOOPS; on++) {
                int32_t a = of_loop[first][0], b = of_loop[1 - first][0];
                struct fx_ask ask = fx_plain;
                ask.max_bytes = BATCH;
                fx_add(&ask, &h.topics[0], a, 0);
                fx_add(&ask, &h.topics[0], b, 0);
                const struct kw_fetch_response *r = fx_fetch(&client[on], &ask);
                KT_TRUE(got(r, a) > SIZE);
                KT_EQ(got(r, b), 0);
            }
        }
    }
    down();
}

/* Room for half of it: the first half of the request gets it, whatever is how fast. */
static void room_is_given_out_in_order(void)
{
    up();
    fill_all();
    for (int32_t turn = 0; turn < PARTS; turn++) {
        for (int32_t on = 0; on < LOOPS; on++) {
            struct fx_ask ask = fx_plain;
            ask.max_bytes = PARTS / 2 * BATCH;
            for (int32_t i = 0; i < PARTS; i++) {
                fx_add(&ask, &h.topics[0], (turn + i) % PARTS, 0);
                ask.want[i].max_bytes = BATCH;
            }
            const struct kw_fetch_response *r = fx_fetch(&client[on], &ask);
            for (int32_t i = 0; i < PARTS; i++) {
                int64_t len = got(r, (turn + i) % PARTS);
                KT_TRUE(i < PARTS / 2 ? len > SIZE : len == 0);
            }
        }
    }
    down();
}

/* Most partitions have nothing, and each could take all the room: those behind get what is not used. */
static void what_the_ones_in_front_leave_is_for_the_ones_behind(void)
{
    up();
    for (int32_t l = 0; l < LOOPS; l++) {
        fx_produce(&client[0], &h.topics[0], of_loop[l][n_of_loop[l] - 1], BATCHES, SIZE);
    }
    for (int32_t on = 0; on < LOOPS; on++) {
        struct fx_ask ask = fx_plain;
        ask.wait_ms = 60000;
        ask.min_bytes = 2 * BATCHES * SIZE; /* it would wait if it did not take all there is */
        for (int32_t p = 0; p < PARTS; p++) {
            fx_add(&ask, &h.topics[0], p, 0);
        }
        const struct kw_fetch_response *r = fx_fetch(&client[on], &ask);
        for (int32_t l = 0; l < LOOPS; l++) {
            KT_TRUE(got(r, of_loop[l][n_of_loop[l] - 1]) > BATCHES * SIZE);
        }
    }
    down();
}

/* Nobody overtakes: one that may take more than is left at first comes before those behind it. */
static void one_that_waits_for_room_is_not_overtaken(void)
{
    up();
    for (int32_t l = 0; l < LOOPS; l++) {
        fx_produce(&client[0], &h.topics[0], of_loop[l][1], BATCHES, SIZE);
    }
    for (int32_t l = 0; l < LOOPS; l++) {
        struct fx_ask ask = fx_plain;
        ask.max_bytes = 2 * BATCH;
        fx_add(&ask, &h.topics[0], of_loop[0][0], 0); /* has nothing */
        ask.want[0].max_bytes = BATCH;
        fx_add(&ask, &h.topics[0], of_loop[l][1], 0);
        fx_add(&ask, &h.topics[0], of_loop[1 - l][1], 0);
        ask.want[2].max_bytes = BATCH;
        const struct kw_fetch_response *r = fx_fetch(&client[0], &ask);
        KT_TRUE(got(r, of_loop[l][1]) > 2 * SIZE);
        KT_EQ(got(r, of_loop[1 - l][1]), 0);
    }
    down();
}

/* More is there than there is room for: no reason to wait for min_bytes. */
static void an_answer_that_can_hold_no_more_does_not_wait(void)
{
    up();
    fill_all();
    struct fx_ask ask = fx_plain;
    ask.wait_ms = 60000;
    ask.max_bytes = ask.min_bytes = 3 * SIZE + SIZE / 2;
    for (int32_t p = 0; p < PARTS; p++) {
        fx_add(&ask, &h.topics[0], p, 0);
    }
    int64_t total = 0;
    const struct kw_fetch_response *r = fx_fetch(&client[0], &ask);
    for (int32_t p = 0; p < PARTS; p++) {
        total += got(r, p);
    }
    KT_TRUE(total > 3 * SIZE && total <= ask.max_bytes);
    down();
}

/* KIP-74, also for the partition whose batches are larger than its own limit: it is the first with
 * records, so it gets one, and the others get no more than what that leaves. */
static void the_first_with_records_gets_a_batch_that_is_larger_than_its_limit(void)
{
    up();
    for (int32_t l = 0; l < LOOPS; l++) {
        for (int32_t k = 0; k < LOOPS; k++) {
            int32_t empty = of_loop[l][0], big = of_loop[k][1];
            if (l == 0) {
                fx_produce(&client[0], &h.topics[0], big, 2, 50000);
            }
            int32_t small = of_loop[1 - k][1];
            if (l == 0 && k == 0) {
                fx_produce(&client[0], &h.topics[0], small, 2, 50000);
            }
            struct fx_ask ask = fx_plain;
            ask.max_bytes = 60000;
            fx_add(&ask, &h.topics[0], empty, 0);
            fx_add(&ask, &h.topics[0], big, 0);
            ask.want[1].max_bytes = 1000;
            fx_add(&ask, &h.topics[0], small, 0);
            const struct kw_fetch_response *r = fx_fetch(&client[0], &ask);
            KT_EQ(got(r, empty), 0);
            KT_TRUE(got(r, big) > 50000);
            KT_EQ(got(r, small), 0);
        }
    }
    down();
}

KT_MAIN("fetch_room", KT(the_first_of_the_request_is_read_first_whichever_loop_owns_it),
        KT(room_is_given_out_in_order), KT(what_the_ones_in_front_leave_is_for_the_ones_behind),
        KT(one_that_waits_for_room_is_not_overtaken),
        KT(an_answer_that_can_hold_no_more_does_not_wait),
        KT(the_first_with_records_gets_a_batch_that_is_larger_than_its_limit))
