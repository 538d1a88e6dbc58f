/*
 * Which token a session of a server over HTTP belongs to. The server makes sessions and knows
 * nothing of tokens: it takes everybody behind the gateway for one client. So a client gets an id
 * that has a proof before the server's own id:
 *
 *     ePROOF.ID      e: its client can ask its user; n: it cannot
 *
 * The proof is an HMAC over the site, the token and the rest of the id, under the key in the file
 * of tokens. So the gateway remembers nothing: after a restart, or at another gateway with the same
 * tokens, the proof says the same. An id is valid in one spelling only. An id that no gateway gave
 * out belongs to nobody.
 */
#include "gateway/mcp/mcp.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>

#define PROOF_TEXT (1 + SM_HASH_TEXT) /* with the letter */

_Static_assert(GW_PROOF_MAX == PROOF_TEXT + 1, "a proof and its point have their room");

/* Each field ends with NUL, which none of them contains: no two inputs give the same bytes. */
static bool prove(gw_mcp *all, sm_str site, const char *token, char letter, sm_str session,
                  char out[SM_HASH_TEXT + 1])
{
    sm_hash key, mac;
    sm_buf text;
    unsigned n = 0;
    sm_buf_init(&text, 1024 + site.n + session.n);
    sm_buf_text(&text, "semel-session-1");
    sm_buf_byte(&text, '\0');
    sm_buf_str(&text, site);
    sm_buf_byte(&text, '\0');
    sm_buf_text(&text, token);
    sm_buf_byte(&text, '\0');
    sm_buf_byte(&text, letter);
    sm_buf_str(&text, session);
    gw_tokens_session_key(all->g->tokens, &key);
    bool proved = text.err == SM_OK &&
                  HMAC(EVP_sha256(), key.b, sizeof key.b, (const unsigned char *)text.p, text.len,
                       mac.b, &n) != NULL &&
                  n == sizeof mac.b;
    if (proved)
        sm_hash_text(&mac, out);
    explicit_bzero(&key, sizeof key);
    sm_buf_fini(&text);
    return proved;
}

bool gw_owner_is(gw_mcp *all, sm_str site, sm_str id, const char *token)
{
    char proof[SM_HASH_TEXT + 1];
    return id.n > GW_PROOF_MAX && id.p[PROOF_TEXT] == '.' &&
           prove(all, site, token, id.p[0], gw_owner_session(id), proof) &&
           CRYPTO_memcmp(proof, id.p + 1, SM_HASH_TEXT) == 0;
}

sm_str gw_owner_session(sm_str id)
{
    return id.n > GW_PROOF_MAX ? (sm_str){id.p + GW_PROOF_MAX, id.n - GW_PROOF_MAX} : (sm_str){0};
}

bool gw_owner_elicits(sm_str id)
{
    return id.n > 0 && id.p[0] == 'e';
}

void gw_owner_tell(gw_request *r, sm_str session)
{
    char proof[SM_HASH_TEXT + 1];
    mcp_message m;
    sm_buf out;
    sm_str own = gw_header(r, "Mcp-Session-Id");
    if (own.p != NULL && sm_str_eq(gw_owner_session(own), session)) {
        gw_set(r, "Mcp-Session-Id", own);
        return;
    }
    bool begins = mcp_read_client(sm_buf_view(&r->body), &m) && strcmp(m.method, "initialize") == 0;
    char letter = begins && mcp_can_elicit(m.params) ? 'e' : 'n';
    if (!prove(r->g->mcp, r->rest, r->who.id, letter, session, proof))
        return; /* out of memory: the client has no session, and has to begin again */
    sm_buf_init(&out, GW_PROOF_MAX + session.n + 1);
    sm_buf_byte(&out, letter);
    sm_buf_text(&out, proof);
    sm_buf_byte(&out, '.');
    sm_buf_str(&out, session);
    if (out.err == SM_OK)
        gw_set(r, "Mcp-Session-Id", sm_buf_view(&out));
    sm_buf_fini(&out);
}
