/*
 * A server that hangs up on everybody, and counts them.
 *
 *     tool_turn_away PORT MS
 *
 * Listens on that port of this machine for so long and prints how many came. Takes a port that
 * another server has just let go of, where clients may still be on their way.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int listen_at(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(fd, 512) != 0) {
        fprintf(stderr, "port %d: %s\n", port, strerror(errno));
        exit(70);
    }
    return fd;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 64;
    struct pollfd p = {.fd = listen_at(atoi(argv[1])), .events = POLLIN};
    unsigned came = 0;
    for (long end = now_ms() + atol(argv[2]), left; (left = end - now_ms()) > 0;) {
        if (poll(&p, 1, (int)left) <= 0)
            continue;
        int fd = accept(p.fd, NULL, NULL);
        if (fd < 0)
            continue;
        close(fd);
        came++;
    }
    printf("%u\n", came);
    return 0;
}
