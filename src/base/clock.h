/* The clocks: what time it is, for records; and how time passes, for waiting. */
#ifndef SM_BASE_CLOCK_H
#define SM_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Milliseconds since 1970. */
static inline int64_t sm_clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Nanoseconds since some moment; never goes back. */
static inline int64_t sm_clock_mono_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Milliseconds since some moment; never goes back, and goes on while the machine sleeps. */
static inline int64_t sm_clock_boot_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* So many milliseconds from now, for waiting; far away if that is very long. */
static inline int64_t sm_clock_deadline_ns(int64_t ms)
{
    int64_t now = sm_clock_mono_ns(), most = (INT64_MAX - now) / 2000000;
    return now + (ms < most ? ms : most) * 1000000;
}

#endif
