/*
 * What the programs that put a load on a ledger share. They know the library by its public header
 * alone, as its users do.
 */
#ifndef SM_TESTS_TOOL_H
#define SM_TESTS_TOOL_H

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "semel/semel.h"

#define TEXT(literal) ((semel_str){(literal), sizeof(literal) - 1})
#define FMT(s)        (int)(s).n, (s).p != NULL ? (s).p : ""

static inline semel_str text_of(const char *s)
{
    return (semel_str){s, strlen(s)};
}

/* Says on stderr what is wrong, and ends the program with 70: the test itself did not work. */
__attribute__((format(printf, 1, 2), noreturn)) static inline void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(70);
}

static inline int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* FNV-1a: tells values apart that nobody chose to be alike. */
static inline uint64_t hash_bytes(semel_str s)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (uint8_t)s.p[i]) * 1099511628211u;
    return h;
}

/* The next number of a stream that its seed decides. */
static inline uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* A line into a file that others append to as well: whole, or the program ends. */
static inline void append_line(int fd, const char *line, size_t n)
{
    ssize_t wrote = write(fd, line, n);
    if (wrote != (ssize_t)n)
        die("a line was not written: %s", strerror(errno));
}

static inline int open_log(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        die("%s cannot be written: %s", path, strerror(errno));
    return fd;
}

/* `url` may be NULL: then it is in the environment, where ps(1) does not show it. */
static inline semel *open_ledger(const char *url, const char *contract)
{
    semel *s = NULL;
    semel_fault fault = {0};
    semel_options o = {.size = sizeof o, .url = url, .actor = TEXT("test")};
    if (contract != NULL)
        o.contract = text_of(contract);
    if (semel_open(&o, &s, &fault) != SEMEL_OK)
        die("the ledger was not opened: %s", fault.text);
    return s;
}

static inline bool print_flaw(void *context, semel_str text)
{
    (void)context;
    printf("flaw: %.*s\n", FMT(text));
    return true;
}

/* Checks the audit trail and what the store can check of itself; prints what it found. */
static inline bool verify_ledger(semel *s)
{
    semel_verified v = {.size = sizeof v};
    semel_fault fault = {0};
    semel_stats stats = {.size = sizeof stats};
    semel_err e = semel_verify(s, print_flaw, NULL, NULL, &v, &fault);
    if (e == SEMEL_OK)
        e = semel_stats_get(s, true, &stats, &fault);
    if (e != SEMEL_OK)
        printf("verify: %s: %s\n", semel_err_name(e), fault.text);
    else
        printf("verify: %" PRIu64 " events, %" PRIu64 " effects, %" PRIu64 " seals, %" PRIu64
               " flaws\n",
               v.events, v.effects, v.seals, v.flaws);
    return e == SEMEL_OK && v.flaws == 0 && v.events > 0;
}

#endif
