/*
 * The client's thread. Others leave what they ask in a list and wake it; everything else is done
 * here, so that an exchange needs no lock.
 *
 * libcurl is driven by the sockets that are ready (epoll), not by looking at all of them: an
 * upstream that is slow to answer costs the others nothing.
 */
#include "upstream/http.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "upstream/client/engine.h"

#define MS ((int64_t)1000000)

/* ---- what others ask -------------------------------------------------------------------------*/

static void wake(sm_http *h)
{
    uint64_t one = 1;
    ssize_t n = write(h->wake, &one, sizeof one);
    (void)n; /* it is full only if the thread is awake already */
}

/* Leaves a wish. False: the client is stopping, and would not hear it. */
static bool ask(sm_http_exchange *x, unsigned what)
{
    sm_http *h = x->http;
    pthread_mutex_lock(&h->lock);
    bool heard = !h->stopping, first = heard && !h->woken;
    if (heard) {
        if (x->asked == 0) {
            x->asked_next = NULL;
            *h->asked_end = x;
            h->asked_end = &x->asked_next;
        }
        x->asked |= what;
        h->woken = true;
    }
    pthread_mutex_unlock(&h->lock);
    if (first)
        wake(h);
    return heard;
}

sm_err sm_http_send(sm_http *h, const sm_http_request *request, int64_t pause_ms,
                    const sm_http_callbacks *callbacks, sm_http_exchange **out)
{
    assert(callbacks->done != NULL && (!request->trickle || callbacks->data != NULL));
    sm_http_exchange *x;
    sm_err e = sm_http_copy(request, &x);
    if (e != SM_OK)
        return e;
    x->http = h;
    x->callbacks = *callbacks;
    x->pause_ms = pause_ms;
    if (out != NULL)
        *out = x;
    atomic_fetch_add(&h->under_way, 1);
    if (ask(x, ASK_START))
        return SM_OK;
    atomic_fetch_sub(&h->under_way, 1);
    free(x);
    return SEMEL_E_UNAVAILABLE;
}

void sm_http_resume(sm_http_exchange *x)
{
    ask(x, ASK_RESUME);
}

void sm_http_cancel(sm_http_exchange *x)
{
    ask(x, ASK_CANCEL);
}

size_t sm_http_under_way(sm_http *h)
{
    return atomic_load(&h->under_way);
}

/* ---- the life of an exchange -----------------------------------------------------------------*/

/* Whoever was asked something of while it ended is not to be found in the list any more. */
static void forget_wishes(sm_http *h, sm_http_exchange *x)
{
    pthread_mutex_lock(&h->lock);
    if (x->asked != 0) {
        sm_http_exchange **at = &h->asked;
        while (*at != x)
            at = &(*at)->asked_next;
        *at = x->asked_next;
        if (h->asked_end == &x->asked_next)
            h->asked_end = at;
    }
    pthread_mutex_unlock(&h->lock);
}

static void give_back(sm_http *h, carrier *c)
{
    if (c == NULL)
        return;
    if (h->spares >= SM_HTTP_CARRIERS) {
        sm_http_carrier_free(c);
        return;
    }
    sm_http_carrier_clear(c);
    c->next = h->spare;
    h->spare = c;
    h->spares++;
}

static void finish(sm_http *h, sm_http_exchange *x, CURLcode code)
{
    sm_http_result result;
    sm_http_conclude(x, code, &result);
    sm_timer_clear(&h->timers, &x->timer);
    if (x->carrier != NULL)
        curl_multi_remove_handle(h->multi, x->carrier->easy);
    *(x->previous == NULL ? &h->all : &x->previous->next) = x->next;
    if (x->next != NULL)
        x->next->previous = x->previous;
    x->callbacks.done(x->callbacks.context, &result);
    give_back(h, x->carrier);
    forget_wishes(h, x);
    free(x);
    atomic_fetch_sub(&h->under_way, 1);
    h->quiet_ns = sm_clock_mono_ns();
}

/* False: it has ended already. */
static bool begin(sm_http *h, sm_http_exchange *x)
{
    x->began_ns = sm_clock_mono_ns();
    x->carrier = h->spare;
    if (x->carrier != NULL) {
        h->spare = x->carrier->next;
        h->spares--;
    } else {
        x->carrier = sm_http_carrier_new(h);
    }
    if (x->carrier == NULL || !sm_http_load(x) ||
        !sm_timer_set(&h->timers, &x->timer, sm_clock_deadline_ns(x->timeout_ms)) ||
        curl_multi_add_handle(h->multi, x->carrier->easy) != CURLM_OK) {
        x->failed = "out of memory";
        finish(h, x, CURLE_OUT_OF_MEMORY);
        return false;
    }
    h->used = true;
    return true;
}

/* False: it has ended already. */
static bool start(sm_http *h, sm_http_exchange *x)
{
    x->next = h->all;
    if (x->next != NULL)
        x->next->previous = x;
    h->all = x;
    if (x->pause_ms <= 0)
        return begin(h, x);
    if (sm_timer_set(&h->timers, &x->timer, sm_clock_deadline_ns(x->pause_ms)))
        return true;
    x->failed = "out of memory";
    finish(h, x, CURLE_OUT_OF_MEMORY);
    return false;
}

