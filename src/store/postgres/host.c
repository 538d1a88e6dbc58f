/*
 * Lists of hosts in the ledger's URL, taken apart.
 *
 * libpq moves on to the next host when one refuses, but not when one is silent: without blocking it
 * keeps no time. So it gets one host at a time, and whoever connects keeps the time of each. The
 * several addresses of one name stay libpq's business.
 *
 * `host`, `hostaddr` and `port` are lists that belong together item by item; one port is for all
 * hosts. A list that does not fit the others is left as it is: libpq says what is wrong with it.
 */
#include "store/postgres/postgres.h"

#include <stdio.h>

static const char *const lists[SM_PG_HOST_LISTS] = {"host", "hostaddr", "port"};

enum { HOST, HOSTADDR, PORT };

static size_t items(const char *list)
{
    size_t n = 1;
    for (; *list != '\0'; list++)
        n += *list == ',';
    return n;
}

/* Copies an item of a list; false if it is too long for a host's name. */
static bool copy_item(const char *list, size_t at, char out[SM_PG_HOST_MAX])
{
    for (; at > 0; at--)
        list = strchr(list, ',') + 1;
    size_t n = strcspn(list, ",");
    if (n >= SM_PG_HOST_MAX)
        return false;
    memcpy(out, list, n);
    out[n] = '\0';
    return true;
}

/* Where each list is among the target's values; -1 if it is not given. */
static void find_lists(const sm_pg_target *t, int where[SM_PG_HOST_LISTS])
{
    for (size_t k = 0; k < SM_PG_HOST_LISTS; k++) {
        where[k] = -1;
        for (int i = 0; t->keys[i] != NULL; i++) {
            if (strcmp(t->keys[i], lists[k]) == 0)
                where[k] = i;
        }
    }
}

size_t sm_pg_hosts(const sm_pg_target *t)
{
    int where[SM_PG_HOST_LISTS];
    char item[SM_PG_HOST_MAX];
    find_lists(t, where);
    int main = where[HOSTADDR] >= 0 ? where[HOSTADDR] : where[HOST];
    size_t n = main < 0 ? 1 : items(t->values[main]);
    for (size_t k = 0; k < SM_PG_HOST_LISTS; k++) {
        size_t has = where[k] < 0 ? n : items(t->values[where[k]]);
        if (has != n && !(k == PORT && has == 1))
            return 1;
        for (size_t i = 0; where[k] >= 0 && i < has; i++) {
            if (!copy_item(t->values[where[k]], i, item))
                return 1;
        }
    }
    return n;
}

void sm_pg_host_init(sm_pg_host *h, const sm_pg_target *t, size_t at)
{
    int where[SM_PG_HOST_LISTS];
    memcpy(h->values, t->values, sizeof h->values);
    if (sm_pg_hosts(t) == 1)
        return;
    find_lists(t, where);
    for (size_t k = 0; k < SM_PG_HOST_LISTS; k++) {
        if (where[k] < 0 || items(t->values[where[k]]) == 1)
            continue;
        copy_item(t->values[where[k]], at, h->items[k]);
        h->values[where[k]] = h->items[k];
    }
}
