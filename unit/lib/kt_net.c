#include "kt_net.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kt.h"

int kt_dial(uint16_t port, int patience_s)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    KT_REQUIRE(fd >= 0);
    struct timeval patience = {patience_s, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (connect(fd, (struct sockaddr *)&to, sizeof(to))) {
        close(fd);
        return -1;
    }
    return fd;
}

bool kt_send(int fd, const void *data, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = send(fd, (const char *)data + at, len - at, MSG_NOSIGNAL);
        if (n <= 0) {
            return false;
        }
        at += (size_t)n;
    }
    return true;
}

bool kt_recv(int fd, void *out, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = recv(fd, (char *)out + at, len - at, 0);
        if (n <= 0) {
            return false;
        }
        at += (size_t)n;
    }
    return true;
}
