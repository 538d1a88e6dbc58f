/* Threads of the library's own. */
#ifndef SM_BASE_THREAD_H
#define SM_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* Starts a thread that takes no signals: those are the program's business, whose handlers must not
 * run on threads that it does not know of. `name` has at most 15 characters. */
bool sm_thread_start(pthread_t *thread, void *(*body)(void *), void *context, const char *name);

/* The same with a stack of so many bytes, for threads that there are many of; 0: the system's. */
bool sm_thread_start_sized(pthread_t *thread, void *(*body)(void *), void *context,
                           const char *name, size_t stack_bytes);

#endif
