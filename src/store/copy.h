/* Copies of records, for those who asked. */
#ifndef SM_STORE_COPY_H
#define SM_STORE_COPY_H

#include "semel/store.h"

/* How many bytes a record's texts have. */
size_t sm_record_bytes(const semel_record *r);

/* Copies a record, its texts into the caller's room; absent texts stay absent and empty ones empty.
 * The two may be the same record. SEMEL_E_NOMEM. */
semel_err sm_record_copy(const semel_record *from, semel_room *room, semel_record *to);

#endif
