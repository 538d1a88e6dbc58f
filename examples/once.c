/*
 * The C API in one page: an effect that happens once, however often the program is run.
 *
 *     cc once.c $(pkg-config --cflags --libs semel) -o once
 *     ./once order-123        charges
 *     ./once order-123        says what was charged, and does not charge
 */
#include <semel/semel.h>
#include <stdio.h>
#include <string.h>

/* The side effect. `execute->idempotency_key` is what a payment provider would be given. */
static void charge(void *context, const semel_answer *execute, semel_outcome *outcome)
{
    (void)context;
    printf("charging, with the key %.*s\n", (int)execute->idempotency_key.n,
           execute->idempotency_key.p);
    outcome->value = semel_text("{\"charge\": \"ch_1\"}");
}

/* Without a contract, a tool is remembered for ten minutes only. */
static const char contract[] = "version: 1\n"
                               "tools:\n"
                               "  charge: { class: irreversible, window: forever }\n";

int main(int argc, char **argv)
{
    semel_options options;
    semel_call call;
    semel_fault fault;
    semel *ledger = NULL;
    int status = 1;
    memset(&options, 0, sizeof options);
    memset(&call, 0, sizeof call);
    options.size = sizeof options;
    options.contract = semel_text(contract);
    call.size = sizeof call;
    call.scope = semel_text(argc > 1 ? argv[1] : "order-1");
    call.tool = semel_text("charge");
    call.args = semel_text("{\"amount\": 1000}");
    call.wait_ms = 30000;

    if (semel_open(&options, &ledger, &fault) != SEMEL_OK) {
        fprintf(stderr, "%s\n", fault.text);
        return status;
    }
    semel_answer *a = semel_answer_new();
    if (a != NULL && semel_run(ledger, &call, charge, NULL, a) == SEMEL_OK &&
        a->verdict != SEMEL_REFUSED) {
        printf("%s: %.*s\n", a->executed ? "done now" : "done before", (int)a->outcome.value.n,
               a->outcome.value.p);
        status = 0;
    } else if (a != NULL) {
        fprintf(stderr, "%s: %.*s\n", semel_code_name(a->code), (int)a->message.n, a->message.p);
    }
    semel_answer_free(a);
    semel_close(ledger);
    return status;
}
