/* Shares of places: who has how many. */
#include "base/shares.h"

#include <stdint.h>
#include <stdlib.h>

struct sm_share {
    struct sm_share *next;
    size_t taken;
    size_t n;
    char owner[];
};

static struct sm_share **find(sm_shares *s, sm_str owner)
{
    uint32_t hash = 2166136261u; /* FNV-1a: owners are names that we gave */
    for (size_t i = 0; i < owner.n; i++)
        hash = (hash ^ (unsigned char)owner.p[i]) * 16777619u;
    struct sm_share **at = &s->owners[hash % SM_SHARES_BUCKETS];
    while (*at != NULL && !sm_str_eq((sm_str){(*at)->owner, (*at)->n}, owner))
        at = &(*at)->next;
    return at;
}

sm_vacancy sm_shares_room(const sm_shares *s, sm_str owner, size_t most)
{
    const struct sm_share *share = *find((sm_shares *)(uintptr_t)s, owner);
    if (s->taken >= most)
        return SM_ROOM_ALL_TAKEN;
    return owner.p != NULL && share != NULL && share->taken >= (most >= 4 ? most / 4 : 1)
               ? SM_ROOM_OWN_TAKEN
               : SM_ROOM;
}

void sm_shares_take(sm_shares *s, sm_str owner)
{
    struct sm_share **at = find(s, owner);
    s->taken++;
    if (*at == NULL && (*at = calloc(1, sizeof **at + owner.n)) != NULL) {
        (*at)->n = owner.n;
        memcpy((*at)->owner, owner.n == 0 ? "" : owner.p, owner.n);
    }
    if (*at != NULL)
        (*at)->taken++;
}

void sm_shares_give(sm_shares *s, sm_str owner)
{
    struct sm_share **at = find(s, owner), *share = *at;
    s->taken--;
    if (share == NULL || --share->taken > 0)
        return;
    *at = share->next;
    free(share);
}

void sm_shares_fini(sm_shares *s)
{
    for (size_t i = 0; i < SM_SHARES_BUCKETS; i++) {
        for (struct sm_share *share = s->owners[i], *next; share != NULL; share = next) {
            next = share->next;
            free(share);
        }
        s->owners[i] = NULL;
    }
}
