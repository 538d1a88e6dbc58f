/*
 * A subset of JSON Schema, for checking a call's arguments before anything else happens: type,
 * required, properties, additionalProperties, enum, minimum, maximum, minLength, maxLength,
 * pattern and items. Patterns are POSIX extended and may match anywhere in the value, as JSON
 * Schema's do; lengths count characters; minimum and maximum compare exactly.
 */
#ifndef SM_CORE_SCHEMA_H
#define SM_CORE_SCHEMA_H

#include "core/field.h"

typedef struct sm_schema sm_schema;

/* A custom reader; `out` is a const sm_schema *. */
void sm_schema_read(sm_loader *l, const sm_json *value, void *out);

/* SEMEL_E_BAD_ARGUMENTS with the pointer to the first value that does not fit, and why. */
sm_err sm_schema_check(const sm_schema *schema, const sm_json *value, sm_fault *fault);

/* The i-th property's name, or an absent one behind the last. */
sm_str sm_schema_property(const sm_schema *schema, uint32_t i);

#endif
