/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Flows and their requests: found, made, in service and out of it, and freed. Every packet comes through here, so it is compiled where
 * it is used. Everything here wants classes.lock held.
 */
#ifndef TARN_CLASSES_FLOWS_H
#define TARN_CLASSES_FLOWS_H

#include <linux/slab.h>
#include <net/ipv6.h>

#include "requests.h"

extern struct kmem_cache *flow_cache, *request_cache;

int flows_init(void);
void flows_exit(void);

/* Frees what is kept for the next requests. No request is left, and none comes. */
void flows_free_spare(struct classes *classes);

/* Takes a request in service that is not the oldest out of its flow's list. */
void flow_unlink(struct flow *flow, const struct request *request);

struct held *held_alloc(void);
void held_free(struct held *held);

static inline void *pool_get(struct pool *pool, struct kmem_cache *cache)
{
	return pool->count ? pool->items[--pool->count] : kmem_cache_alloc(cache, GFP_ATOMIC);
}

static inline void pool_put(struct pool *pool, struct kmem_cache *cache, void *item)
{
	if (pool->count < POOL_MOST)
		pool->items[pool->count++] = item;
	else
		kmem_cache_free(cache, item);
}

static inline bool is_same(const struct flow_key *a, const struct flow_key *b)
{
	BUILD_BUG_ON(sizeof(*a) != offsetof(struct flow_key, client_port) + sizeof(u64));
	return !memcmp(&a->client_port, &b->client_port, sizeof(u64)) && ipv6_addr_equal(&a->client, &b->client) &&
	       ipv6_addr_equal(&a->local, &b->local);
}

static inline struct flow *flow_find(struct classes *classes, const struct packet *packet)
{
	struct flow *flow;

	hlist_for_each_entry(flow, &classes->flows[packet->bucket], node)
		if (is_same(&flow->key, &packet->key))
			return flow;
	return NULL;
}

static inline struct flow *flow_new(struct classes *classes, const struct packet *packet, struct client_class *class)
{
	struct flow *flow = pool_get(&classes->spare_flows, flow_cache);

	if (!flow)
		return NULL;
	flow->key = packet->key;
	flow->class = class;
	flow->oldest = NULL;
	flow->ongoing = NULL;
	flow->requests = 0;
	flow->is_upgraded = false;
	flow->held.count = 0;
	hlist_add_head(&flow->node, &classes->flows[packet->bucket]);
	return flow;
}

static inline void flow_put(struct classes *classes, struct flow *flow)
{
	if (--flow->requests)
		return;
	__hlist_del(&flow->node);
	pool_put(&classes->spare_flows, flow_cache, flow);
}

/* A request of this flow, new if it is NULL. */
static __always_inline struct request *request_new(struct classes *classes, const struct packet *packet, struct flow *flow,
				   struct client_class *class, bool is_suspected, u64 now)
{
	struct request *request = pool_get(&classes->spare_requests, request_cache);

	if (!request)
		return NULL;
	if (!flow)
		flow = flow_new(classes, packet, class);
	if (!flow) {
		pool_put(&classes->spare_requests, request_cache, request);
		return NULL;
	}
	flow->requests++;
	request->is_session = packet->unit >= UNIT_SESSION;
	if (packet->key.protocol == IPPROTO_TCP || request->is_session)
		flow->ongoing = request;
	request->flow = flow;
	request->arrived = now;
	request->slot = flow->class->window.number;
	request->resets = classes->resets;
	request->is_suspected = is_suspected;
	request->is_proven = packet->is_proven;
	request->opens = packet->is_first;
	request->is_first = packet->unit == UNIT_SESSION;
	request->is_h2 = packet->is_h2;
	request->is_overdue = false;
	request->is_abandoned = false;
	request->is_reset = false;
	request->was_answered = false;
	request->notices = 0;
	request->is_owed = true;
	request->has_rested = false;
	request->is_active = false;
	request->has_paused = false;
	request->has_gone_on = false;
	request->turns = 0;
	request->spoke = 0;
	INIT_LIST_HEAD(&request->packets);
	return request;
}

static inline void request_free(struct classes *classes, struct request *request)
{
	struct flow *flow = request->flow;

	if (flow->ongoing == request)
		flow->ongoing = NULL;
	pool_put(&classes->spare_requests, request_cache, request);
	flow_put(classes, flow);
}

static __always_inline void enter_service(struct classes *classes, struct request *request, enum request_state state, u64 now)
{
	struct flow *flow = request->flow;

	request->state = state;
	request->handed_on = now;
	request->heard = now;
	if (classes->in_service.first)
		hlist_add_behind(&request->in_service, &classes->newest->in_service);
	else
		hlist_add_head(&request->in_service, &classes->in_service);
	classes->newest = request;
	if (!classes->on_time)
		classes->on_time = request;
	classes->places++;
	classes->suspected_places += request->is_suspected;
	request->next = NULL;
	if (flow->oldest)
		flow->newest->next = request;
	else
		flow->oldest = request;
	flow->newest = request;
	classes->in_flight++;
	flow->class->figures.in_flight++;
}

/* The first of these that has a place. */
static inline struct request *first_on_time(struct hlist_node *node)
{
	struct request *request = hlist_entry_safe(node, struct request, in_service);

	while (request && request->is_overdue)
		request = hlist_entry_safe(request->in_service.next, struct request, in_service);
	return request;
}

static inline void leave_place(struct classes *classes, struct request *request)
{
	if (classes->on_time == request)
		classes->on_time = first_on_time(request->in_service.next);
	classes->places--;
	classes->suspected_places -= request->is_suspected;
	if (request->is_session) {
		classes->gone_on_places -= request->has_gone_on;
		request->has_gone_on = false;
		list_del_init(&request->queue);
	} else if (request->is_abandoned) {
		list_del(&request->queue);
	}
}

static __always_inline void take_out_of_service(struct classes *classes, struct request *request)
{
	struct flow *flow = request->flow;

	/* Behind the first one, what leads to a node is the `next` of the node before. */
	if (classes->newest == request && classes->in_service.first != &request->in_service)
		classes->newest = container_of(request->in_service.pprev, struct request, in_service.next);
	if (!request->is_overdue)
		leave_place(classes, request);
	__hlist_del(&request->in_service);
	if (likely(flow->oldest == request))
		flow->oldest = request->next;
	else
		flow_unlink(flow, request);
	classes->in_flight--;
	flow->class->figures.in_flight--;
}

/*
 * The service has finished with it. It is its flow's oldest, nearly always: answers count for the oldest, patience ends in the order in
 * which requests were handed on, and a TCP connection has only one.
 */
static __always_inline void leave_service(struct classes *classes, struct request *request)
{
	take_out_of_service(classes, request);
	if (request->state == IN_FLIGHT) {
		request_free(classes, request);
		return;
	}
	request->state = GONE;
	if (request->flow->ongoing == request)
		request->flow->ongoing = NULL;
}

#endif
