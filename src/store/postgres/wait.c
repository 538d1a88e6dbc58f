/*
 * Waiting for a change.
 *
 * A waiter comes into its bucket of the bell first, then looks, and sleeps if there is no news.
 * Looking also marks the record: a write to a marked one sends a notification, in the write's own
 * transaction. So a change is either seen or rings. Writers of this process ring the bell
 * themselves. A thread with a connection of its own listens for the others and rings for them; it
 * is started by the first who waits.
 *
 * While nothing listens (behind a pooler without `listen`, or when that connection is down) waiters
 * look again and again, soon at first. While it does, they still look once a second. Who waits for
 * any event always looks again after a moment: events are not notified one by one.
 */
#include "store/postgres/postgres.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"

#define MS            1000000ll
#define BACKSTOP_NS   (1000 * MS)
#define EVENTS_NS     (50 * MS)
#define POLL_FIRST_NS (10 * MS)
#define POLL_MOST_NS  (250 * MS)
#define GRACE_NS      (20 * MS) /* for the one look of who comes late */
#define TOO_LATE_NS   (3 * MS)  /* before the deadline: no time for another look */
#define RETRY_MOST_NS (5000 * MS)

/* ---- the thread that listens -----------------------------------------------------------------*/

void sm_pg_waits_init(sm_pg_waits *w)
{
    sm_bell_init(&w->bell);
    pthread_mutex_init(&w->lock, NULL);
    w->stop = -1;
}

static sm_pg_target *listen_target(sm_pg_settings *s)
{
    return s->listen.options != NULL ? &s->listen : s->pooler ? NULL : &s->main;
}

/* The payload is the key in hexadecimal. */
static bool parse_key(const char *text, semel_hash *key)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < 2 * sizeof key->b; i++) {
        const char *d = text[i] == '\0' ? NULL : strchr(digits, text[i]);
        if (d == NULL)
            return false;
        uint8_t v = (uint8_t)(d - digits);
        key->b[i / 2] = (uint8_t)(i % 2 == 0 ? v << 4 : key->b[i / 2] | v);
    }
    return true;
}

static void ring_for(semel_store *st, sm_pg_conn *c)
{
    PGnotify *n;
    while ((n = PQnotifies(c->pg)) != NULL) {
        semel_hash key;
        if (parse_key(n->extra, &key))
            sm_bell_ring(&st->waits.bell, &key);
        PQfreemem(n);
    }
}

/* Sleeps; true if the thread is to end. */
static bool rest(semel_store *st, int64_t ns)
{
    struct pollfd on = {.fd = st->waits.stop, .events = POLLIN};
    struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    return ppoll(&on, 1, &t, NULL) > 0;
}

/* Listens until the connection breaks; true if the thread is to end. */
static bool listen_on(semel_store *st, sm_pg_conn *c)
{
    struct pollfd on[2] = {{.fd = PQsocket(c->pg), .events = POLLIN},
                           {.fd = st->waits.stop, .events = POLLIN}};
    for (;;) {
        if (poll(on, 2, -1) < 0 && errno != EINTR)
            return false;
        if (on[1].revents != 0)
            return true;
        if (on[0].revents != 0 && PQconsumeInput(c->pg) == 0)
            return false;
        ring_for(st, c);
    }
}

static void *listen_main(void *arg)
{
    semel_store *st = arg;
    sm_pg_target *target = listen_target(&st->settings);
    char sql[96];
    snprintf(sql, sizeof sql, "LISTEN \"%s\"", st->settings.channel);
    int64_t pause = 100 * MS;
    for (bool end = false; !end;) {
        /* A short limit: closing waits for it. */
        int64_t limit_ms = st->settings.timeout_ms < 2000 ? st->settings.timeout_ms : 2000;
        int64_t deadline_ns = sm_clock_deadline_ns(limit_ms);
        semel_fault why;
        PGresult *r = NULL;
        semel_err err;
        sm_pg_conn *c = sm_pg_connect(st, target, deadline_ns, &why);
        if (c != NULL && sm_pg_run_text(st, c, sql, deadline_ns, &r, &err, &why) == SM_PG_DONE) {
            pause = 100 * MS;
            atomic_store(&st->waits.listening, true);
            sm_bell_ring_all(&st->waits.bell); /* what came before is to be looked for */
            end = listen_on(st, c);
            atomic_store(&st->waits.listening, false);
            sm_bell_ring_all(&st->waits.bell);
        }
        PQclear(r);
        sm_pg_disconnect(c);
        end = end || rest(st, pause / 2 + sm_clock_mono_ns() % (pause / 2));
        pause = pause * 2 < RETRY_MOST_NS ? pause * 2 : RETRY_MOST_NS;
    }
    return NULL;
}

