/* load_main.c - options and modes of kaas-load. */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/kc_base.h"
#include "load.h"

static const char usage[] =
    "usage: kaas-load MODE [--OPTION VALUE]...     one JSON line\n"
    "\n"
    "  produce  until --bytes or --secs; --rate MB/s: open loop, latency from the time it was due\n"
    "  fetch    reads every partition from its start, --repeat times or for --secs; --crc checks "
    "each batch;\n"
    "           --drop leaves the bytes in the kernel (give the --batch and --rec they were made "
    "with)\n"
    "  e2e      --rate records a second, one a request, from the time it was due until it is read\n"
    "  idle     --n connections, ApiVersions on each, then --hold seconds of silence\n"
    "  probe    one produce at a time for --secs: the longest time between two that were "
    "acknowledged\n"
    "  ready    GET /readyz of the health port --b each --gap ms for --secs\n"
    "  first    until one produce is acknowledged: seconds since --t0 (of the epoch)\n"
    "  create   TOPIC-0 to TOPIC-(n-1) of --p partitions, --per a request, --config K=V; until all "
    "are led\n"
    "  led      until all of those are led\n"
    "  delete   deletes them\n"
    "  leader   the leader of each partition\n"
    "\n"
    "  -- b HOST:PORT[,...]  topic T  pid P[,P] (brokers whose CPU and memory are counted)\n"
    "     conns inflight acks batch rec bytes secs rate warmup ppr (partitions a request)\n"
    "     parts (only the first N) pmax maxbytes maxwait minbytes repeat n p rf per hold t0 gap "
    "timeout (ms)\n"
    "     sizes may end in k, m or g\n";

