/*
 * What the tests of the Redis store with a real server share: a way to talk to the server itself,
 * and a proxy that loses answers. Ledgers, records and writes are those of the conformance suite.
 */
#ifndef SM_TESTS_REDIS_SERVER_H
#define SM_TESTS_REDIS_SERVER_H

#include "../conformance/conformance.h"

#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdatomic.h>

int plain_tests(void);
int between_tests(void);
int cluster_tests(void);
int finding_tests(void);
int cluster_finding_tests(void);
int loss_tests(void);
int cluster_loss_tests(void);

/* Where the server is, from the URL in that variable of the environment. False: it is not set. */
typedef struct place {
    char host[128];
    int port;
} place;
bool place_of(const char *variable, place *out);

/* The store that the tests are run with; "?prefix=...&" and more options are added to it. */
extern place the_server;
extern bool there_is_a_server;
void url_with(char out[512], const place *p, const char *options);

/* A command that must succeed; its answer is freed, or given out. */
redisContext *call_server(const place *p);
void tell_server(redisContext *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
redisReply *ask_server(redisContext *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What a proxy does when a question has that word in it, once: something of the test's own before
 * it passes the question on (in its thread, so nothing may be asserted), and it may lose the answer
 * then, or give one of its own instead of asking. */
typedef struct trap {
    const char *word;
    void (*meddle)(void *context);
    void *context;
    bool lose;
    const char *answer;
} trap;

/* A proxy in front of a server. When it is armed, it passes on one question, and closes the
 * connection instead of passing on the answer. */
typedef struct proxy {
    place to;
    int port, listener;
    atomic_int armed;
    _Atomic(const trap *) trap; /* NULL again when it has snapped */
    atomic_bool stop;
    pthread_t thread;
} proxy;
void proxy_start(proxy *x, const place *to);
void proxy_stop(proxy *x);

/* Skips a test that has no server to run on. */
#define needs_server()                                                                             \
    do {                                                                                           \
        if (!there_is_a_server)                                                                    \
            skip();                                                                                \
    } while (0)

#endif
