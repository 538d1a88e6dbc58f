/*
 * The suite that every store is held to.
 *
 *     conformance            tests the store that SEMEL_STORE_URL names
 *     conformance --schemes  lists the stores that it knows
 *
 * A # in the URL becomes a number, so that each test has a ledger of its own: "sqlite:DIR/#.db".
 * SEMEL_STORE_PARTITIONS makes ledgers with so many partitions, where the store has such. A new
 * store needs a line in the list below, and no new test.
 */
#include "conformance.h"

#include "store/stores.h"

static const semel_store_ops *const stores[] = {
    &sm_store_memory,
    &sm_store_postgres,
    &sm_store_sqlite,
    &sm_store_redis,
};

static const semel_store_ops *store_of(const char *url)
{
    for (size_t i = 0; i < COUNT(stores); i++) {
        size_t n = strlen(stores[i]->scheme);
        if (strncmp(url, stores[i]->scheme, n) == 0 && url[n] == ':')
            return stores[i];
    }
    return NULL;
}

static const char *template_url;
static unsigned opened;

int ledger_name(void **state)
{
    ledger *l = calloc(1, sizeof *l);
    if (l == NULL)
        return -1;
    l->ops = store_of(template_url);
    const char *mark = strchr(template_url, '#');
    if (mark == NULL)
        snprintf(l->url, sizeof l->url, "%s", template_url);
    else
        snprintf(l->url, sizeof l->url, "%.*s%u%s", (int)(mark - template_url), template_url,
                 ++opened, mark + 1);
    desk_init(&l->desk);
    *state = l;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--schemes") == 0) {
        for (size_t i = 0; i < COUNT(stores); i++)
            puts(stores[i]->scheme);
        return 0;
    }
    template_url = getenv("SEMEL_STORE_URL");
    if (argc != 1 || template_url == NULL || store_of(template_url) == NULL) {
        fputs("usage: SEMEL_STORE_URL=URL conformance | conformance --schemes\n", stderr);
        return 64;
    }
    return opening_tests() + writing_tests() + refusing_tests() + reading_tests() +
           logging_tests() + waiting_tests() + keeping_tests() + racing_tests();
}
