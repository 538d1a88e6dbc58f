/* The texts of the scripts, scripts/NAME.lua, as they were when this was built. */
#ifndef SM_STORE_REDIS_SCRIPT_TEXTS_H
#define SM_STORE_REDIS_SCRIPT_TEXTS_H

#include <stddef.h>

extern const char sm_rd_lua_write[], sm_rd_lua_watch[], sm_rd_lua_reap[], sm_rd_lua_number[],
    sm_rd_lua_dequeue[], sm_rd_lua_unnumber[], sm_rd_lua_seal[], sm_rd_lua_note_drop[],
    sm_rd_lua_check[], sm_rd_lua_group[];
extern const size_t sm_rd_lua_write_bytes, sm_rd_lua_watch_bytes, sm_rd_lua_reap_bytes,
    sm_rd_lua_number_bytes, sm_rd_lua_dequeue_bytes, sm_rd_lua_unnumber_bytes, sm_rd_lua_seal_bytes,
    sm_rd_lua_note_drop_bytes, sm_rd_lua_check_bytes, sm_rd_lua_group_bytes;

#endif