static void resume(sm_http *h, sm_http_exchange *x)
{
    if (!x->paused)
        return;
    x->paused = false;
    x->heard_ns = sm_clock_mono_ns();
    CURLcode e = curl_easy_pause(x->carrier->easy, CURLPAUSE_CONT); /* may call on_body */
    if (e != CURLE_OK)
        finish(h, x, e);
}

/* Does what was asked meanwhile. Wishes are taken over together; an exchange that ends while the
 * others are worked through cannot be one of them. */
static void hear(sm_http *h)
{
    pthread_mutex_lock(&h->lock);
    sm_http_exchange *list = h->asked;
    for (sm_http_exchange *x = list; x != NULL; x = x->asked_next) {
        x->todo = x->asked;
        x->todo_next = x->asked_next; /* it may be asked again while we are at it */
        x->asked = 0;
    }
    h->asked = NULL;
    h->asked_end = &h->asked;
    h->woken = false;
    pthread_mutex_unlock(&h->lock);
    while (list != NULL) {
        sm_http_exchange *x = list;
        list = x->todo_next;
        unsigned todo = x->todo;
        if (todo & ASK_CANCEL && todo & ASK_START)
            x->pause_ms = INT64_MAX; /* it is not to begin at all */
        if (todo & ASK_START && !start(h, x))
            continue;
        if (todo & ASK_CANCEL) {
            x->failed = "given up";
            finish(h, x, CURLE_ABORTED_BY_CALLBACK);
        } else if (todo & ASK_RESUME) {
            resume(h, x);
        }
    }
}

/* An exchange whose time has come: to begin, or to be over. */
static void strike(sm_http *h, sm_http_exchange *x, int64_t now_ns)
{
    if (x->carrier == NULL) {
        sm_timer_clear(&h->timers, &x->timer);
        begin(h, x);
        return;
    }
    if (x->trickle && x->head_whole) {
        int64_t since = x->paused ? now_ns : x->heard_ns;
        if (since + x->timeout_ms * MS > now_ns &&
            sm_timer_set(&h->timers, &x->timer, since + x->timeout_ms * MS))
            return;
    }
    x->timed_out = true;
    finish(h, x, CURLE_OPERATION_TIMEDOUT);
}

/* ---- libcurl ---------------------------------------------------------------------------------*/

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *context, void *known)
{
    (void)easy;
    sm_http *h = context;
    struct epoll_event e = {.data.fd = fd};
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(h->epoll, EPOLL_CTL_DEL, fd, &e);
        return 0;
    }
    e.events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
    curl_multi_assign(h->multi, fd, h); /* `known` from now on */
    if (epoll_ctl(h->epoll, known == NULL ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &e) != 0)
        epoll_ctl(h->epoll, known == NULL ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &e);
    return 0;
}

