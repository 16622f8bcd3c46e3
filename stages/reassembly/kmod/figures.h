/* SPDX-License-Identifier: GPL-2.0 */
/* What netlink reports of what runs. From process context. */
#ifndef TARN_REASSEMBLY_FIGURES_H
#define TARN_REASSEMBLY_FIGURES_H

#include "reassembly.h"

/* Sums over the shards, one after the other: they may be a moment apart. */
void figures_read(struct reassembly *here, struct tarn_reassembly_figures *figures, struct tarn_reassembly_counts counts[2]);

/* Writes at most TARN_REASSEMBLY_SOURCES, and returns how many. */
u32 figures_sources(struct reassembly *here, struct tarn_reassembly_source *sources);

#endif
