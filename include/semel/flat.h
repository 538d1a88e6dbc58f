/*
 * The flat door: the library for other languages. Requests and answers are texts of JSON, the same
 * as those of the gateway's HTTP API (docs/http-api.md), so a program needs neither the structures
 * of semel.h nor a gateway.
 *
 *     char *problem;
 *     semel_flat *f = semel_flat_open("{\"url\": \"sqlite:agent.db\"}", 27, &problem);
 *     char *answer = semel_flat_exchange(f, request, strlen(request), NULL);
 *     ...
 *     semel_flat_free(answer);
 *     semel_flat_close(f);
 *
 * Requests
 *
 *   A request is one JSON object. `op` says what is wanted. The other members are those of the body
 *   or of the query that the HTTP API has for it; what stands in the path there is the member
 *   `effect` or `scope` here.
 *
 *     {"op":"begin","scope":"order-123","tool":"charge","args":{"amount":1000},"wait_ms":30000}
 *     {"op":"commit","claim":"cl_...","kind":"success","value":{"id":"ch_1"}}
 *     {"op":"resolve","effect":"ef_...","result":"applied","evidence":"seen in the dashboard"}
 *     {"op":"effects","state":"in_doubt","limit":10}
 *
 *   as over HTTP      begin commit renew release; effect effects events approvals tools; approve
 *                     deny cancel resolve forget; scopes scope spend reset undo_plan; stops stop
 *                     resume. What people say may have `actor`, who must come from authentication.
 *                     An effect may also be named by the text of its key, or for `effect` by
 *                     {scope, key}, and events be those of all effects
 *   only here
 *     passed          {pass, scope, tool, value?}: how a call has ended that ran unrecorded
 *     declare         {tools: {NAME: CONTRACT}, unless_listed?}: adds contracts; the same again
 *                     changes nothing, another one for the same tool is refused
 *     key             {scope, tool, args, step?, key?}: the key of a call, and its full arguments
 *     export, import  {scope?}, {lines}: checkpoints, as semel_export and semel_import_line
 *     loop_new        {repeats?, max_cycle?}: a loop detector of its own, as semel_loop; its `loop`
 *     loop_add        {loop, tool, args?, result?}: `looping`, and if so detector, period, count
 *     loop_free       {loop}
 *     stats, verify, purge, seal
 *
 * Answers
 *
 *   An answer is the JSON that the HTTP API gives, or a problem (RFC 9457), which has `status` and
 *   `code`. It ends with NUL, and is freed with semel_flat_free.
 *
 * Claims
 *
 *   A claim that a begin got here is held: its lease is renewed until its commit, and lost when the
 *   process ends. With "detached": true it is not held, and ends with its lease, as over HTTP. If
 *   the outcome of a held claim cannot be recorded for a while, its commit says
 *   "result":"unrecorded", and the library goes on trying.
 *
 *   A tool that only reads runs without a claim. Its answer may have `pass`: give that back with
 *   `passed`, so that a run that repeats itself is noticed.
 *
 * Threads: a handle may be used by any number of threads at once. No other call may be under way
 * when it is closed.
 *
 * Forks: a child may go on using the handle. Its first use opens the ledger anew, with what was
 * declared, and leaves the parent's handle as it was. Claims that the parent got are not held in
 * the child. If both commit one, the first commit counts; the child must not release one. A ledger
 * in memory belongs to its process: a child is refused. Answers to what the parent submitted are
 * the parent's.
 */
#ifndef SEMEL_FLAT_H
#define SEMEL_FLAT_H

#include "semel/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct semel_flat semel_flat;

/* Opens a ledger. `options` is a JSON object, or empty, with the members of semel_options: url,
 * contract (its text), contract_path, actor, seal_key_path, cache_bytes, must_exist, one_shot,
 * audit_retention_ms, tombstone_ms. NULL on failure: *problem (may be NULL) then says why, and is
 * to be freed; it is NULL when out of memory. */
SEMEL_API semel_flat *semel_flat_open(const char *options, size_t n, char **problem);

/* Ends the handle. Claims that are still held end as if the process did. Accepts NULL. */
SEMEL_API void semel_flat_close(semel_flat *f);

/* One request and its answer; *answer_n (may be NULL) is its length. Blocks as long as the request
 * says (wait_ms), and for the store's own writes. NULL: out of memory. */
SEMEL_API char *semel_flat_exchange(semel_flat *f, const char *request, size_t n, size_t *answer_n);

/* The same, with an answer that lives in memory of the calling thread until it asks again or ends:
 * nothing is to be freed. */
SEMEL_API const char *semel_flat_ask(semel_flat *f, const char *request, size_t n,
                                     size_t *answer_n);

/* The same for a begin that can be answered from the process' memory, without any input or output.
 * NULL if it cannot; nothing has happened then. Looks at requests only that start with
 * {"op":"begin". */
SEMEL_API const char *semel_flat_recall(semel_flat *f, const char *request, size_t n,
                                        size_t *answer_n);

/* Many at once, without a thread each: a request is handed in with a tag of the caller's choice,
 * and its answer is taken later. Does not block. False: there will be no answer, for want of
 * memory, or because the ledger cannot be opened in this child; an exchange tells why. */
SEMEL_API bool semel_flat_submit(semel_flat *f, uint64_t tag, const char *request, size_t n);

/* A descriptor that is readable while there are answers to take, for poll and event loops. It is
 * the library's: do not read or close it. A forked child has another one. -1: there is none. */
SEMEL_API int semel_flat_fd(semel_flat *f);

/* The next answer and its tag; NULL: there is none now. Does not block. */
SEMEL_API char *semel_flat_take(semel_flat *f, uint64_t *tag, size_t *answer_n);

/* Gives up a begin that waits: its answer becomes a problem, CANCELED. False: it does not wait, or
 * not yet, and will be answered; if that answer is a claim, it is the caller's to release. */
SEMEL_API bool semel_flat_cancel(semel_flat *f, uint64_t tag);

SEMEL_API void semel_flat_free(char *answer); /* accepts NULL */

#ifdef __cplusplus
}
#endif

#endif
