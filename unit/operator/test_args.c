/* The command line says what is wrong with it. */
#include "app/ko_args.h"
#include "kt.h"

static int parse(struct ko_args *a, struct kc_err *err, int n, const char *const *words)
{
    char *argv[16] = {(char *)(uintptr_t) "kaas-operator"};
    for (int i = 0; i < n; i++) {
        argv[i + 1] = (char *)(uintptr_t)words[i];
    }
    return ko_args_parse(n + 1, argv, a, err);
}
#define PARSE(a, err, ...)                                                                         \
    parse(a, err, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)),                   \
          (const char *const[]){__VA_ARGS__})

static void commands_and_their_defaults(void)
{
    struct ko_args a;
    struct kc_err err;
    KT_EQ(PARSE(&a, &err, "local", "-f", "c.yaml", "--dir", "d"), 0);
    KT_EQ(a.command, KO_CMD_LOCAL);
    KT_EQ(a.port, 9092);
    KT_STR(a.file, "c.yaml");
    KT_EQ(PARSE(&a, &err, "local", "status", "--dir", "d"), 0);
    KT_EQ(a.command, KO_CMD_STATUS);
    KT_EQ(PARSE(&a, &err, "local", "wait", "--dir", "d", "--timeout", "5"), 0);
    KT_EQ(a.timeout_ms, 5000);
    KT_EQ(PARSE(&a, &err, "kubernetes", "--heartbeat-host=h", "--namespace="), 0);
    KT_EQ(a.heartbeat_port, 7070);
    KT_TRUE(a.ns == NULL);
    KT_EQ(PARSE(&a, &err, "--version"), 0);
    KT_EQ(a.command, KO_CMD_VERSION);
}

static void mistakes_are_named(void)
{
    struct ko_args a;
    struct kc_err err;
    KT_TRUE(PARSE(&a, &err, "local", "--dir", "d") < 0);
    KT_TRUE(strstr(err.msg, "-f FILE") != NULL);
    KT_TRUE(PARSE(&a, &err, "local", "-f", "c") < 0);
    KT_TRUE(strstr(err.msg, "--dir") != NULL);
    KT_TRUE(PARSE(&a, &err, "kubernetes") < 0);
    KT_TRUE(strstr(err.msg, "--heartbeat-host") != NULL);
    KT_TRUE(PARSE(&a, &err, "local", "-f", "c", "--dir", "d", "--port", "0") < 0);
    KT_TRUE(strstr(err.msg, "--port") != NULL);
    KT_TRUE(PARSE(&a, &err, "fly") < 0);
    KT_TRUE(strstr(err.msg, "fly") != NULL);
    KT_TRUE(PARSE(&a, &err, "local", "status", "now", "--dir", "d") < 0);
    KT_TRUE(PARSE(&a, &err, "--log-level", "loud") < 0);
}

KT_MAIN("operator/args", KT(commands_and_their_defaults), KT(mistakes_are_named))
