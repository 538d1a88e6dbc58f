/* Starting threads. */
#include "base/thread.h"

#include <signal.h>

bool sm_thread_start_sized(pthread_t *thread, void *(*body)(void *), void *context,
                           const char *name, size_t stack_bytes)
{
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    if (stack_bytes > 0)
        pthread_attr_setstacksize(&attributes, stack_bytes);

    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(thread, &attributes, body, context) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (started)
        pthread_setname_np(*thread, name);
    return started;
}

bool sm_thread_start(pthread_t *thread, void *(*body)(void *), void *context, const char *name)
{
    return sm_thread_start_sized(thread, body, context, name, 0);
}
