/* The sandbox process of every pod: reaps adopted children, exits on SIGTERM and SIGINT. Linked
 * static, so that its image holds one file only. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void stop(int sig)
{
    (void)sig;
    _exit(0);
}

static void reap(int sig)
{
    (void)sig;
    while (waitpid(-1, 0, WNOHANG) > 0) {
    }
}

int main(void)
{
    struct sigaction sa = {.sa_handler = stop};
    sigaction(SIGTERM, &sa, 0);
    sigaction(SIGINT, &sa, 0);
    sa.sa_handler = reap;
    sa.sa_flags = SA_NOCLDSTOP;
    sigaction(SIGCHLD, &sa, 0);
    for (;;) {
        pause();
    }
}
