/*
 * Many clients that have asked once and now rest on their connections.
 *
 *     idle-connections PORT COUNT
 *
 * Each sends GET /healthz to 127.0.0.1, reads the answer and keeps the connection. When all have
 * been answered it prints how many, and when its standard input ends, how many were still open. The
 * clients have several addresses of the loopback network, so that they do not run out of ports.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define ADDRESSES 8 /* 127.0.0.2 and up */
#define BURST     128
#define ANSWER_MS 10000

static const char request[] = "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";

static int dial(uint16_t port, long number)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET};
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + (uint32_t)(number % ADDRESSES));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(port);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&from, sizeof from) == 0 &&
        connect(fd, (struct sockaddr *)&to, sizeof to) == 0 &&
        write(fd, request, sizeof request - 1) == (ssize_t)(sizeof request - 1))
        return fd;
    perror("idle-connections");
    exit(1);
}

static void read_answer(int fd)
{
    char text[4096];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, ANSWER_MS) == 1 && read(fd, text, sizeof text) > 0)
        return;
    fprintf(stderr, "idle-connections: a connection was not answered\n");
    exit(1);
}

/* Whoever has been hung up on has an end of file to read. */
static bool is_open(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: idle-connections PORT COUNT\n");
        return 64;
    }
    uint16_t port = (uint16_t)strtol(argv[1], NULL, 10);
    long count = strtol(argv[2], NULL, 10), open = 0;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    int *fds = calloc((size_t)count, sizeof *fds);
    if (fds == NULL)
        return 1;
    for (long i = 0; i < count; i++) {
        fds[i] = dial(port, i);
        if (i >= BURST)
            read_answer(fds[i - BURST]);
    }
    for (long i = count > BURST ? count - BURST : 0; i < count; i++)
        read_answer(fds[i]);
    printf("%ld\n", count);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    for (long i = 0; i < count; i++)
        open += is_open(fds[i]);
    printf("%ld\n", open);
    free(fds);
    return 0;
}
