/* The stores that come with the library: one symbol each. */
#ifndef SM_STORE_STORES_H
#define SM_STORE_STORES_H

#include "semel/store.h"

extern const semel_store_ops sm_store_memory, sm_store_postgres, sm_store_sqlite;
extern const semel_store_ops sm_store_redis, sm_store_rediss; /* the latter says why not */

/* What opening a ledger in a file would say of its place: its directory, owners and permissions.
 * Nothing is opened or made. `default_place` as in semel_store_env. */
semel_err sm_sqlite_place(semel_str url, bool default_place, semel_fault *fault);

#endif
