/*
 * Servers: pools of connections, and which server owns which slot of a cluster.
 *
 * A plain server is a cluster of one node that owns every slot; if the URL names several, the one
 * that is the master. Nodes are made when they are first
 * heard of and stay until the store is closed, so whoever holds a pointer to one may use it. The
 * map is read without a lock: a wrong entry costs a redirection, no more.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "store/redis/redis.h"

#define JUDGE_NS                                                                                   \
    (1000 * 1000000ll) /* so long the settings of a server are taken to be the same                \
                        */

#define LOADING_US 20000

/* ---- slots -----------------------------------------------------------------------------------*/

/* CRC-16/XMODEM: the polynomial 0x1021, the highest bit first. */
static uint16_t crc16(const char *p, size_t n)
{
    uint16_t crc = 0;
    for (size_t i = 0; i < n; i++) {
        crc ^= (uint16_t)((uint8_t)p[i] << 8);
        for (int bit = 0; bit < 8; bit++)
            crc = (uint16_t)(crc & 0x8000 ? (unsigned)crc << 1 ^ 0x1021u : (unsigned)crc << 1);
    }
    return crc;
}

uint16_t sm_rd_slot(sm_str key)
{
    const char *open = key.n == 0 ? NULL : memchr(key.p, '{', key.n);
    const char *end = key.p + key.n;
    const char *shut = open == NULL ? NULL : memchr(open + 1, '}', (size_t)(end - open - 1));
    if (shut != NULL && shut > open + 1)
        key = (sm_str){open + 1, (size_t)(shut - open - 1)};
    return crc16(key.p, key.n) % SM_RD_SLOTS;
}

/* ---- nodes -----------------------------------------------------------------------------------*/

