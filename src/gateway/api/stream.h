/*
 * Streams of events: what stream.c (who joins, threads) and stream_feed.c (what they get) share.
 *
 * One thread feeds all streams, from the ledger and never from anything else, so that a stream that
 * continues from the last id that its reader has seen misses nothing: at least once. Streams that
 * are at the same place share what is read. A second thread does nothing but wait for the ledger to
 * have something new.
 *
 * A reader that is slow holds up only itself: its stream is not fed while there is no room, and is
 * cut when there has been none for long. It comes back with Last-Event-ID. A stream whose token is
 * revoked or has expired ends within a second or so; and one token has a quarter of all streams at
 * most, so that no tenant can keep the others out.
 *
 * Locks: one, never held across a call of the ledger or of the server. Callbacks of the server do
 * no more than stir the thread that feeds.
 */
#ifndef SM_GATEWAY_API_STREAM_H
#define SM_GATEWAY_API_STREAM_H

#include <pthread.h>

#include "base/shares.h"
#include "core/handle.h"
#include "gateway/inside/gateway.h"

#define GW_STREAM_PAGE   200u /* events that are read at once */
#define GW_STREAM_SCOPES 1024u

typedef struct gw_stream_one {
    struct gw_stream_one *next;
    gw_request *request;
    char token[GW_ID_TEXT + 1];
    uint64_t after;    /* everything up to here was given or is not for it */
    uint64_t told;     /* the last id that its reader knows */
    bool whole;        /* the token is bound to no scope */
    uint8_t shard;     /* else its scope's */
    bool stuck;        /* not fed any more in this round */
    bool served;       /* has had its page of this round */
    int64_t pushed_ns; /* when something was last given to it */
    int64_t full_ns;   /* since when there is no room; 0: there is */
} gw_stream_one;

/* An event on its way: where it belongs, and its text. */
typedef struct gw_stream_item {
    sm_handle of;
    uint64_t seq;
    size_t at, n; /* in `texts` */
} gw_stream_item;

/* The scope of an effect, remembered. */
typedef struct gw_stream_scope {
    uint64_t id; /* 0: nothing is remembered here */
    char *text;
} gw_stream_scope;

struct gw_stream {
    gateway *g;
    pthread_t feeder, watcher;
    bool feeding, watching; /* these threads are there */

    pthread_mutex_t lock;
    pthread_cond_t stirred; /* the feeder's; CLOCK_MONOTONIC */
    pthread_cond_t caught;  /* the watcher's */
    gw_stream_one *joined;  /* not taken over by the feeder yet */
    sm_shares open;         /* streams by token, joined ones too */
    bool stir;              /* there may be something to do */
    bool room;              /* a reader has room again, or has gone */
    bool watch;             /* somebody waits for what comes after `head` */
    bool stop;
    uint64_t head;

    /* The feeder's own. */
    gw_stream_one *streams;
    int64_t checked_ns; /* when their tokens were looked at */
    semel_answer *answer;
    gw_stream_item items[GW_STREAM_PAGE];
    size_t count;
    sm_buf texts;
    gw_stream_scope scopes[GW_STREAM_SCOPES];
};

/* One page for every stream, those without room left out unless some have room again. *more: there
 * may be another one. On failure the ledger could not be read. */
sm_err gw_stream_feed(gw_stream *s, bool room, bool *more);

/* Ends the streams whose readers have gone, are too slow or may not read any more, or all; says
 * something to those that have not heard of us for long. */
void gw_stream_tend(gw_stream *s, bool all);

/* Gives the place of a stream back (stream.c). */
void gw_stream_leave(gw_stream *s, const char *token);

#endif
