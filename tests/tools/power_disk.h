/*
 * The contents of a disk after a power loss, made from a recording of what programs did (power.h).
 *
 * Everything that was synced is there. Every other write and truncation is there, or not, or torn
 * between sectors, in any combination. A name that was made or removed since its directory was
 * synced is in any of its states. A failed sync of a file makes that choice at once and for ever:
 * data that it did not keep is lost unless it is written anew, although programs still see it. A
 * failed sync of a directory changes nothing: a file system with a journal tries again, or stops.
 */
#ifndef SM_TESTS_POWER_DISK_H
#define SM_TESTS_POWER_DISK_H

#include <stdbool.h>
#include <stddef.h>

#include "power.h"

/* Disks that break their promise, to see that it is noticed. */
typedef enum power_lie {
    POWER_HONEST,
    POWER_LIE_SYNC,  /* a sync does nothing */
    POWER_LIE_ORDER, /* half of what is synced is written later */
    POWER_LIE_NAMES  /* the sync of a directory does nothing */
} power_lie;

/* A recording in memory. */
typedef struct power_log {
    char *bytes;
    const power_record **records;
    size_t count;
} power_log;

void power_log_read(power_log *log, const char *path); /* or ends the program */
void power_log_free(power_log *log);

/* Makes the files of a disk whose power failed after the first `count` records, in the directory
 * `to`, which exists. `seed` decides what is left of what was not synced. */
void power_disk_make(const power_log *log, size_t count, uint64_t seed, power_lie lie,
                     const char *to);

#endif