static CURLM *multi_new(sm_http *h)
{
    CURLM *m = curl_multi_init();
    if (m == NULL)
        return NULL;
    curl_multi_setopt(m, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(m, CURLMOPT_SOCKETDATA, h);
    curl_multi_setopt(m, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    curl_multi_setopt(m, CURLMOPT_MAXCONNECTS, (long)SM_HTTP_CONNECTIONS);
    return m;
}

/* Nothing was sent on a connection that was not clean; libcurl has closed it. */
static bool begin_again(sm_http *h, sm_http_exchange *x)
{
    if (!x->stale)
        return false;
    x->stale = false;
    x->fresh = true;
    curl_multi_remove_handle(h->multi, x->carrier->easy);
    sm_http_carrier_clear(x->carrier);
    return sm_http_load(x) && curl_multi_add_handle(h->multi, x->carrier->easy) == CURLM_OK;
}

static void collect(sm_http *h)
{
    CURLMsg *m;
    int left;
    while ((m = curl_multi_info_read(h->multi, &left)) != NULL) {
        void *x = NULL;
        CURLcode code = m->data.result;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &x);
        if (!begin_again(h, x))
            finish(h, x, code);
    }
}

/* Nothing happened for a while: connections that are still open are of no use. libcurl ends those
 * only when it looks for another one. */
static void rest(sm_http *h)
{
    CURLM *fresh = multi_new(h);
    h->used = false;
    if (fresh == NULL)
        return;
    curl_multi_cleanup(h->multi);
    h->multi = fresh;
    while (h->spare != NULL) {
        carrier *c = h->spare;
        h->spare = c->next;
        sm_http_carrier_free(c);
    }
    h->spares = 0;
}

/* Does what is due by time. Returns how long nothing will be, in milliseconds; -1: for ever. */
static int tick(sm_http *h)
{
    int64_t now = sm_clock_mono_ns();
    for (sm_timer *t = sm_timer_first(&h->timers); t != NULL && t->due_ns <= now;
         t = sm_timer_first(&h->timers))
        strike(h, SM_CONTAINER(t, sm_http_exchange, timer), now);
    long curl_ms = -1;
    curl_multi_timeout(h->multi, &curl_ms);
    if (curl_ms == 0) {
        int running;
        curl_multi_socket_action(h->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        collect(h);
        curl_multi_timeout(h->multi, &curl_ms);
    }
    int64_t due = curl_ms < 0 ? INT64_MAX : sm_clock_deadline_ns(curl_ms);
    const sm_timer *first = sm_timer_first(&h->timers);
    if (first != NULL && first->due_ns < due)
        due = first->due_ns;
    if (h->all == NULL && h->used) {
        int64_t end = h->quiet_ns + SM_HTTP_IDLE_S * 1000 * MS;
        if (end <= now)
            rest(h);
        else if (end < due)
            due = end;
    }
    if (due == INT64_MAX)
        return -1;
    now = sm_clock_mono_ns();
    int64_t ms = due <= now ? 0 : (due - now + MS - 1) / MS;
    return ms > 60000 ? 60000 : (int)ms;
}

static void serve_sockets(sm_http *h, int timeout_ms)
{
    struct epoll_event events[128];
    int n = epoll_wait(h->epoll, events, 128, timeout_ms), running;
    for (int i = 0; i < n; i++) {
        unsigned ready = events[i].events;
        int fd = events[i].data.fd;
        if (fd == h->wake) {
            uint64_t count;
            ssize_t r = read(fd, &count, sizeof count);
            (void)r;
            continue;
        }
        int what = (ready & EPOLLIN ? CURL_CSELECT_IN : 0) |
                   (ready & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                   (ready & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
        curl_multi_socket_action(h->multi, fd, what, &running);
    }
    if (n > 0)
        collect(h);
}

static bool is_stopping(sm_http *h)
{
    pthread_mutex_lock(&h->lock);
    bool stopping = h->stopping;
    pthread_mutex_unlock(&h->lock);
    return stopping;
}

static void *work(void *context)
{
    sm_http *h = context;
    while (!is_stopping(h)) {
        hear(h);
        int timeout_ms = tick(h);
        serve_sockets(h, timeout_ms);
    }
    hear(h); /* what was asked before the end is part of it */
    while (h->all != NULL) {
        h->all->failed = "the client was stopped";
        finish(h, h->all, CURLE_ABORTED_BY_CALLBACK);
    }
    return NULL;
}

/* ---- start and stop --------------------------------------------------------------------------*/

static CURLcode global_result;
static void global_init(void)
{
    global_result = curl_global_init(CURL_GLOBAL_DEFAULT);
}

static void release(sm_http *h)
{
    while (h->spare != NULL) {
        carrier *c = h->spare;
        h->spare = c->next;
        sm_http_carrier_free(c);
    }
    if (h->multi != NULL)
        curl_multi_cleanup(h->multi);
    if (h->share != NULL)
        curl_share_cleanup(h->share);
    if (h->epoll >= 0)
        close(h->epoll);
    if (h->wake >= 0)
        close(h->wake);
    pthread_mutex_destroy(&h->lock);
    sm_timers_fini(&h->timers);
    free(h->sockets);
    free(h->ca_file);
    free(h);
}

sm_err sm_http_start(const char *ca_file, sm_http **out, sm_fault *fault)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    *out = NULL;
    pthread_once(&once, global_init);
    if (ca_file != NULL && access(ca_file, R_OK) != 0)
        return sm_fault_set(fault, SEMEL_E_INVALID, "cannot read the certificates in %s: %s",
                            ca_file, strerror(errno));
    sm_http *h = calloc(1, sizeof *h);
    if (h == NULL || global_result != CURLE_OK) {
        free(h);
        return sm_fault_set(fault, SEMEL_E_NOMEM, "the HTTP client cannot be started");
    }
    pthread_mutex_init(&h->lock, NULL);
    h->asked_end = &h->asked;
    h->epoll = epoll_create1(EPOLL_CLOEXEC);
    h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    h->multi = multi_new(h);
    h->share = curl_share_init();
    h->ca_file = ca_file == NULL ? NULL : strdup(ca_file);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = h->wake};
    if (h->multi == NULL || h->share == NULL || (ca_file != NULL && h->ca_file == NULL) ||
        curl_share_setopt(h->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION) != CURLSHE_OK ||
        epoll_ctl(h->epoll, EPOLL_CTL_ADD, h->wake, &e) != 0 ||
        !sm_thread_start(&h->thread, work, h, "semel-http")) {
        release(h);
        return sm_fault_set(fault, SEMEL_E_IO, "the HTTP client cannot be started: %s",
                            strerror(errno));
    }
    *out = h;
    return SM_OK;
}

void sm_http_stop(sm_http *h)
{
    if (h == NULL)
        return;
    pthread_mutex_lock(&h->lock);
    h->stopping = true;
    pthread_mutex_unlock(&h->lock);
    wake(h);
    pthread_join(h->thread, NULL);
}

void sm_http_free(sm_http *h)
{
    if (h != NULL)
        release(h);
}
