/*
 * One effect against a downstream that counts, for crash tests.
 *
 *     tool_effect_once LEDGER_URL KEY COUNTER_FILE
 *
 * Appends one line to the counter file if the ledger says so, and tells on stdout, line by line,
 * what it has been promised: "executing", "committed VALUE", "replayed VALUE" or "refused CODE". A
 * line is written only after the promise was given, so whoever reads it may hold the ledger to it.
 *
 * Exit status: 0 committed or replayed, 1 refused, 70 when the counter cannot be written.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "semel/semel.h"

static semel_str text(const char *s)
{
    return (semel_str){s, strlen(s)};
}

static void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void tell(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    fflush(stdout);
}

/* The side effect: durable, and countable afterwards. */
static bool count_once(const char *path, const char *key)
{
    char line[600];
    int n = snprintf(line, sizeof line, "%s\n", key);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool done = write(fd, line, (size_t)n) == n && fsync(fd) == 0;
    return close(fd) == 0 && done;
}

static int perform(semel *s, semel_answer *a, const char *key, const char *counter)
{
    char claim[256], value[600];
    snprintf(claim, sizeof claim, "%.*s", (int)a->claim.n, a->claim.p);
    tell("executing\n");
    if (!count_once(counter, key))
        return 70;
    snprintf(value, sizeof value, "{\"counted\":\"%s\",\"by\":%ld}", key, (long)getpid());
    semel_outcome outcome = {.size = sizeof outcome, .kind = SEMEL_SUCCESS, .value = text(value)};
    if (semel_commit(s, text(claim), &outcome, a) != SEMEL_OK || a->verdict == SEMEL_REFUSED) {
        tell("refused %s\n", semel_code_name(a->code));
        return 1;
    }
    tell("committed %s\n", value);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 64;
    semel_options options = {.size = sizeof options, .url = argv[1]};
    semel_fault fault = {0};
    semel *s = NULL;
    if (semel_open(&options, &s, &fault) != SEMEL_OK) {
        fprintf(stderr, "%s\n", fault.text);
        tell("refused OPEN\n");
        return 1;
    }
    semel_answer *a = semel_answer_new();
    semel_call call = {.size = sizeof call,
                       .scope = text("crash"),
                       .tool = text("count"),
                       .key = text(argv[2]),
                       .args = text("{}")};
    int code = 1;
    if (a == NULL || semel_begin(s, &call, a) != SEMEL_OK || a->verdict == SEMEL_REFUSED) {
        tell("refused %s\n", a == NULL ? "NOMEM" : semel_code_name(a->code));
    } else if (a->verdict == SEMEL_EXECUTE) {
        code = perform(s, a, argv[2], argv[3]);
    } else {
        tell("replayed %.*s\n", (int)a->outcome.value.n, a->outcome.value.p);
        code = 0;
    }
    semel_answer_free(a);
    semel_close(s);
    return code;
}
