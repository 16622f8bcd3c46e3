// SPDX-License-Identifier: GPL-2.0
/* See flows.h. */
#include "flows.h"

struct kmem_cache *flow_cache, *request_cache;
static struct kmem_cache *held_cache;

int flows_init(void)
{
	flow_cache = KMEM_CACHE(flow, SLAB_HWCACHE_ALIGN);
	request_cache = KMEM_CACHE(request, SLAB_HWCACHE_ALIGN);
	held_cache = KMEM_CACHE(held, 0);
	if (flow_cache && request_cache && held_cache)
		return 0;
	flows_exit();
	return -ENOMEM;
}

void flows_exit(void)
{
	/* kmem_cache_destroy() takes NULL. */
	kmem_cache_destroy(held_cache);
	kmem_cache_destroy(request_cache);
	kmem_cache_destroy(flow_cache);
}

void flow_unlink(struct flow *flow, const struct request *request)
{
	struct request *before = flow->oldest;

	while (before->next != request)
		before = before->next;
	before->next = request->next;
	if (flow->newest == request)
		flow->newest = before;
}

struct held *held_alloc(void)
{
	return kmem_cache_alloc(held_cache, GFP_ATOMIC);
}

void held_free(struct held *held)
{
	kmem_cache_free(held_cache, held);
}

static void pool_free(struct pool *pool, struct kmem_cache *cache)
{
	while (pool->count)
		kmem_cache_free(cache, pool->items[--pool->count]);
}

void flows_free_spare(struct classes *classes)
{
	pool_free(&classes->spare_flows, flow_cache);
	pool_free(&classes->spare_requests, request_cache);
}
