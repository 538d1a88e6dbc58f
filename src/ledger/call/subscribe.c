/* Subscriptions: a thread that waits for events and passes them on. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "ledger/work/ledger.h"

#define PAGE    500u
#define WAIT_MS 1000

struct semel_subscription {
    semel *s;
    semel_event_sink *sink;
    void *context;
    uint64_t after;
    pthread_t thread;
    atomic_bool stop;
};

static bool pass_on(void *context, const semel_event *e)
{
    semel_subscription *sub = context;
    if (!atomic_load(&sub->stop) && !sub->sink(sub->context, e))
        atomic_store(&sub->stop, true);
    return !atomic_load(&sub->stop);
}

/* A store that cannot be read now is asked again: a subscription outlives its troubles. */
static void *follow(void *context)
{
    semel_subscription *sub = context;
    const semel *s = sub->s;
    while (!atomic_load(&sub->stop)) {
        uint64_t before = sub->after;
        sm_err e = s->ops->events(s->store, NULL, &sub->after, PAGE, pass_on, sub, NULL);
        if (e == SM_OK && sub->after != before)
            continue;
        struct timespec pause = {.tv_nsec = 100000000};
        int64_t until = sm_clock_deadline_ns(WAIT_MS);
        if (e != SM_OK)
            nanosleep(&pause, NULL);
        else
            s->ops->wait(s->store, NULL, sub->after, until, NULL);
    }
    return NULL;
}

semel_err semel_subscribe(semel *s, uint64_t after, semel_event_sink *sink, void *context,
                          semel_subscription **out, semel_fault *fault)
{
    *out = NULL;
    semel_subscription *sub = calloc(1, sizeof *sub);
    if (sub == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    sub->s = s;
    sub->sink = sink;
    sub->context = context;
    sub->after = after;
    if (!sm_thread_start(&sub->thread, follow, sub, "semel-events")) {
        free(sub);
        return sm_fault_set(fault, SEMEL_E_NOMEM, "no thread can be started");
    }
    *out = sub;
    return SM_OK;
}

void semel_unsubscribe(semel_subscription *sub)
{
    if (sub == NULL)
        return;
    atomic_store(&sub->stop, true);
    pthread_join(sub->thread, NULL);
    free(sub);
}
