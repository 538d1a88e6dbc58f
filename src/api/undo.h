/* What undoes what a run did: a part of the list. */
#ifndef SM_API_UNDO_H
#define SM_API_UNDO_H

#include "api/api.h"
#include "base/buf.h"

#define SM_UNDO_ITEMS 200 /* of an answer, unless a limit is given */

typedef struct sm_undo_part {
    uint64_t cursor; /* where it starts; then, where the next one does; 0: there is none */
    size_t limit;    /* of items */
    uint64_t todo;   /* so many of its items */
} sm_undo_part;

/* Writes items into a list until there are enough, or enough bytes, or nobody waits for them. */
sm_err sm_undo_part_put(sm_operation *op, semel_answer *a, sm_str scope, sm_undo_part *p,
                        sm_buf *out, sm_fault *fault);

/* Ends the list, and writes what it amounts to; `complete`: these are all items. */
void sm_undo_part_end(const sm_undo_part *p, bool complete, sm_buf *out);

#endif
