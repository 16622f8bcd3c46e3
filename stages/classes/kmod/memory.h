/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The memory of packets that wait: of one configuration, which SET bounds (BYTES), and of all on the host, which the host's
 * memory bounds. A packet is reserved for before it is kept, and released when it leaves, whatever becomes of it.
 */
#ifndef TARN_CLASSES_MEMORY_H
#define TARN_CLASSES_MEMORY_H

#include "classes.h"

/* Bytes: the most that all configurations together take, an eighth of the host's memory. */
u64 memory_ceiling(void);

/* Takes room for a packet, or says that there is none. Both want classes.lock held. */
bool memory_reserve(struct classes *classes, const struct held *held);
void memory_release(struct classes *classes, const struct held *held);

#endif
