/*
 * Conditions on a document: does a field exist, equal a value, exceed an amount, match a pattern,
 * begin with a text?
 *
 * In a list of conditions one that holds is enough; the operators of one condition must all hold.
 * What a condition cannot be asked of (the field is missing, or of another type than the operator
 * needs) counts as the caller says: as true where that is the careful answer (approval), as false
 * where it is not (variants, probes).
 */
#ifndef SM_CORE_CONDITION_H
#define SM_CORE_CONDITION_H

#include "core/field.h"

typedef struct sm_condition sm_condition;

typedef struct sm_conditions {
    const sm_condition *v;
    uint32_t n;
} sm_conditions;

/* A custom reader: a list of mappings with `field` and at least one operator. */
void sm_conditions_read(sm_loader *l, const sm_json *value, void *out);

/* Whether any of the conditions holds. `unknown` is what an unanswerable operator counts as. */
bool sm_conditions_hold(const sm_conditions *list, const sm_json *document, bool unknown);

/* The same for evidence that something is not there. An answer of another form than expected, such
 * as an error, lacks everything: that a field does not exist counts only where the object or array
 * that would hold it does. What cannot be asked counts as false. */
bool sm_conditions_prove(const sm_conditions *list, const sm_json *document);

/* Whether any of the conditions would hold if every operator did that cannot be asked of the value
 * that is there: it is of another type, or too long for a pattern. */
bool sm_conditions_doubtful(const sm_conditions *list, const sm_json *document);

/* The name of a member that some readers take for a field of a condition, or NULL. */
const sm_json *sm_conditions_rival(const sm_conditions *list, const sm_json *document);

#endif
