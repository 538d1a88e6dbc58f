/* What stores do with records: copies for those who asked, and when there is something to purge. */
#ifndef SM_STORE_SHARED_COPY_H
#define SM_STORE_SHARED_COPY_H

#include "semel/store.h"

/* How many bytes a record's texts have. */
size_t sm_record_bytes(const semel_record *r);

/* Copies a record, its texts into the caller's room; absent texts stay absent and empty ones empty.
 * The two may be the same record. SEMEL_E_NOMEM. */
semel_err sm_record_copy(const semel_record *from, semel_room *room, semel_record *to);

/* Whether a write that changes a generation follows its newest event, `head`. The version alone
 * does not tell: if the store lost a record, another one may have reached the same version since.
 */
bool sm_write_follows(const semel_write *w, const semel_hash *head);

/* When purge next has something to take from a record; INT64_MAX: never. */
int64_t sm_record_next_purge(const semel_record *r);

/* A state as a store holds it; SEMEL_S_COUNT if it is not one. */
static inline uint8_t sm_record_state(int64_t stored)
{
    return (uint8_t)(stored < 0 || stored > SEMEL_S_COUNT ? SEMEL_S_COUNT : stored);
}

#endif
