/*
 * Whose a session of a server over HTTP is. The server makes sessions and knows nothing of tokens:
 * to it, everybody behind the gateway is one. So the gateway remembers to whom it gave each.
 *
 * A table of digests, bounded; what is forgotten is whose who names it next, and ids of sessions
 * are secrets that nobody guesses.
 */
#include <stdlib.h>

#include "gateway/mcp.h"

#define OWNERS 4096u

typedef struct owner {
    sm_hash session; /* of site and id */
    char token[GW_ID_TEXT + 1];
    bool elicits; /* its client can ask its user */
} owner;

struct gw_owners {
    sm_digest digest;
    owner v[OWNERS];
    unsigned next;
};

/* The entry of a session; NULL if there is none, or no memory. Under the lock. */
static owner *find(gw_mcp *all, sm_str site, sm_str session, sm_hash *hash)
{
    if (all->owners == NULL) {
        all->owners = calloc(1, sizeof *all->owners);
        if (all->owners == NULL || sm_digest_init(&all->owners->digest) != SM_OK)
            return NULL;
    }
    struct gw_owners *o = all->owners;
    sm_err e = sm_digest_start(&o->digest);
    if (e == SM_OK)
        e = sm_digest_add(&o->digest, site.p, site.n);
    if (e == SM_OK)
        e = sm_digest_add(&o->digest, "/", 1);
    if (e == SM_OK)
        e = sm_digest_add(&o->digest, session.p, session.n);
    if (e == SM_OK)
        e = sm_digest_finish(&o->digest, hash);
    for (size_t i = 0; e == SM_OK && i < OWNERS; i++)
        if (o->v[i].token[0] != '\0' && memcmp(&o->v[i].session, hash, sizeof *hash) == 0)
            return &o->v[i];
    return NULL;
}

bool gw_owner_is(gw_mcp *all, sm_str site, sm_str session, const char *token)
{
    sm_hash hash = {0};
    pthread_mutex_lock(&all->owners_lock);
    owner *o = find(all, site, session, &hash);
    bool is = all->owners != NULL && (o == NULL || strcmp(o->token, token) == 0);
    if (is && o == NULL) {
        o = &all->owners->v[all->owners->next++ % OWNERS];
        *o = (owner){.session = hash};
        memcpy(o->token, token, strnlen(token, GW_ID_TEXT) + 1);
    }
    pthread_mutex_unlock(&all->owners_lock);
    return is;
}

void gw_owner_note(gw_mcp *all, sm_str site, sm_str session, const char *token, bool elicits)
{
    sm_hash hash;
    if (!gw_owner_is(all, site, session, token))
        return;
    pthread_mutex_lock(&all->owners_lock);
    owner *o = find(all, site, session, &hash);
    if (o != NULL)
        o->elicits = elicits;
    pthread_mutex_unlock(&all->owners_lock);
}

bool gw_owner_elicits(gw_mcp *all, sm_str site, sm_str session)
{
    sm_hash hash;
    pthread_mutex_lock(&all->owners_lock);
    const owner *o = find(all, site, session, &hash);
    bool elicits = o != NULL && o->elicits;
    pthread_mutex_unlock(&all->owners_lock);
    return elicits;
}

void gw_owners_free(gw_mcp *all)
{
    if (all->owners != NULL)
        sm_digest_fini(&all->owners->digest);
    free(all->owners);
}
