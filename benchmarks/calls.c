/* The sample call, and one effect from begin to commit. */
#include "calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"

const char bench_sample[] =
    "{\"workflow_id\":\"order-123\",\"tool\":\"stripe.charge\",\"args\":{\"amount\":1000,"
    "\"currency\":\"usd\",\"customer\":\"cus_9s6XKzkNRiz8i3\",\"description\":\"Order 123\","
    "\"lines\":[{\"sku\":\"A1\",\"qty\":2,\"price\":9.99},{\"sku\":\"B2\",\"qty\":1,\"price\":19.5}"
    "]}}";
const size_t bench_sample_bytes = sizeof bench_sample - 1;
_Static_assert(sizeof bench_sample - 1 == 226, "the sample call is 226 bytes");

static semel_str text(const char *s)
{
    return (semel_str){s, strlen(s)};
}

void bench_must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "bench: %s\n", what);
    exit(70);
}

/* ---- calls -----------------------------------------------------------------------------------*/

semel_call bench_sample_call(void)
{
    const char *args = strstr(bench_sample, "\"args\":") + strlen("\"args\":");
    size_t behind = 1; /* the brace that closes the whole */
    size_t n = bench_sample_bytes - (size_t)(args - bench_sample) - behind;
    return (semel_call){.size = sizeof(semel_call),
                        .scope = text("order-123"),
                        .tool = text("stripe.charge"),
                        .args = {args, n}};
}

semel_call bench_order(uint64_t n, char args[BENCH_ARGS_MAX])
{
    int written =
        snprintf(args, BENCH_ARGS_MAX,
                 "{\"amount\":1000,\"currency\":\"usd\",\"customer\":\"cus_9s6XKzkNRiz8i3\","
                 "\"description\":\"%09llu\",\"lines\":[{\"sku\":\"A1\",\"qty\":2,\"price\":9.99},"
                 "{\"sku\":\"B2\",\"qty\":1,\"price\":19.5}]}",
                 (unsigned long long)n);
    semel_call call = bench_sample_call();
    call.args = (semel_str){args, (size_t)written};
    return call;
}

semel_outcome bench_outcome(void)
{
    return (semel_outcome){
        .size = sizeof(semel_outcome),
        .kind = SEMEL_SUCCESS,
        .value = text("{\"id\":\"ch_3Pq7LZ2eZvKYlo2C0kqT1xYb\",\"status\":\"succeeded\","
                      "\"amount\":1000}"),
    };
}

void bench_effect(semel *s, semel_answer *a, uint64_t n, double *begin_ns)
{
    char args[BENCH_ARGS_MAX], claim[128];
    semel_call call = bench_order(n, args);
    double start = bench_now_ns();
    semel_begin(s, &call, a);
    if (begin_ns != NULL)
        *begin_ns = bench_now_ns() - start;
    bench_must(a->verdict == SEMEL_EXECUTE && a->claim.n < sizeof claim,
               "a fresh call did not run");
    memcpy(claim, a->claim.p, a->claim.n);
    semel_outcome outcome = bench_outcome();
    semel_commit(s, (semel_str){claim, a->claim.n}, &outcome, a);
    bench_must(a->verdict == SEMEL_DONE, "a commit was refused");
}
