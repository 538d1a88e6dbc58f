/*
 * A YAML document read into the same tree as JSON, so that everything behind it needs to know only
 * one kind of tree. Positions (`at`) are byte offsets into the text.
 *
 * The subset is what a configuration needs: mappings with scalar keys, sequences, scalars, one
 * document. Anchors, aliases, merge keys and tags are errors, and so is a key given twice.
 *
 * A plain scalar is null, true, false or a number exactly when JSON would write it so; anything
 * else is a string. Where people and other YAML readers take a plain scalar for something else than
 * the string it is (yes, no, on, off, 0x1F, 1_000, 012, .5), the node carries SM_JSON_AMBIGUOUS, so
 * that whoever expects an arbitrary value can ask for quotes instead of guessing.
 */
#ifndef SM_JSON_YAML_H
#define SM_JSON_YAML_H

#include "json/json.h"

/* Like sm_json_read. The text is borrowed only for the call. */
sm_err sm_yaml_read(sm_arena *a, sm_str text, const sm_json_limits *limits, const sm_json **root,
                    sm_fault *fault);

#endif
