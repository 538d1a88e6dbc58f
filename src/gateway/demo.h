/*
 * An upstream to try the gateway with: it "charges cards" by counting, on a port of its own on this
 * machine. So a first call needs neither a network nor an account, and what is seen is how many
 * requests really reached an upstream.
 *
 *     POST /charge {"order_id": ..., "amount": ...}   ->  {"charge":"ch_1","order_id":...,
 *                                                          "charges_so_far":1}
 *     GET  /charge                                    ->  {"charges_so_far":1}
 *
 * The gateway knows nothing of it: it is an upstream like any other.
 */
#ifndef SM_GATEWAY_DEMO_H
#define SM_GATEWAY_DEMO_H

#include <stdint.h>

#include "base/error.h"

typedef struct gw_demo gw_demo;

/* Listens on a free port of 127.0.0.1. */
sm_err gw_demo_start(gw_demo **out, uint16_t *port, sm_fault *fault);
void gw_demo_stop(gw_demo *d); /* accepts NULL */

/* The contract of the tool demo.charge, with this upstream; a text of `room` bytes. */
void gw_demo_contract(uint16_t port, char *out, size_t room);

#endif
