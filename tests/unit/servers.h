/*
 * HTTP servers for the tests of the client: the one of tests/tools/upstream.c as a child process,
 * plain or with TLS, and one that writes prepared bytes.
 */
#ifndef SM_TESTS_SERVERS_H
#define SM_TESTS_SERVERS_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

static char scratch[64]; /* a directory of this run */

static inline const char *in_scratch(const char *name)
{
    static char paths[8][128];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
    return path;
}

/* ---- the misbehaving one ---------------------------------------------------------------------*/

typedef struct upstream {
    pid_t pid;
    int port;
    char log[128];
    char base[64]; /* http://127.0.0.1:1234 */
} upstream;

static inline void upstream_start(upstream *u, const char *name, const char *certificate,
                                  const char *key)
{
    char tool[256], port_file[128], text[16] = "";
    ssize_t n = readlink("/proc/self/exe", tool, sizeof tool - 32);
    assert_true(n > 0);
    tool[n] = '\0';
    strcpy(strrchr(tool, '/'), "/tool_upstream");
    snprintf(u->log, sizeof u->log, "%s/%s.log", scratch, name);
    snprintf(port_file, sizeof port_file, "%s/%s.port", scratch, name);
    u->pid = fork();
    assert_true(u->pid >= 0);
    if (u->pid == 0) {
        if (certificate != NULL)
            execl(tool, tool, "--tls", certificate, key, port_file, u->log, NULL);
        else
            execl(tool, tool, port_file, u->log, NULL);
        _exit(127);
    }
    for (int i = 0; i < 1000 && text[0] == '\0'; i++) {
        FILE *f = fopen(port_file, "r");
        if (f == NULL || fgets(text, sizeof text, f) == NULL)
            usleep(10000);
        if (f != NULL)
            fclose(f);
    }
    u->port = atoi(text);
    assert_true(u->port > 0);
    snprintf(u->base, sizeof u->base, "%s://127.0.0.1:%d", certificate == NULL ? "http" : "https",
             u->port);
}

static inline void upstream_stop(upstream *u)
{
    if (u->pid > 0) {
        kill(u->pid, SIGKILL);
        waitpid(u->pid, NULL, 0);
    }
}

/* How often it has done its work. */
static inline size_t effects(const upstream *u)
{
    FILE *f = fopen(u->log, "r");
    size_t n = 0;
    for (int c; f != NULL && (c = fgetc(f)) != EOF;)
        n += c == '\n';
    if (f != NULL)
        fclose(f);
    return n;
}

/* A certificate for 127.0.0.1 that is its own authority. */
static inline void certificate_make(const char *name)
{
    char command[512];
    snprintf(command, sizeof command,
             "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
             "-subj /CN=%s -addext subjectAltName=IP:127.0.0.1 -keyout %s/%s.key -out %s/%s.pem "
             ">/dev/null 2>&1",
             name, scratch, name, scratch, name);
    assert_int_equal(system(command), 0);
}

/* ---- the prepared one ------------------------------------------------------------------------*/

/* Each connection gets a request read, up to the blank line, and the script written. */
typedef struct scripted {
    pthread_t thread;
    int listener, port;
    sm_str script;
    int pause_ms; /* before each byte */
    bool unasked; /* it does not wait for the request */
    bool linger;  /* the connection stays open until the client closes it */
    unsigned served;
    char base[64];
} scripted;

static inline void scripted_serve(scripted *s, int fd)
{
    char in[65536];
    size_t n = 0;
    while (!s->unasked && memmem(in, n, "\r\n\r\n", 4) == NULL) {
        ssize_t r = recv(fd, in + n, sizeof in - n, 0);
        if (r <= 0)
            return;
        n += (size_t)r;
    }
    s->served++;
    for (size_t i = 0; i < s->script.n && s->pause_ms > 0; i++) {
        usleep((useconds_t)s->pause_ms * 1000);
        if (send(fd, s->script.p + i, 1, MSG_NOSIGNAL) != 1)
            return;
    }
    if (s->pause_ms == 0 &&
        send(fd, s->script.p, s->script.n, MSG_NOSIGNAL) != (ssize_t)s->script.n)
        return;
    if (s->linger)
        recv(fd, in, 1, 0);
}

static inline void *scripted_work(void *context)
{
    scripted *s = context;
    for (;;) {
        int fd = accept(s->listener, NULL, NULL);
        if (fd < 0)
            return NULL;
        scripted_serve(s, fd);
        shutdown(fd, SHUT_WR);
        close(fd);
    }
}

/* A port that is ours, at which nobody listens. */
static inline int bind_here(int *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    *port = ntohs(a.sin_port);
    return fd;
}

static inline int listen_here(int *port, int backlog)
{
    int fd = bind_here(port);
    assert_int_equal(listen(fd, backlog), 0);
    return fd;
}

static inline void scripted_start(scripted *s, sm_str script)
{
    *s = (scripted){
        .script = script, .pause_ms = s->pause_ms, .unasked = s->unasked, .linger = s->linger};
    s->listener = listen_here(&s->port, 16);
    snprintf(s->base, sizeof s->base, "http://127.0.0.1:%d", s->port);
    assert_int_equal(pthread_create(&s->thread, NULL, scripted_work, s), 0);
}

static inline void scripted_stop(scripted *s)
{
    shutdown(s->listener, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->listener);
}

#endif