static void start_listening(semel_store *st)
{
    sm_pg_waits *w = &st->waits;
    if (listen_target(&st->settings) == NULL)
        return;
    pthread_mutex_lock(&w->lock);
    if (!w->started && w->stop < 0) {
        w->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        w->started = w->stop >= 0 && sm_thread_start(&w->thread, listen_main, st, "semel-listen");
    }
    pthread_mutex_unlock(&w->lock);
}

void sm_pg_waits_fini(semel_store *st)
{
    sm_pg_waits *w = &st->waits;
    if (w->started) {
        uint64_t one = 1;
        ssize_t ignored = write(w->stop, &one, sizeof one);
        (void)ignored;
        pthread_join(w->thread, NULL);
    }
    if (w->stop >= 0)
        close(w->stop);
    sm_bell_fini(&w->bell);
    pthread_mutex_destroy(&w->lock);
}

/* ---- whether `listen` leads anywhere ---------------------------------------------------------*/

#define TRY_PAUSE_NS (20 * MS)
#define TRIES        50

static semel_err misled(sm_pg_opening *o, const char *why)
{
    return sm_fault_set(o->fault, SEMEL_E_BAD_ARGUMENTS, "listen= in the ledger's URL %s", why);
}

/* Whether the word has come. The server sends what was told before it answers the next question. */
static bool hears(sm_pg_conn *c, const char *word)
{
    bool heard = false;
    PGnotify *n;
    while ((n = PQnotifies(c->pg)) != NULL) {
        heard = heard || strcmp(n->extra, word) == 0;
        PQfreemem(n);
    }
    return heard;
}

/* Tells a word by the ledger's connection and looks whether it comes out at this one. */
static semel_err try_word(sm_pg_opening *o, sm_pg_conn *c, int64_t deadline_ns)
{
    const char *ask = "SELECT pg_backend_pid()";
    char word[48], listen[96], tell[96];
    snprintf(word, sizeof word, "try %ld %lld", (long)getpid(), (long long)sm_clock_mono_ns());
    snprintf(listen, sizeof listen, "LISTEN \"%s\"", o->st->settings.channel);
    snprintf(tell, sizeof tell, "SELECT pg_notify(#, '%s')", word);
    PGresult *r = NULL;
    semel_err e = SEMEL_OK;
    sm_pg_fate way = sm_pg_run_text(o->st, c, listen, deadline_ns, &r, &e, o->fault);
    PQclear(r);
    if (way == SM_PG_DONE && (e = sm_pg_opening_run(o, tell, NULL)) != SEMEL_OK)
        return e;
    for (int tries = 0; way == SM_PG_DONE && tries < TRIES; tries++) {
        const struct timespec pause = {.tv_nsec = TRY_PAUSE_NS};
        if (tries > 0)
            nanosleep(&pause, NULL);
        way = sm_pg_run_text(o->st, c, ask, deadline_ns, &r, &e, o->fault);
        bool direct = way == SM_PG_DONE && sm_pg_number(r, 0) == PQbackendPID(c->pg);
        PQclear(r);
        if (way == SM_PG_DONE && !direct)
            return misled(o, "leads to a pooler, behind which nothing can be heard: name the "
                             "server itself");
        if (way == SM_PG_DONE && hears(c, word))
            return SEMEL_OK;
    }
    if (way != SM_PG_DONE)
        return e;
    return misled(o, "leads to another database or server than the ledger's: what is told in the "
                     "ledger's is not heard there");
}

semel_err sm_pg_listen_try(sm_pg_opening *o)
{
    sm_pg_target *target = &o->st->settings.listen;
    if (target->options == NULL)
        return SEMEL_OK;
    int64_t deadline_ns = sm_clock_deadline_ns(o->st->settings.timeout_ms);
    sm_pg_conn *c = sm_pg_connect(o->st, target, deadline_ns, o->fault);
    if (c == NULL) {
        /* The ledger's server is up: this one is wrong, unless it is about to follow. */
        if (sm_clock_mono_ns() >= deadline_ns || sm_pg_is_passing(o->fault) ||
            sm_pg_rejects(target))
            return SEMEL_E_UNAVAILABLE;
        o->fault->code = SEMEL_E_BAD_ARGUMENTS;
        return SEMEL_E_BAD_ARGUMENTS;
    }
    semel_err e = try_word(o, c, deadline_ns);
    sm_pg_disconnect(c);
    return e;
}

/* ---- waiters ---------------------------------------------------------------------------------*/

