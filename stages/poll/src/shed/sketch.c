// SPDX-License-Identifier: GPL-2.0-only
/* The sketch for tests: what poll.bpf.c does with a packet's keys, over memory of the process. */
#include <linux/types.h>
#include <string.h>

#define SHED_INLINE inline
#include "../shared.h"
#include "sketch.h"

struct shed_table {
	struct shed_cell cells[SKETCH_SIZE];
};

__u32 tarn_poll_size(void);
__u32 tarn_poll_mix(__u32 value);
__u32 tarn_poll_chance(struct shed_table *table, __u32 reason, __u32 key, __u32 window, __u32 share, __u32 weight);

__u32 tarn_poll_size(void)
{
	return sizeof(struct shed_table);
}

__u32 tarn_poll_mix(__u32 value)
{
	return shed_mix(value);
}

/* Counts so many packets of a key. Returns the chance that one of them is dropped. */
__u32 tarn_poll_chance(struct shed_table *table, __u32 reason, __u32 key, __u32 window, __u32 share, __u32 weight)
{
	__u32 rate = ~0U;

	for (__u32 row = 0; row < SKETCH_ROWS; row++) {
		__u32 found = shed_count(&table->cells[shed_place(reason, row, key)], window, weight, share);

		rate = found < rate ? found : rate;
	}
	return shed_chance(rate, share);
}
