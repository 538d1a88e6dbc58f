/*
 * Numbers in canonical form.
 *
 * Let v be the exact value of a literal. If the ECMAScript form of the nearest double denotes
 * exactly v, that is the form; else, if v is an integer, its plain digits (two different 64-bit
 * account numbers must never share a key); else the ECMAScript form of the nearest double. A
 * literal whose nearest double is not finite has no form.
 */
#ifndef SM_JSON_NUMBER_H
#define SM_JSON_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

/* Room for any canonical number: a sign and the 309 digits of the largest integer. */
#define SM_NUMBER_MAX 320u

/* Writes the canonical form of a JSON number literal and returns its length, or 0 if the nearest
 * double is not finite. */
size_t sm_number_canonical(sm_str literal, char out[SM_NUMBER_MAX]);

/* Writes a finite double as ECMAScript's Number::toString does and returns the length. */
size_t sm_number_es6(double value, char out[SM_NUMBER_MAX]);

#endif
