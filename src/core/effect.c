/* The executable twin of the diagram in transition.h. */
#include "core/effect.h"

static const char *doubts_flaw(const sm_effect *e)
{
    for (uint32_t i = 0; i < e->doubt_count; i++) {
        if (e->doubts[i] <= e->base_fence || e->doubts[i] > e->fence)
            return "a doubt is about no attempt of this generation";
        if (i > 0 && e->doubts[i] <= e->doubts[i - 1])
            return "doubts are not in order";
        if (e->state == SEMEL_S_RUNNING && e->doubts[i] == e->fence)
            return "the running attempt is in doubt already";
    }
    return NULL;
}

const char *sm_effect_flaw(const sm_effect *e)
{
    bool settled = semel_state_settled(e->state), running = e->state == SEMEL_S_RUNNING;
    if (e->state >= SEMEL_S_COUNT)
        return "not a state";
    if (e->state != SEMEL_S_NONE && e->generation == 0)
        return "an effect without a generation";
    if (e->base_fence > e->fence || e->attempt != e->fence - e->base_fence)
        if (e->state != SEMEL_S_NONE)
            return "attempts and fences do not agree";
    if (running && (e->attempt == 0 || e->lease_end == 0))
        return "running without an attempt or a lease";
    if (!running && (e->lease_end != 0 || e->resending || e->late != 0))
        return "a lease, a resend or a late success without a running attempt";
    if (e->late != 0 && (e->late <= e->base_fence || e->late > e->fence))
        return "a late success of no attempt"; /* a stray one has the fence of what runs */
    if (e->state == SEMEL_S_IN_DOUBT && e->doubt_count == 0)
        return "in doubt about nothing";
    if (e->state != SEMEL_S_IN_DOUBT && !running && e->doubt_count != 0)
        return "a doubt outside of in_doubt and running (I16)";
    if (e->state == SEMEL_S_PENDING &&
        (e->request == 0 || e->quorum == 0 || e->approvals >= e->quorum || e->approved))
        return "pending without an open request";
    if (e->approved && (e->state != SEMEL_S_READY || e->approvals < e->quorum))
        return "an approval that is not waiting to be used (I7)";
    if (settled != (e->settled_at != 0))
        return "settled without a time, or a time without being settled (I17)";
    if (settled && (e->window_end < e->settled_at || e->result_end > e->window_end))
        return "windows out of order";
    bool over = e->state == SEMEL_S_FAILED || e->state == SEMEL_S_NONE;
    if (e->applied && !over && !running && e->state != SEMEL_S_IN_DOUBT)
        return "applied, yet not failed";
    if (e->abandoned && !over)
        return "abandoned, yet not failed";
    return doubts_flaw(e);
}
