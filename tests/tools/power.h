/*
 * The recording of what programs do to the files of a ledger: written by the library that is loaded
 * into them (power_shim.c), read by the program that simulates power losses (power_check.c).
 *
 * One record after the other, in the order in which things were done, of all processes. A record is
 * this head, then `name` bytes, then `bytes` bytes.
 */
#ifndef SM_TESTS_POWER_H
#define SM_TESTS_POWER_H

#include <stdint.h>

typedef enum power_kind {
    POWER_MAKE = 1,    /* the name of a new file */
    POWER_DIRECTORY,   /* the name of a new directory */
    POWER_UNLINK,      /* a name is gone */
    POWER_WRITE,       /* bytes at `at` */
    POWER_TRUNCATE,    /* the file's size is `at` */
    POWER_SYNC,        /* a file, or a directory with its name */
    POWER_SYNC_FAILED, /* likewise, and what was not synced before will never be, unless written
                          anew */
    POWER_MARK         /* the bytes are a line that the program says: something was acknowledged */
} power_kind;

typedef struct power_record {
    uint32_t kind;
    uint32_t name; /* its length; relative to the recorded directory */
    uint64_t file; /* which one: its inode */
    uint64_t at;
    uint32_t bytes;
    int32_t process;
} power_record;

#endif
