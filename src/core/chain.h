/*
 * The audit chain, which reveals altered, removed and reordered events.
 *
 * An event's hash is SHA-256 over "semel-event-2", the hash of the event before it in its effect
 * (zeros for the first), and everything that it says, each text with its length in front. A seal
 * covers a run of events over all effects: its body has their number and a digest of their hashes
 * in order, and it is chained to the seal before it. With a key, a seal's hash is an HMAC: without
 * the key, nobody can make one.
 */
#ifndef SM_CORE_CHAIN_H
#define SM_CORE_CHAIN_H

#include "base/buf.h"
#include "base/digest.h"
#include "semel/store.h"

/* Computes e->hash from all else in it but `seq`. `scratch` is cleared. */
sm_err sm_chain_hash(sm_digest *d, sm_buf *scratch, semel_event *e);

/* The same for a seal; an absent key gives a plain hash. */
sm_err sm_seal_hash(sm_digest *d, sm_buf *scratch, sm_str key, semel_event *seal);

/* The digest of a whole record, except its newest event's hash (that event holds the digest) and
 * the bytes of arguments and outcome (they are removed earlier; their hashes are in the life). */
sm_err sm_record_digest(sm_digest *d, sm_buf *scratch, const semel_record *r, sm_hash *out);

/* The digest over a run of events: of the digest so far and the next event's hash. */
sm_err sm_chain_fold(sm_digest *d, sm_hash *so_far, uint64_t seq, const sm_hash *next);

#endif
