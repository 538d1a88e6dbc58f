/*
 * Waiting, and the ear: the thread that hears of other processes' writes.
 *
 * A waiter comes into the bell, then marks the record as waited for, which also tells whether it is
 * still as the caller knows it, and sleeps. A write in this process rings the bell itself; a write
 * in another process publishes the key if the record is marked, and the ear rings. What is rung for
 * is looked at by whoever was woken.
 *
 * While the ear does not hear (no right to subscribe, the server gone), waiters look again by
 * themselves, often at first. While it does they still look once a second: a record may have been
 * removed by the server, which tells nobody.
 *
 * Who waits for any event looks every 50 ms, for that order is only made by looking.
 */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/thread.h"
#include "store/redis/redis.h"

#define MS_NS         1000000ll
#define BACKSTOP_NS   (1000 * MS_NS)
#define POLL_FIRST_NS (10 * MS_NS)
#define POLL_MOST_NS  (250 * MS_NS)
#define EVENTS_NS     (50 * MS_NS)
#define SHORT_NS      (100 * MS_NS)  /* for a look when the time is up already */
#define PING_NS       (2000 * MS_NS) /* silence after which the ear asks */
#define DEAF_NS       (6000 * MS_NS) /* ... after which it tries another connection */
#define AGAIN_MOST_NS (5000 * MS_NS)

/* ---- the ear ---------------------------------------------------------------------------------*/

static bool told_to_stop(semel_store *st, int64_t until_ns)
{
    bool stop = false;
    do {
        uint64_t n;
        stop = read(st->ear.stop_fd, &n, sizeof n) == (ssize_t)sizeof n;
        if (!stop && sm_clock_mono_ns() < until_ns)
            usleep(10000);
    } while (!stop && sm_clock_mono_ns() < until_ns);
    return stop;
}

static void heard(semel_store *st, const redisReply *r)
{
    sm_str kind = sm_rd_text(sm_rd_element(r, 0)), key = sm_rd_text(sm_rd_element(r, 2));
    semel_hash hash;
    if (sm_str_is(kind, "message") && key.n == sizeof hash.b) {
        memcpy(hash.b, key.p, sizeof hash.b);
        sm_bell_ring(&st->bell, &hash);
    } else if (sm_str_is(kind, "subscribe")) {
        atomic_store(&st->ear.hears, true);
        sm_bell_ring_all(&st->bell); /* they may sleep longer now */
    }
}

/* Listens on one connection until it fails. Returns whether to stop. */
static bool listen_on(semel_store *st, sm_rd_conn *c)
{
    const sm_str ping = SM_STR("*1\r\n$4\r\nPING\r\n");
    sm_rd_batch b; /* only to make the question */
    size_t got;
    const char *why;
    sm_buf out;
    sm_rd_batch_init(&b, st);
    sm_buf_init(&out, 4096);
    sm_rd_command(&b, SM_RD_GLOBAL, "SUBSCRIBE");
    sm_rd_key(&b, SM_RD_GLOBAL, "wake");
    sm_buf_printf(&out, "*%u\r\n", b.n == 0 ? 0 : b.asks[0].argc);
    sm_buf_str(&out, sm_buf_view(&b.bytes));
    int64_t last = sm_clock_mono_ns(), pinged = last;
    bool fine = b.err == SEMEL_OK && sm_rd_exchange(c, sm_buf_view(&out), NULL, 0, &got,
                                                    last + DEAF_NS, &why) == SM_RD_FINE;
    bool stop = false;
    while (fine && !stop) {
        redisReply *reply = NULL;
        int64_t now = sm_clock_mono_ns(), until = (last > pinged ? last : pinged) + PING_NS;
        fine = sm_rd_hear(c, st->ear.stop_fd, until, &reply) == SM_RD_FINE;
        if (reply != NULL) {
            last = sm_clock_mono_ns();
            fine = reply->type != REDIS_REPLY_ERROR;
            heard(st, reply);
            freeReplyObject(reply);
        } else if (fine && now >= until) {
            pinged = now;
            fine = now - last < DEAF_NS &&
                   sm_rd_exchange(c, ping, NULL, 0, &got, now + PING_NS, &why) == SM_RD_FINE;
        }
        stop = told_to_stop(st, 0);
    }
    atomic_store(&st->ear.hears, false);
    sm_bell_ring_all(&st->bell);
    sm_buf_fini(&out);
    sm_rd_batch_fini(&b);
    return stop;
}

