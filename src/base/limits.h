/*
 * Every bound on what comes from outside (I12), in one place.
 */
#ifndef SM_BASE_LIMITS_H
#define SM_BASE_LIMITS_H

/* A JSON document: bytes, nesting, and values (names count as values). The depth is also the size
 * of the fixed stacks that walk a document, so it is a ceiling and not only a default. */
#define SM_JSON_BYTES_MAX  (1u << 20)
#define SM_JSON_DEPTH_MAX  128u
#define SM_JSON_VALUES_MAX 250000u

/* The head of a request to the gateway, in bytes. */
#define SM_REQUEST_HEAD_MAX (32u << 10)

/* Arguments that are recorded, where whoever asks has bounded them so; as a document they are held
 * to the other bounds all the same. */
#define SM_ARGS_MAX (16u << 20)

/* Arguments, or a message that has them. Longer ones are left to a worker: reading them would hold
 * up the other clients of a server's thread, or of the MCP loop. */
#define SM_INLINE_BYTES_MAX (64u << 10)

/* The parts of a call, in bytes. */
#define SM_SCOPE_MAX 512u
#define SM_STEP_MAX  256u
#define SM_TOOL_MAX  256u
#define SM_KEY_MAX   512u

/* How much larger than ours a structure of a newer program can be, in bytes; beyond that its size
 * was never set. */
#define SM_GIVEN_BEYOND_MAX 4096u

/* A contract file, and what is in it. */
#define SM_CONTRACT_BYTES_MAX   (1u << 20)
#define SM_CONTRACT_DEPTH_MAX   48u
#define SM_TOOLS_MAX            10000u
#define SM_GLOBS_MAX            200u /* tools listed by pattern */
#define SM_VARIANTS_MAX         64u
#define SM_BUDGETS_MAX          8u   /* of one tool */
#define SM_LIMITS_MAX           4u   /* likewise */
#define SM_LIMIT_CALLS_MAX      100u /* of one limit: each is looked up */
#define SM_BREAKER_FAILURES_MAX 1000u
#define SM_BREAKER_PROBES_MAX   100u
#define SM_POINTERS_MAX         256u  /* in one list or mapping */
#define SM_PROPERTIES_MAX       500u  /* of one schema */
#define SM_POINTER_TOKENS_MAX   32u   /* in one pointer */
#define SM_PATTERN_MAX          512u  /* bytes of a regular expression */
#define SM_PATTERN_REPEAT_MAX   256u  /* product of all its repeat counts */
#define SM_PATTERN_NEST_MAX     2u    /* repeats inside one another */
#define SM_MATCH_MAX            4096u /* bytes of a value that a pattern is matched with */
#define SM_REPORT_MAX           200u  /* errors and warnings reported about one file */

/* How many destinations with a limit one call may act on, and the longest window of a limit. */
#define SM_DESTINATIONS_MAX    16u
#define SM_LIMIT_WINDOW_MAX_MS ((int64_t)366 * 24 * 3600 * 1000)

/* Tokens that one call can take. */
#define SM_TOKENS_MAX ((int64_t)1000000000000000)

/* The longest lease that a renewal may ask for: whoever lost a claim must not wait for ever. */
#define SM_LEASE_MAX_MS ((int64_t)7 * 24 * 3600 * 1000)

/* Bytes that are kept: of an outcome; of an MCP tool's result; of an outcome in an event's body;
 * and of texts that people give. */
#define SM_OUTCOME_MAX       (1u << 20)
#define SM_LARGE_OUTCOME_MAX (16u << 20)
#define SM_EVIDENCE_MAX      1024u
#define SM_REASON_MAX        4096u
#define SM_ACTOR_MAX         256u

/* How many actors may ask for one call that needs approval. If more ask, nobody can approve it. */
#define SM_ASKERS_MAX 32u

/* MCP, in milliseconds: how long a call waits, which is less than the shortest timeout of a known
 * client (5 s); how long if its client gets progress; how often it gets progress; and after how
 * long a client that has waited in vain should ask again. */
#define SM_MCP_WAIT_MS      4000
#define SM_MCP_LONG_WAIT_MS 45000
#define SM_MCP_PROGRESS_MS  1500
#define SM_MCP_RETRY_MS     5000
_Static_assert(SM_MCP_PROGRESS_MS < SM_MCP_WAIT_MS && SM_MCP_WAIT_MS <= 4000,
               "clients give up after 5 s");

/* MCP: how long a server has to end, after its input was closed and again after SIGTERM. The SDKs'
 * clients give it as long. A write that is under way when its client goes has the lease of its
 * contract before that (SM_LEASE_MAX_MS at most). */
#define SM_MCP_END_MS 2000

/* How long the caller of a call that has run waits for its outcome to be recorded, in milliseconds.
 * A short trouble of the ledger is over by then, and the shortest timeout of a known client (5 s)
 * is not. After that the caller gets the outcome, and the background goes on recording it. A store
 * that hangs holds the first try for its own timeout, however long that is. */
#define SM_RECORD_MS 2000

/* How many bytes of outcomes that could not be recorded yet a handle keeps. An outcome beyond that
 * is recorded without its bytes. */
#define SM_OWED_BYTES_MAX ((size_t)256 << 20)

/* Bytes of an upstream's headers that a client gets, and that are recorded. With the gateway's own
 * they stay below what Node.js reads of an answer's head, which is 16 KiB. */
#define SM_ANSWER_HEADERS_MAX ((size_t)12 << 10)

/* Memory that one request may use for its documents and projections. */
#define SM_ARENA_MAX ((size_t)64 << 20)

/* Memory that is kept for the next request; what is larger goes back. */
#define SM_KEPT_BYTES ((size_t)1 << 20)

/* A line of an export: a record with its arguments, and its outcome in hexadecimal digits. */
#define SM_LINE_MAX ((size_t)56 << 20)

#endif
