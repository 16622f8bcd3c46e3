// SPDX-License-Identifier: GPL-2.0
/* See published.h. */
#include <linux/netdevice.h>
#include <linux/tracepoint.h>
#include <trace/events/napi.h>

#include "published.h"
#include "weight.h"

/* Changed by commands, which come one at a time, and at the end. */
static bool has_joined;

/* At the end of a poll: it took `work` of the `budget` packets that it was allowed. */
static void polled(void *unused, struct napi_struct *napi, int work, int budget)
{
	int weight = READ_ONCE(napi->weight);

	/* A poll by a socket that waits has a budget of its own. The backlog of a CPU has no device. */
	if (budget != weight || !napi->dev)
		return;
	/* What a tracepoint holds differs between kernels. */
	rcu_read_lock();
	if (weight_of_published(napi))
		WRITE_ONCE(napi->weight, published_next(weight, work));
	rcu_read_unlock();
}

int published_join(void)
{
	int error;

	if (has_joined)
		return 0;
	error = register_trace_napi_poll(polled, NULL);
	has_joined = !error;
	return error;
}

void published_leave(void)
{
	if (!has_joined)
		return;
	unregister_trace_napi_poll(polled, NULL);
	tracepoint_synchronize_unregister();
	has_joined = false;
}
