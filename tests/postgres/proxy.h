/*
 * A proxy between the store and the server, for what goes wrong on the way.
 *
 * It passes bytes on in both directions. It can hold everything back, as a server that is stopped
 * does; refuse new connections, or answer them as a server that starts does; and cut a connection
 * at the moment at which the server's answer to a chosen statement has arrived, or before the
 * statement itself is passed on.
 */
#ifndef SM_TESTS_POSTGRES_PROXY_H
#define SM_TESTS_POSTGRES_PROXY_H

#include <stdbool.h>

typedef struct proxy proxy;

/* Listens on a port of its own on 127.0.0.1 and leads to `host` and `port`. NULL if it cannot. */
proxy *proxy_new(const char *host, const char *port);
void proxy_free(proxy *p);
int proxy_port(const proxy *p);

/* Whatever is to be passed on waits until this is undone. */
void proxy_hold(proxy *p, bool held);

/* New connections are closed at once, and those that are there too. */
void proxy_refuse(proxy *p, bool refused);

/* The next `n` connections are answered as by a server that starts, in a language of its own. */
void proxy_reject(proxy *p, int n);

/* The next message of a client that has these bytes in it is the last one of its connection: it is
 * passed on and its answer is not, or it is not passed on at all. */
void proxy_cut(proxy *p, const char *bytes, bool passed_on);

/* A client whose answer is cut off gets an error instead that ends the session. */
void proxy_goodbye(proxy *p, bool goodbye);

/* How often a connection was cut. */
int proxy_cuts(const proxy *p);

#endif