void ld_fail(const char *format, ...)
{
    va_list args;
    fputs("kaas-load: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

void ld_refused(const char *what, int kafka_error)
{
    fprintf(stderr, "kaas-load: %s: error %d\n", what, kafka_error);
    exit(2);
}

enum kind { TEXT, SIZE, REAL, FLAG };

struct option {
    const char *name;
    enum kind kind;
    size_t at;
    double min, max;
};

#define AT(field) offsetof(struct ld_opts, field)
static const struct option options[] = {
    {"b", TEXT, AT(bootstrap), 0, 0},
    {"topic", TEXT, AT(topic), 0, 0},
    {"pid", TEXT, AT(pids), 0, 0},
    {"crc", FLAG, AT(crc), 0, 0},
    {"drop", FLAG, AT(drop), 0, 0},
    {"conns", SIZE, AT(conns), 1, 10000},
    {"inflight", SIZE, AT(inflight), 1, 1 << 20},
    {"acks", SIZE, AT(acks), -1, 1},
    {"ppr", SIZE, AT(per_request), 1, 64},
    {"parts", SIZE, AT(parts), 0, LD_PARTS},
    {"repeat", SIZE, AT(repeat), 1, 1e9},
    {"n", SIZE, AT(n), 1, 1e6},
    {"p", SIZE, AT(p), 1, LD_PARTS},
    {"rf", SIZE, AT(rf), -1, LD_BROKERS},
    {"per", SIZE, AT(per), 1, 1e5},
    {"batch", SIZE, AT(batch), 1, 64 << 20},
    {"rec", SIZE, AT(rec), 8, 32 << 20},
    {"bytes", SIZE, AT(bytes), 0, 1e15},
    {"pmax", SIZE, AT(part_max), 1, 128 << 20},
    {"maxbytes", SIZE, AT(max_bytes), 1, 128 << 20},
    {"maxwait", SIZE, AT(max_wait_ms), 0, 1e6},
    {"minbytes", SIZE, AT(min_bytes), 0, 128 << 20},
    {"gap", SIZE, AT(gap_ms), 1, 1e6},
    {"timeout", SIZE, AT(timeout_ms), 1, 1e6},
    {"secs", REAL, AT(secs), 0, 1e6},
    {"rate", REAL, AT(rate), 0, 1e9},
    {"hold", REAL, AT(hold), 0, 1e6},
    {"t0", REAL, AT(t0), 0, 1e12},
    {"warmup", REAL, AT(warmup), 0, 1e6},
};

static double number(const struct option *opt, const char *text)
{
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (opt->kind == SIZE && *end && !end[1]) {
        double unit = *end == 'k' ? 1 << 10 : *end == 'm' ? 1 << 20 : *end == 'g' ? 1 << 30 : 0;
        v *= unit;
        end += unit > 0;
    }
    if (end == text || *end || errno || !(v >= opt->min && v <= opt->max)) {
        ld_fail("--%s %s: not a number from %.0f to %.0f", opt->name, text, opt->min, opt->max);
    }
    return v;
}

static const struct option *find(const char *arg)
{
    for (size_t i = 0; i < KC_ARRAY_LEN(options); i++) {
        if (!strncmp(arg, "--", 2) && !strcmp(arg + 2, options[i].name)) {
            return &options[i];
        }
    }
    ld_fail("%s: no such option", arg);
}

static void parse(struct ld_opts *o, int argc, char **argv)
{
    o->mode = argv[1];
    for (int i = 2; i < argc; i++) {
        bool config = !strcmp(argv[i], "--config");
        const struct option *opt = config ? NULL : find(argv[i]);
        if (opt && opt->kind == FLAG) {
            *(bool *)((char *)o + opt->at) = true;
            continue;
        }
        if (++i == argc) {
            ld_fail("%s: its value is missing", argv[i - 1]);
        }
        if (config) {
            if (o->n_configs == LD_CONFIGS || !strchr(argv[i], '=')) {
                ld_fail("--config %s: not KEY=VALUE, or too many", argv[i]);
            }
            o->configs[o->n_configs++] = argv[i];
        } else if (opt->kind == TEXT) {
            *(const char **)((char *)o + opt->at) = argv[i];
        } else if (opt->kind == SIZE) {
            *(int64_t *)((char *)o + opt->at) = (int64_t)number(opt, argv[i]);
        } else {
            *(double *)((char *)o + opt->at) = number(opt, argv[i]);
        }
    }
}

static const struct {
    const char *name;
    void (*run)(struct ld *l);
} modes[] = {
    {"produce", ld_mode_produce}, {"fetch", ld_mode_fetch},   {"e2e", ld_mode_e2e},
    {"idle", ld_mode_idle},       {"probe", ld_mode_probe},   {"ready", ld_mode_ready},
    {"first", ld_mode_first},     {"create", ld_mode_create}, {"led", ld_mode_led},
    {"delete", ld_mode_delete},   {"leader", ld_mode_leader},
};

static void more_files(void)
{
    struct rlimit r;
    if (!getrlimit(RLIMIT_NOFILE, &r)) {
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
    }
}

int main(int argc, char **argv)
{
    static struct ld l = {.o = {.bootstrap = "127.0.0.1:9092",
                                .topic = "load",
                                .conns = 1,
                                .inflight = 4,
                                .acks = -1,
                                .per_request = 1,
                                .repeat = 1,
                                .n = 1,
                                .p = 1,
                                .rf = 1,
                                .per = 50,
                                .batch = 64 << 10,
                                .rec = 1024,
                                .part_max = 1 << 20,
                                .max_bytes = 50 << 20,
                                .max_wait_ms = 500,
                                .min_bytes = 1,
                                .gap_ms = 50,
                                .timeout_ms = 1000,
                                .hold = 5,
                                .warmup = 1}};
    if (argc < 2) {
        fputs(usage, stderr);
        return 2;
    }
    parse(&l.o, argc, argv);
    signal(SIGPIPE, SIG_IGN);
    more_files();
    l.epoll = epoll_create1(EPOLL_CLOEXEC);
    for (size_t i = 0; i < KC_ARRAY_LEN(modes); i++) {
        if (!strcmp(l.o.mode, modes[i].name)) {
            modes[i].run(&l);
            return 0;
        }
    }
    fputs(usage, stderr);
    return 2;
}
