/* load_ready.c - asks a health port again and again whether its broker is ready: how long that takes. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

/* One GET /readyz on a connection of its own; true: 200. */
static bool ask(const struct ld *l)
{
    static const char get[] = "GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    char buf[4096], head[16] = "";
    size_t got = 0;
    int fd = ld_bootstrap(l, 0, l->o.timeout_ms);
    if (fd < 0) {
        return false;
    }
    ssize_t k = send(fd, get, sizeof(get) - 1, MSG_NOSIGNAL);
    while (k > 0 && (k = recv(fd, buf, sizeof(buf), 0)) > 0) {
        for (ssize_t i = 0; i < k && got < sizeof(head) - 1; i++) {
            head[got++] = buf[i];
        }
    }
    close(fd);
    return k == 0 && !strncmp(head, "HTTP/1.1 200", 12);
}

void ld_mode_ready(struct ld *l)
{
    static struct ld_hist took;
    struct ld_sums sums = {0};
    int64_t bad = 0, gap = l->o.gap_ms * 1000000;
    ld_meter_start(&l->meter, &l->o);
    int64_t due = l->meter.start_ns, stop = due + (int64_t)(l->o.secs * 1e9);
    for (; due < stop; due += gap) {
        int64_t now = ld_now_ns();
        if (due > now) {
            struct timespec t = {.tv_sec = (due - now) / 1000000000,
                                 .tv_nsec = (due - now) % 1000000000};
            nanosleep(&t, NULL);
        }
        bad += !ask(l);
        ld_hist_add(&took, ld_now_ns() - due);
        sums.reqs++;
    }
    ld_meter_print(&l->meter, l->o.mode, ld_now_ns(), &sums);
    printf(",\"bad\":%ld", (long)bad);
    ld_hist_print("ready_us", &took);
    puts("}");
}
