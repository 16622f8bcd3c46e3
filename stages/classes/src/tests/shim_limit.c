// SPDX-License-Identifier: GPL-2.0
/* limit.c for the tests in Rust, where its structure stays C's own. */
#include <stdlib.h>

#include "../../kmod/limit.h"

/* One that is to be found; NULL without memory. */
struct limit *shim_limit_new(u64 deadline)
{
	struct limit *limit = calloc(1, sizeof(*limit));

	if (!limit)
		return NULL;
	limit->finding.deadline = deadline;
	limit_set(limit, 0);
	return limit;
}

void shim_limit_free(struct limit *limit)
{
	free(limit);
}

u32 shim_limit_now(const struct limit *limit)
{
	return limit->now;
}

void shim_limit_reached(struct limit *limit)
{
	limit_reached(limit);
}

void shim_limit_lost(struct limit *limit)
{
	limit_lost(limit);
}
