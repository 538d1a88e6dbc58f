/* The stores that come with the library: one symbol each. */
#ifndef SM_STORE_STORES_H
#define SM_STORE_STORES_H

#include "semel/store.h"

extern const semel_store_ops sm_store_memory, sm_store_postgres, sm_store_sqlite;
extern const semel_store_ops sm_store_redis, sm_store_rediss; /* the latter says why not */

#endif
