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

/* Arguments that are recorded, where whoever asks has bounded them so; as a document they are held
 * to the other bounds all the same. */
#define SM_ARGS_MAX (16u << 20)

/* The parts of a call, in bytes. */
#define SM_SCOPE_MAX 512u
#define SM_STEP_MAX  256u
#define SM_TOOL_MAX  256u
#define SM_KEY_MAX   512u

/* A contract file, and what is in it. */
#define SM_CONTRACT_BYTES_MAX (1u << 20)
#define SM_CONTRACT_DEPTH_MAX 48u
#define SM_TOOLS_MAX          10000u
#define SM_GLOBS_MAX          200u /* tools listed by pattern */
#define SM_VARIANTS_MAX       64u
#define SM_POINTERS_MAX       256u  /* in one list or mapping */
#define SM_PROPERTIES_MAX     500u  /* of one schema */
#define SM_POINTER_TOKENS_MAX 32u   /* in one pointer */
#define SM_PATTERN_MAX        512u  /* bytes of a regular expression */
#define SM_PATTERN_REPEAT_MAX 256u  /* product of all its repeat counts */
#define SM_PATTERN_NEST_MAX   2u    /* repeats inside one another */
#define SM_MATCH_MAX          4096u /* bytes of a value that a pattern is matched with */
#define SM_REPORT_MAX         200u  /* errors and warnings reported about one file */

/* The longest lease that a renewal may ask for: whoever lost a claim must not wait for ever. */
#define SM_LEASE_MAX_MS ((int64_t)7 * 24 * 3600 * 1000)

/* The bytes of an outcome that are kept; of one in an event's body; and texts that people give. */
#define SM_OUTCOME_MAX  (1u << 20)
#define SM_EVIDENCE_MAX 1024u
#define SM_REASON_MAX   4096u
#define SM_ACTOR_MAX    256u

/* Memory that one request may use for its documents and projections. */
#define SM_ARENA_MAX ((size_t)64 << 20)

#endif
