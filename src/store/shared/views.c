/* Columns that every view of effects has. */
#include "store/shared/views.h"

#include "semel/types.h"

const struct sm_view_time sm_view_times[SM_VIEW_TIMES] = {
    {"created_at", "created"},    {"updated_at", "updated"},
    {"lease_end", "lease_end"},   {"due_at", "due"},
    {"settled_at", "settled"},    {"result_end", "result_end"},
    {"window_end", "window_end"}, {"purge_at", "purge"},
};

void sm_view_state(sm_buf *b)
{
    sm_buf_text(b, ", CASE state");
    for (int s = 0; s < SEMEL_S_COUNT; s++)
        sm_buf_printf(b, " WHEN %d THEN '%s'", s, semel_state_name((semel_state)s));
    sm_buf_text(b, " END AS state");
}