typedef struct waiting {
    semel_store *st;
    const semel_ref *of;
    uint64_t id, version;
    int64_t deadline_ns;
    bool marks; /* the record is to be marked */
} waiting;

/* One look. *again: somebody wrote at the same moment, and it is not clear what. */
static semel_err look(waiting *w, int64_t deadline_ns, bool *news, bool *again, semel_fault *fault)
{
    sm_pg_args args = {0};
    const semel_ref *of = w->of;
    sm_pg_question q = {.which = SM_PGQ_NEWS, .args = &args, .deadline_ns = deadline_ns};
    if (of == NULL) {
        sm_pg_add_int(&args, w->version > INT64_MAX ? INT64_MAX : (int64_t)w->version);
    } else {
        q.which = w->marks ? SM_PGQ_MARK : SM_PGQ_HEAD;
        sm_pg_add_int(&args, (int64_t)w->id);
        sm_pg_add_bytes(&args, (semel_str){(const char *)of->key->b, sizeof of->key->b});
    }
    if (q.which == SM_PGQ_MARK) {
        sm_pg_add_int(&args, (int64_t)of->generation);
        sm_pg_add_int(&args, (int64_t)w->version);
    }
    PGresult *r = NULL;
    *news = *again = false;
    semel_err e = sm_pg_ask(w->st, &q, &r, fault);
    if (e == SEMEL_OK && of == NULL)
        *news = sm_pg_bool(r, 0, 0);
    else if (e == SEMEL_OK)
        *news = PQntuples(r) == 0 || (uint64_t)sm_pg_int(r, 0, 0) != of->generation ||
                (uint64_t)sm_pg_int(r, 0, 1) != w->version;
    if (e == SEMEL_OK && q.which == SM_PGQ_MARK && !*news) {
        *again = !sm_pg_bool(r, 0, 2);
        w->marks = *again;
    }
    PQclear(r);
    return e;
}

/* How long to sleep before the next look, somewhere between half of it and all. */
static int64_t nap_ns(const waiting *w, unsigned looks)
{
    if (w->of == NULL)
        return EVENTS_NS;
    int64_t most = POLL_FIRST_NS << (looks < 5 ? looks : 5);
    most = most < POLL_MOST_NS ? most : POLL_MOST_NS;
    return atomic_load(&w->st->waits.listening) ? BACKSTOP_NS
                                                : most / 2 + sm_clock_mono_ns() % (most / 2);
}

static semel_err wait_inside(waiting *w, sm_bell_bucket *b, uint64_t turn, semel_fault *fault)
{
    for (unsigned looks = 0;; looks++) {
        int64_t now_ns = sm_clock_mono_ns(), late_ns = w->deadline_ns;
        if (looks > 0 && now_ns + TOO_LATE_NS >= w->deadline_ns) {
            sm_bell_sleep(b, turn, w->deadline_ns);
            return SEMEL_E_TIMEOUT;
        }
        if (late_ns < now_ns + GRACE_NS && looks == 0)
            late_ns = now_ns + GRACE_NS;
        bool news, again;
        semel_err e = look(w, late_ns, &news, &again, fault);
        if (e == SEMEL_OK && news)
            return SEMEL_OK;
        now_ns = sm_clock_mono_ns();
        if (now_ns >= w->deadline_ns)
            return SEMEL_E_TIMEOUT;
        if (e != SEMEL_OK)
            return e;
        if (again)
            continue;
        int64_t until_ns = now_ns + nap_ns(w, looks);
        uint64_t woken =
            sm_bell_sleep(b, turn, until_ns < w->deadline_ns ? until_ns : w->deadline_ns);
        if (woken != turn && w->of != NULL)
            return SEMEL_OK; /* most likely it is this key; the caller reads it in any case */
        turn = woken;
    }
}

semel_err sm_pg_wait(semel_store *st, const semel_ref *of, uint64_t version, int64_t deadline_ns,
                     semel_fault *fault)
{
    waiting w = {.st = st,
                 .of = of,
                 .version = version,
                 .deadline_ns = deadline_ns,
                 .marks = listen_target(&st->settings) != NULL};
    semel_err e = of == NULL ? SEMEL_OK : sm_pg_id(st, of->key, &w.id, fault);
    if (e != SEMEL_OK)
        return e;
    if (of != NULL)
        start_listening(st);
    sm_bell_bucket *b = sm_bell_of(&st->waits.bell, of == NULL ? NULL : of->key);
    uint64_t turn = sm_bell_enter(b);
    e = wait_inside(&w, b, turn, fault);
    sm_bell_leave(b);
    return e;
}
