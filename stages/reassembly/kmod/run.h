/* SPDX-License-Identifier: GPL-2.0 */
/* Begins and ends what runs in a namespace. From process context, one call at a time. */
#ifndef TARN_REASSEMBLY_RUN_H
#define TARN_REASSEMBLY_RUN_H

#include "reassembly.h"

/* The settings of the stack's own reassembly, within our bounds. */
struct settings run_defaults(const struct net *net);

/* Returns what runs from now on, or an error pointer. */
struct reassembly *run_start(struct net *net, const struct settings *settings);

/* What is held above a lower ceiling is given up. */
void run_change(struct reassembly *here, const struct settings *settings);

/* Gives up all that is held; afterwards nobody refers to it, and it is free. */
void run_stop(struct reassembly *here);

#endif
