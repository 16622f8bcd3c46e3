// SPDX-License-Identifier: GPL-2.0
/* See memory.h. */
#include <linux/atomic.h>
#include <linux/mm.h>

#include "memory.h"

/* An eighth: the least part of the host that leaves it working when somebody configures it wrong. */
#define CEILING_SHIFT 3

/* Of all namespaces. Their locks differ, so it is counted first and taken back when it was too much. */
static atomic64_t bytes_of_all = ATOMIC64_INIT(0);

u64 memory_ceiling(void)
{
	return (u64)totalram_pages() << PAGE_SHIFT >> CEILING_SHIFT;
}

/*
 * With what the kernel has allocated for the packet (truesize, which stays as it is while the packet waits) goes what we
 * have: a request of a small datagram would otherwise take half as much again as was counted.
 */
static u64 size_of(const struct held *held)
{
	return held->skb->truesize + sizeof(*held) + sizeof(struct request) + sizeof(struct flow);
}

bool memory_reserve(struct classes *classes, const struct held *held)
{
	u64 size = size_of(held);

	if (classes->bytes_now + size > classes->bytes)
		return false;
	if (atomic64_add_return(size, &bytes_of_all) > memory_ceiling()) {
		atomic64_sub(size, &bytes_of_all);
		return false;
	}
	classes->bytes_now += size;
	return true;
}

void memory_release(struct classes *classes, const struct held *held)
{
	u64 size = size_of(held);

	classes->bytes_now -= size;
	atomic64_sub(size, &bytes_of_all);
}
