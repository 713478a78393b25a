#include "local/lo_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/kc_mem.h"

struct lo_child {
    uv_poll_t poll; /* on the pidfd: readable when the process has ended */
    int pidfd;
    pid_t pid;
    void (*exited)(void *ctx, struct lo_child *c, int status);
    void *ctx;
};

/* Between fork and exec: only calls that are safe in the child of a threaded process. */
KC_NORETURN static void become(const struct lo_child_opts *o, pid_t parent, int log_fd)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* A group of its own: Ctrl-C at a terminal must not reach brokers, the operator drains them. */
    setpgid(0, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent) {
        _exit(127);
    }
    int null_fd = open("/dev/null", O_RDONLY);
    if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0 || dup2(log_fd, STDOUT_FILENO) < 0 ||
        dup2(log_fd, STDERR_FILENO) < 0) {
        _exit(127);
    }
    execve(o->argv[0], (char *const *)(uintptr_t)o->argv, (char *const *)(uintptr_t)o->env);
    _exit(127);
}

static void on_closed(uv_handle_t *h)
{
    kc_free(h->data);
}

static void on_end(uv_poll_t *h, int status, int events)
{
    struct lo_child *c = h->data;
    int wstatus = 0;
    (void)status;
    (void)events;
    if (waitpid(c->pid, &wstatus, WNOHANG) != c->pid) {
        return;
    }
    uv_poll_stop(h);
    close(c->pidfd);
    c->pidfd = -1;
    c->pid = 0;
    c->exited(c->ctx, c, wstatus);
}

int lo_child_start(const struct lo_child_opts *o, struct lo_child **ret, struct kc_err *err)
{
    int log_fd = open(o->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_fd < 0) {
        return kc_fail(err, -errno, "%s: %s", o->log_path, kc_strerror(-errno));
    }
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        become(o, parent, log_fd);
    }
    int rc = pid < 0 ? -errno : 0;
    close(log_fd);
    if (rc) {
        return kc_fail(err, rc, "fork: %s", kc_strerror(rc));
    }
    struct lo_child *c = kc_zalloc(sizeof(*c));
    c->pid = pid;
    c->exited = o->exited;
    c->ctx = o->ctx;
    c->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    rc = c->pidfd < 0 ? -errno : uv_poll_init(&o->loop->uv, &c->poll, c->pidfd);
    if (rc) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        kc_free(c);
        return kc_fail(err, rc, "cannot watch process %d: %s", (int)pid, kc_strerror(rc));
    }
    c->poll.data = c;
    uv_poll_start(&c->poll, UV_READABLE, on_end);
    *ret = c;
    return 0;
}

pid_t lo_child_pid(const struct lo_child *c)
{
    return c->pid;
}

void lo_child_signal(struct lo_child *c, int sig)
{
    if (c->pid > 0) {
        kill(c->pid, sig); /* not reaped yet, so the number is still its own */
    }
}

static void free_it(void *ctx, struct lo_child *c, int status)
{
    (void)ctx;
    (void)status;
    lo_child_free(c);
}

void lo_child_kill(struct lo_child *c)
{
    lo_child_signal(c, SIGKILL);
    c->exited = free_it;
}

void lo_child_free(struct lo_child *c)
{
    if (c) {
        KC_ASSERT(c->pid == 0);
        uv_close((uv_handle_t *)&c->poll, on_closed);
    }
}
