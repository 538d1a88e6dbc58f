/*
 * A client that closes its side of the connection with its request, and waits for the answer.
 *
 *     tool_half_close PORT COUNT <REQUEST
 *
 * Sends what it reads to that port of this machine, COUNT times, on a connection each; request and
 * end come in one packet. Prints the first line of each answer once the server has closed, too.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "tool.h"

static void ask(int port, semel_str request)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    char answer[65536];
    size_t n = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on) != 0 ||
        connect(fd, (struct sockaddr *)&a, sizeof a) != 0 ||
        send(fd, request.p, request.n, 0) != (ssize_t)request.n || shutdown(fd, SHUT_WR) != 0)
        die("port %d: %s", port, strerror(errno));
    for (ssize_t got; (got = recv(fd, answer + n, sizeof answer - n, 0)) > 0;)
        n += (size_t)got;
    close(fd);
    const char *end = memchr(answer, '\r', n);
    printf("%.*s\n", end == NULL ? 0 : (int)(end - answer), answer);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static char request[65536];
    if (argc != 3)
        return 64;
    size_t n = fread(request, 1, sizeof request, stdin);
    for (int i = 0; i < atoi(argv[2]); i++)
        ask(atoi(argv[1]), (semel_str){request, n});
    return 0;
}
