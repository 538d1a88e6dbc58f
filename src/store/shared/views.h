/* What the views of ledgers in SQL have in common. */
#ifndef SM_STORE_SHARED_VIEWS_H
#define SM_STORE_SHARED_VIEWS_H

#include "base/buf.h"

/* The times of an effect: their columns, and what the view calls them. */
#define SM_VIEW_TIMES 8u
extern const struct sm_view_time {
    const char *column, *name;
} sm_view_times[SM_VIEW_TIMES];

/* Puts the state in words, as a column of that name. */
void sm_view_state(sm_buf *b);

#endif
