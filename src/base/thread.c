/* Starting threads. */
#include "base/thread.h"

#include <signal.h>

bool sm_thread_start(pthread_t *thread, void *(*body)(void *), void *context, const char *name)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(thread, NULL, body, context) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        pthread_setname_np(*thread, name);
    return started;
}
