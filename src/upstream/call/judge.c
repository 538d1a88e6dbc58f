/* What came back, and what it proves. */
#include <curl/curl.h>
#include <stdlib.h>

#include "upstream/upstream.h"

#define RETRY_AFTER_MAX_MS ((int64_t)60000)
#define DAY_MS             ((int64_t)24 * 3600 * 1000)

/* Seconds, or a moment; at most a day. */
static int64_t retry_after(const sm_http_result *r, int64_t now_ms)
{
    sm_str s = sm_header_find(r->headers, r->header_count, "Retry-After");
    char text[64];
    if (s.n == 0 || s.n >= sizeof text)
        return 0;
    memcpy(text, s.p, s.n);
    text[s.n] = '\0';
    int64_t ms;
    if (strspn(text, "0123456789") == s.n) {
        ms = s.n > 6 ? DAY_MS : strtoll(text, NULL, 10) * 1000;
    } else {
        time_t then = curl_getdate(text, NULL);
        ms = then < 0 ? 0 : (int64_t)then * 1000 - now_ms;
    }
    return ms < 0 ? 0 : ms > DAY_MS ? DAY_MS : ms;
}

/* 301 and 302 do not say so: many servers answer with them once they have done it, whatever the
 * method was. */
bool sm_http_sends_on(int status)
{
    return status == 307 || status == 308;
}

/*
 *     nothing sent                     not applied, passes
 *     sent, no whole answer            unknown
 *     307, 308                         not applied: it is to be sent to another place
 *     2xx, other 3xx                   the answer; redirects are not followed
 *     408, 425, 429                    not applied, passes
 *     503 where it is declared         not applied, passes
 *     other 4xx                        not applied: rejected
 *     1xx at the end, other 5xx, else  unknown
 *
 * Redirects and what is rejected say nothing against the upstream; every other failure does.
 */
void sm_upstream_judge(const sm_upstream_call *up, const sm_http_result *r, int64_t now_ms,
                       sm_upstream_ruling *out)
{
    *out = (sm_upstream_ruling){
        .kind = SEMEL_FAILURE, .applied = SEMEL_APPLIED_UNKNOWN, .health = SM_HEALTH_FAILED};
    if (!r->complete) {
        if (!r->sent) {
            out->applied = SEMEL_APPLIED_NO;
            out->passing = true;
        }
        return;
    }
    out->retry_after_ms = retry_after(r, now_ms);
    int s = r->status;
    if (sm_http_sends_on(s)) {
        out->applied = SEMEL_APPLIED_NO;
        out->elsewhere = true;
        out->health = SM_HEALTH_ANSWERED;
    } else if (s >= 200 && s < 400) {
        out->kind = SEMEL_SUCCESS;
        out->applied = SEMEL_APPLIED_DEFAULT;
        out->health = SM_HEALTH_WELL;
    } else if (s == 408 || s == 425 || s == 429 || (s == 503 && up->rejects_before_work)) {
        out->applied = SEMEL_APPLIED_NO;
        out->passing = true;
    } else if (s >= 400 && s < 500) {
        out->applied = SEMEL_APPLIED_NO;
        out->health = SM_HEALTH_ANSWERED;
    }
}

bool sm_upstream_gives_back(const sm_upstream_ruling *ruling, bool replays_failures, bool resends)
{
    return ruling->elsewhere || (ruling->passing && (replays_failures || resends));
}

int64_t sm_upstream_pause(const sm_retry *retry, int64_t attempt, int64_t retry_after_ms,
                          uint64_t random)
{
    int64_t pause = retry->backoff_ms;
    for (int64_t i = 1; i < attempt && pause < retry->max_backoff_ms; i++)
        pause = pause > retry->max_backoff_ms / 2 ? retry->max_backoff_ms : pause * 2;
    if (pause > retry->max_backoff_ms)
        pause = retry->max_backoff_ms;
    /* Half of it is by chance, so that those who failed together do not come back together. */
    pause = pause - pause / 2 + (int64_t)(random % (uint64_t)(pause / 2 + 1));
    int64_t asked = retry_after_ms < RETRY_AFTER_MAX_MS ? retry_after_ms : RETRY_AFTER_MAX_MS;
    return pause < asked ? asked : pause;
}