/* Tries both on a connection of its own: one that has subscribed is of no use for questions. An
 * empty message wakes nobody. */
bool sm_rd_may_wake(semel_store *st, int64_t deadline_ns)
{
    sm_rd_batch b; /* only to make the questions */
    sm_buf out;
    sm_rd_conn *c = NULL;
    redisReply *replies[2] = {0};
    size_t got = 0;
    const char *why;
    sm_rd_batch_init(&b, st);
    sm_buf_init(&out, 4096);
    sm_rd_command(&b, SM_RD_GLOBAL, "PUBLISH");
    sm_rd_key(&b, SM_RD_GLOBAL, "wake");
    sm_rd_arg_text(&b, "");
    sm_rd_command(&b, SM_RD_GLOBAL, "SUBSCRIBE");
    sm_rd_key(&b, SM_RD_GLOBAL, "wake");
    for (size_t i = 0; i < b.n && b.err == SEMEL_OK; i++) {
        sm_buf_printf(&out, "*%u\r\n", b.asks[i].argc);
        sm_buf_bytes(&out, b.bytes.p + b.asks[i].at, b.asks[i].len);
    }
    sm_rd_node *node = sm_rd_node_at(st, sm_rd_owner(st, st->slots[SM_RD_GLOBAL]));
    bool may =
        b.err == SEMEL_OK && out.err == SM_OK &&
        sm_rd_conn_open(st, node, deadline_ns, &c, NULL) == SM_RD_FINE &&
        sm_rd_exchange(c, sm_buf_view(&out), replies, 2, &got, deadline_ns, &why) == SM_RD_FINE;
    for (size_t i = 0; i < got; i++) {
        may = may && replies[i]->type != REDIS_REPLY_ERROR;
        freeReplyObject(replies[i]);
    }
    sm_rd_conn_close(c);
    sm_buf_fini(&out);
    sm_rd_batch_fini(&b);
    return may;
}

static void *listen_main(void *context)
{
    semel_store *st = context;
    int64_t again_ns = SHORT_NS;
    unsigned turn = 0;
    for (bool stop = false; !stop;) {
        unsigned masters[SM_RD_NODES_MAX];
        unsigned n = sm_rd_masters(st, masters);
        sm_rd_node *node = sm_rd_node_at(st, masters[turn++ % n]);
        sm_rd_conn *c = NULL;
        int64_t began = sm_clock_mono_ns();
        if (sm_rd_conn_open(st, node, began + PING_NS, &c, NULL) == SM_RD_FINE)
            stop = listen_on(st, c);
        sm_rd_conn_close(c);
        int64_t now = sm_clock_mono_ns();
        if (now - began > DEAF_NS)
            again_ns = SHORT_NS;
        if (!stop)
            stop = told_to_stop(st, now + again_ns / 2 + now / 1000 % (again_ns / 2));
        again_ns = again_ns * 2 < AGAIN_MOST_NS ? again_ns * 2 : AGAIN_MOST_NS;
    }
    return NULL;
}

