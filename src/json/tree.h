/* What makes trees: shared by the readers and by projection. */
#ifndef SM_JSON_TREE_H
#define SM_JSON_TREE_H

#include <endian.h>

#include "base/utf8.h"
#include "json/json.h"

/* The first eight bytes of a name as one integer, most significant byte first, which decides nearly
 * every comparison of names. Bytes are ranked as sm_utf16_rank says, so that integer order is
 * UTF-16 order; names that agree here must be compared to their end. */
static inline uint64_t sm_json_prefix(const sm_json *name)
{
    uint64_t v;
    memcpy(&v, name->text, sizeof v); /* text is padded: always readable */
    if (name->flags & SM_JSON_WIDE) {
        unsigned char bytes[8];
        memcpy(bytes, &v, sizeof v);
        for (int i = 0; i < 8; i++)
            bytes[i] = sm_utf16_rank(bytes[i]);
        memcpy(&v, bytes, sizeof v);
    }
    static const uint64_t masks[9] = {
        0,
        0xFF00000000000000u,
        0xFFFF000000000000u,
        0xFFFFFF0000000000u,
        0xFFFFFFFF00000000u,
        0xFFFFFFFFFF000000u,
        0xFFFFFFFFFFFF0000u,
        0xFFFFFFFFFFFFFF00u,
        0xFFFFFFFFFFFFFFFFu,
    };
    return be64toh(v) & masks[name->len < 8 ? name->len : 8];
}

/* Finishes an object whose members stand behind it: computes `order`. If two names are equal,
 * returns SEMEL_E_DUPLICATE and points *again at the later one. */
sm_err sm_json_close_object(sm_arena *a, sm_json *object, const sm_json **again);

#endif