static sm_rd_node *node_new(const char *host, int port, int64_t patience_ns)
{
    sm_rd_node *node = calloc(1, sizeof *node);
    if (node == NULL || (node->host = strdup(host)) == NULL) {
        free(node);
        return NULL;
    }
    node->port = port;
    sm_gate_init(&node->gate, patience_ns);
    pthread_mutex_init(&node->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&node->freed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return node;
}

static void node_free(sm_rd_node *node)
{
    sm_rd_forget_idle(node);
    pthread_cond_destroy(&node->freed);
    pthread_mutex_destroy(&node->lock);
    sm_gate_fini(&node->gate);
    free(node->host);
    free(node);
}

sm_rd_node *sm_rd_node_at(semel_store *st, unsigned index)
{
    return atomic_load(&st->map.nodes[index]);
}

unsigned sm_rd_node_index(semel_store *st, const sm_rd_node *node)
{
    unsigned i = 0;
    while (sm_rd_node_at(st, i) != node)
        i++;
    return i;
}

sm_rd_node *sm_rd_node_of(semel_store *st, const char *host, int port)
{
    sm_rd_map *m = &st->map;
    sm_rd_node *found = NULL;
    pthread_mutex_lock(&m->lock);
    unsigned n = atomic_load(&m->n);
    for (unsigned i = 0; i < n && found == NULL; i++) {
        sm_rd_node *node = sm_rd_node_at(st, i);
        if (node->port == port && strcmp(node->host, host) == 0)
            found = node;
    }
    if (found == NULL && n < SM_RD_NODES_MAX) {
        found = node_new(host, port, st->config.timeout_ms * 1000000);
        if (found != NULL) {
            atomic_store(&m->nodes[n], found);
            atomic_store(&m->n, n + 1);
        }
    }
    pthread_mutex_unlock(&m->lock);
    return found;
}

/* ---- the map ---------------------------------------------------------------------------------*/

semel_err sm_rd_map_init(semel_store *st)
{
    pthread_mutex_init(&st->map.lock, NULL);
    for (unsigned i = 0; i < st->config.n_places; i++) {
        const sm_rd_place *p = &st->config.places[i];
        if (sm_rd_node_of(st, p->host, p->port) == NULL)
            return SEMEL_E_NOMEM;
    }
    return SEMEL_OK;
}

void sm_rd_map_fini(semel_store *st)
{
    for (unsigned i = 0; i < atomic_load(&st->map.n); i++)
        node_free(sm_rd_node_at(st, i));
    pthread_mutex_destroy(&st->map.lock);
}

unsigned sm_rd_owner(semel_store *st, uint16_t slot)
{
    return atomic_load_explicit(&st->map.owner[slot], memory_order_relaxed);
}

void sm_rd_own(semel_store *st, uint16_t slot, const sm_rd_node *node)
{
    atomic_store_explicit(&st->map.owner[slot], (unsigned short)sm_rd_node_index(st, node),
                          memory_order_relaxed);
}

unsigned sm_rd_masters(semel_store *st, unsigned out[SM_RD_NODES_MAX])
{
    bool is[SM_RD_NODES_MAX] = {false};
    unsigned n = 0;
    for (unsigned slot = 0; slot < SM_RD_SLOTS; slot++) {
        unsigned i = sm_rd_owner(st, (uint16_t)slot);
        if (!is[i])
            out[n++] = i;
        is[i] = true;
    }
    return n;
}

/* Takes over what CLUSTER SLOTS says. False if it says nothing of use. */
static bool take_slots(semel_store *st, const sm_rd_node *from, const redisReply *reply)
{
    bool any = false;
    for (size_t i = 0; i < sm_rd_elements(reply); i++) {
        const redisReply *range = sm_rd_element(reply, i), *master = sm_rd_element(range, 2);
        int64_t first = sm_rd_number(sm_rd_element(range, 0));
        int64_t last = sm_rd_number(sm_rd_element(range, 1));
        sm_str host = sm_rd_text(sm_rd_element(master, 0));
        int64_t port = sm_rd_number(sm_rd_element(master, 1));
        if (first < 0 || last >= (int64_t)SM_RD_SLOTS || first > last || port < 1 || port > 65535)
            continue;
        /* A server that does not know its own name means the one that it was asked by. */
        const sm_rd_node *node = sm_rd_node_of(st, host.n == 0 ? from->host : host.p, (int)port);
        for (int64_t slot = first; node != NULL && slot <= last; slot++)
            sm_rd_own(st, (uint16_t)slot, node);
        any = any || node != NULL;
    }
    return any;
}

/* What one node says about the slots. *later: it will say more, once it has loaded its data. */
static semel_err ask_map(semel_store *st, sm_rd_node *node, int64_t until_ns, bool *later,
                         semel_fault *fault)
{
    const sm_str question = SM_STR("*2\r\n$7\r\nCLUSTER\r\n$5\r\nSLOTS\r\n");
    sm_rd_conn *c = NULL;
    redisReply *reply = NULL;
    size_t got = 0;
    const char *why = NULL;
    semel_err e = SEMEL_E_UNAVAILABLE;
    sm_rd_talk talk = sm_rd_borrow(st, node, until_ns, &c, fault);
    *later = *later || talk == SM_RD_BUSY;
    if (talk != SM_RD_FINE)
        return e;
    if (!st->cluster) { /* who could be greeted is the master */
        sm_rd_return(node, c);
        for (unsigned slot = 0; slot < SM_RD_SLOTS; slot++)
            sm_rd_own(st, (uint16_t)slot, node);
        return SEMEL_OK;
    }
    if (sm_rd_exchange(c, question, &reply, 1, &got, until_ns, &why) != SM_RD_FINE) {
        sm_fault_set(fault, e, "the Redis server at %s:%d cannot be used: %s", node->host,
                     node->port, why);
        sm_gate_bad(&node->gate, fault);
        sm_rd_discard(node, c);
        return e;
    }
    sm_rd_return(node, c);
    if (reply->type == REDIS_REPLY_ERROR) {
        sm_rd_explain((sm_str){reply->str, reply->len}, fault);
        *later = *later || strncmp(reply->str, "LOADING", 7) == 0;
    } else if (take_slots(st, node, reply)) {
        e = SEMEL_OK;
    } else {
        sm_fault_set(fault, e, "the Redis cluster has no slots: it is not set up yet");
    }
    freeReplyObject(reply);
    return e;
}

semel_err sm_rd_map_learn(semel_store *st, int64_t deadline_ns, semel_fault *fault)
{
    semel_err e = SEMEL_E_UNAVAILABLE;
    semel_fault own = {0}; /* a gate needs the reason even if the caller does not */
    bool later = true;
    fault = fault == NULL ? &own : fault;
    sm_fault_set(fault, e, "no server of the Redis ledger can be reached");
    for (unsigned round = 0; later && e != SEMEL_OK && sm_clock_mono_ns() < deadline_ns; round++) {
        unsigned n = atomic_load(&st->map.n);
        if (round > 0)
            usleep(LOADING_US);
        later = false;
        for (unsigned i = 0; i < n && e != SEMEL_OK && sm_clock_mono_ns() < deadline_ns; i++) {
            /* One that does not answer must not use up the time of the others. */
            int64_t now = sm_clock_mono_ns(), part = i + 1 < n ? 2 : 1;
            e = ask_map(st, sm_rd_node_at(st, i), now + (deadline_ns - now) / part, &later, fault);
        }
    }
    return e;
}

bool sm_rd_has_others(const semel_store *st)
{
    return st->cluster || st->config.n_places > 1;
}

/* ---- pools -----------------------------------------------------------------------------------*/

/* A connection that lay idle may have been closed by the other side, which must not have said
 * anything either: nobody had asked. */
static bool still_good(const sm_rd_conn *c)
{
    char byte;
    ssize_t n = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

/* One that lies idle, or leave to open one: *c is NULL then. False: the time is up. */
static bool pool_take(semel_store *st, sm_rd_node *node, int64_t deadline_ns, sm_rd_conn **c)
{
    struct timespec until = {.tv_sec = deadline_ns / 1000000000,
                             .tv_nsec = deadline_ns % 1000000000};
    bool in_time = true;
    *c = NULL;
    pthread_mutex_lock(&node->lock);
    while (node->idle == NULL && node->open >= st->config.pool && in_time)
        in_time = pthread_cond_timedwait(&node->freed, &node->lock, &until) != ETIMEDOUT;
    /* What was freed at the last moment is taken: the signal for it may have gone to this one. */
    bool leave = node->idle != NULL || node->open < st->config.pool;
    if (node->idle != NULL) {
        *c = node->idle;
        node->idle = node->idle->next;
    } else if (leave) {
        node->open++;
    }
    pthread_mutex_unlock(&node->lock);
    return leave;
}

static void pool_left(sm_rd_node *node)
{
    pthread_mutex_lock(&node->lock);
    node->open--;
    pthread_cond_signal(&node->freed);
    pthread_mutex_unlock(&node->lock);
}

/* Whether to look at the settings of a server again: one of all who come then does. */
static bool is_due(semel_store *st, sm_rd_node *node)
{
    long long last = atomic_load(&node->judged_ns), now = sm_clock_mono_ns();
    return st->durable && now - last > JUDGE_NS &&
           atomic_compare_exchange_strong(&node->judged_ns, &last, now);
}

sm_rd_talk sm_rd_borrow(semel_store *st, sm_rd_node *node, int64_t deadline_ns, sm_rd_conn **out,
                        semel_fault *fault)
{
    semel_fault why = {0};
    *out = NULL;
    for (;;) {
        if (!pool_take(st, node, deadline_ns, out)) {
            sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                         "all %u connections to the Redis server are busy; a larger pool= may help",
                         st->config.pool);
            return SM_RD_LOST;
        }
        if (*out == NULL)
            break;
        (*out)->reused = true;
        if ((*out)->era == atomic_load(&node->era) && still_good(*out) &&
            sm_rd_conn_is_master(st, *out, deadline_ns)) {
            if (!is_due(st, node))
                return SM_RD_FINE;
            sm_rd_talk talk = sm_rd_conn_check(st, node, *out, deadline_ns, &why);
            if (talk == SM_RD_FINE)
                return talk;
            /* The next connection is judged as it is made, and tells why. Those that others use
             * now are not used again. */
            atomic_fetch_add(&node->era, 1);
            sm_rd_forget_idle(node);
        }
        sm_rd_discard(node, *out);
    }
    if (sm_gate_enter(&node->gate, deadline_ns, fault) != SM_OK) {
        pool_left(node);
        return SM_RD_REFUSED;
    }
    unsigned era = atomic_load(&node->era);
    sm_rd_talk talk = sm_rd_conn_open(st, node, deadline_ns, out, &why);
    if (talk == SM_RD_FINE) {
        (*out)->era = era;
        atomic_store(&node->judged_ns, sm_clock_mono_ns());
        sm_gate_good(&node->gate);
        return talk;
    }
    pool_left(node);
    sm_gate_bad(&node->gate, &why);
    if (fault != NULL)
        *fault = why;
    return talk;
}

void sm_rd_return(sm_rd_node *node, sm_rd_conn *c)
{
    if (c->replica) { /* should it become the master, it is judged then */
        sm_rd_discard(node, c);
        return;
    }
    pthread_mutex_lock(&node->lock);
    c->next = node->idle;
    node->idle = c;
    pthread_cond_signal(&node->freed);
    pthread_mutex_unlock(&node->lock);
}

void sm_rd_discard(sm_rd_node *node, sm_rd_conn *c)
{
    sm_rd_conn_close(c);
    pool_left(node);
}

void sm_rd_forget_idle(sm_rd_node *node)
{
    pthread_mutex_lock(&node->lock);
    sm_rd_conn *list = node->idle;
    node->idle = NULL;
    for (const sm_rd_conn *c = list; c != NULL; c = c->next)
        node->open--;
    pthread_cond_broadcast(&node->freed);
    pthread_mutex_unlock(&node->lock);
    while (list != NULL) {
        sm_rd_conn *next = list->next;
        sm_rd_conn_close(list);
        list = next;
    }
}