void sm_rd_ear_init(semel_store *st)
{
    pthread_mutex_init(&st->ear.lock, NULL);
    st->ear.stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void sm_rd_ear_fini(semel_store *st)
{
    uint64_t one = 1;
    if (st->ear.started && write(st->ear.stop_fd, &one, sizeof one) == (ssize_t)sizeof one)
        pthread_join(st->ear.thread, NULL);
    if (st->ear.stop_fd >= 0)
        close(st->ear.stop_fd);
    pthread_mutex_destroy(&st->ear.lock);
}

/* The first who waits starts it. Without it they look more often. */
static void ear_start(semel_store *st)
{
    pthread_mutex_lock(&st->ear.lock);
    if (!st->ear.started && st->ear.stop_fd >= 0)
        st->ear.started = sm_thread_start(&st->ear.thread, listen_main, st, "semel-redis");
    pthread_mutex_unlock(&st->ear.lock);
}

/* ---- waiting ---------------------------------------------------------------------------------*/

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Marks the record and tells whether it is another one now; *marked: its next change is told. */
static semel_err watch(semel_store *st, const semel_ref *of, uint64_t version, int64_t until_ns,
                       bool *changed, bool *marked, semel_fault *fault)
{
    uint64_t id;
    uint8_t shard;
    *changed = *marked = false;
    semel_err e = sm_rd_find(st, of, &id, &shard, until_ns, fault);
    if (e == SEMEL_E_NOT_FOUND)
        *changed = true;
    if (e != SEMEL_OK)
        return *changed ? SEMEL_OK : e;
    sm_rd_batch b;
    sm_rd_batch_init(&b, st);
    sm_rd_call(&b, shard, SM_RD_WATCH, 1);
    sm_rd_key_id(&b, shard, "r:", id, 0); /* record */
    sm_rd_argf(&b, "%016llx%016llx", (unsigned long long)of->generation,
               (unsigned long long)version); /* expected */
    e = sm_rd_run(&b, until_ns, fault);
    int64_t said = e == SEMEL_OK ? sm_rd_number(sm_rd_reply(&b, 0)) : 0;
    *changed = e == SEMEL_OK && said == 0;
    *marked = said == 2;
    sm_rd_batch_fini(&b);
    return e;
}

static semel_err look(semel_store *st, const semel_ref *of, uint64_t version, int64_t until_ns,
                      bool *changed, bool *marked, semel_fault *fault)
{
    if (of != NULL)
        return watch(st, of, version, until_ns, changed, marked, fault);
    uint64_t last = 0;
    semel_err e = sm_rd_collate(st, &last, until_ns, fault);
    *changed = e == SEMEL_OK && last > version;
    return e;
}

semel_err sm_rd_wait(semel_store *st, const semel_ref *of, uint64_t version, int64_t deadline_ns,
                     semel_fault *fault)
{
    semel_err e = SEMEL_OK;
    int64_t poll_ns = POLL_FIRST_NS;
    bool changed = false, marked = false, first = true;
    if (of != NULL)
        ear_start(st);
    sm_bell_bucket *bucket = sm_bell_of(&st->bell, of == NULL ? NULL : of->key);
    uint64_t turn = sm_bell_enter(bucket);
    for (;;) {
        int64_t now = sm_clock_mono_ns();
        /* A look that could not be answered in time is not begun, but for the first. */
        if (first || deadline_ns - now > SHORT_NS / 2) {
            int64_t most = first && deadline_ns - now < SHORT_NS ? now + SHORT_NS : deadline_ns;
            e = look(st, of, version, sooner(most, sm_rd_deadline(st)), &changed, &marked, fault);
        }
        first = false;
        now = sm_clock_mono_ns();
        if (changed && e == SEMEL_OK)
            break;
        if (now >= deadline_ns) {
            e = SEMEL_E_TIMEOUT;
            break;
        }
        if (e == SEMEL_E_UNAVAILABLE && deadline_ns - now < SHORT_NS / 2) {
            /* There was no time for another look: that says nothing about the server. */
            e = sm_bell_sleep(bucket, turn, deadline_ns) != turn ? SEMEL_OK : SEMEL_E_TIMEOUT;
            break;
        }
        if (e != SEMEL_OK)
            break;
        int64_t pause = of == NULL                              ? EVENTS_NS
                        : marked && atomic_load(&st->ear.hears) ? BACKSTOP_NS
                                                                : poll_ns;
        uint64_t rung = sm_bell_sleep(bucket, turn, sooner(now + pause, deadline_ns));
        if (rung != turn && of != NULL)
            break;
        turn = rung;
        poll_ns = sooner(poll_ns * 2, POLL_MOST_NS);
    }
    sm_bell_leave(bucket);
    return e;
}
