/* SPDX-License-Identifier: GPL-2.0 */
/* The published rule for the weight of a NAPI, which changes it after each poll (the Mountain Kernel, __napi_poll()). */
#ifndef TARN_POLL_PUBLISHED_H
#define TARN_POLL_PUBLISHED_H

#include <linux/log2.h>
#include <linux/types.h>

#define PUBLISHED_LEAST 16
#define PUBLISHED_MOST 256

/* Whether the rule can have come to a weight, from the kernel's. */
static inline bool published_can_be(int weight)
{
	return weight >= PUBLISHED_LEAST && weight <= PUBLISHED_MOST && is_power_of_2(weight);
}

/* The weight after a poll that took `work` packets. */
static inline int published_next(int weight, int work)
{
	if (work >= weight)
		return min(weight * 2, PUBLISHED_MOST);
	if (work < weight / 2)
		return max(weight / 2, PUBLISHED_LEAST);
	return weight;
}

/* Has the rule follow polls from now on. May be called again. */
int published_join(void);

/* The opposite. When it returns, the rule runs nowhere. */
void published_leave(void);

#endif
