// SPDX-License-Identifier: GPL-2.0
/* See requests.h, and classes.h for a request's life. */
#include <linux/slab.h>
#include <net/ipv6.h>
#include <net/tcp.h>

#include "memory.h"
#include "requests.h"
#include "room.h"
#include "times.h"

/* Requests that are overdue at a time: as many as there may be places. */
#define OVERDUE_MOST LIMIT_MOST

static struct kmem_cache *flow_cache, *request_cache, *held_cache;

int requests_init(void)
{
	flow_cache = KMEM_CACHE(flow, SLAB_HWCACHE_ALIGN);
	request_cache = KMEM_CACHE(request, SLAB_HWCACHE_ALIGN);
	held_cache = KMEM_CACHE(held, 0);
	if (flow_cache && request_cache && held_cache)
		return 0;
	requests_exit();
	return -ENOMEM;
}

void requests_exit(void)
{
	/* kmem_cache_destroy() takes NULL. */
	kmem_cache_destroy(held_cache);
	kmem_cache_destroy(request_cache);
	kmem_cache_destroy(flow_cache);
}

struct held *held_alloc(void)
{
	return kmem_cache_alloc(held_cache, GFP_ATOMIC);
}

void held_free(struct held *held)
{
	kmem_cache_free(held_cache, held);
}

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

static void pool_free(struct pool *pool, struct kmem_cache *cache)
{
	while (pool->count)
		kmem_cache_free(cache, pool->items[--pool->count]);
}

void requests_free_spare(struct classes *classes)
{
	pool_free(&classes->spare_flows, flow_cache);
	pool_free(&classes->spare_requests, request_cache);
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
	flow->current_tcp = NULL;
	flow->requests = 0;
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
	if (packet->key.protocol == IPPROTO_TCP)
		flow->current_tcp = request;
	request->flow = flow;
	request->arrived = now;
	request->slot = flow->class->window.number;
	request->resets = classes->resets;
	request->is_suspected = is_suspected;
	request->is_overdue = false;
	request->is_proven = packet->is_proven;
	request->is_reset = false;
	INIT_LIST_HEAD(&request->packets);
	return request;
}

static inline void request_free(struct classes *classes, struct request *request)
{
	struct flow *flow = request->flow;

	if (flow->current_tcp == request)
		flow->current_tcp = NULL;
	pool_put(&classes->spare_requests, request_cache, request);
	flow_put(classes, flow);
}

/* A request that was here at a reset has not arrived since, and neither is it answered. */
static bool is_counted(const struct classes *classes, const struct request *request)
{
	return request->resets == classes->resets;
}

/* An answer is likely no more, or will not come: its class is not behind for it. */
static void give_up(struct classes *classes, struct request *request)
{
	if (is_counted(classes, request) && !request->is_suspected)
		window_count_unanswered(&request->flow->class->window, request->slot);
}

static void count_unanswered(struct classes *classes, struct request *request)
{
	if (is_counted(classes, request))
		request->flow->class->figures.unanswered++;
	if (!request->is_overdue)
		give_up(classes, request);
}

static void count_arrival(struct client_class *class, bool is_suspected)
{
	class->figures.requests++;
	if (!is_suspected)
		window_count_request(&class->window);
}

void shares_go_on(struct classes *classes, u64 now)
{
	u64 slot = div_u64(classes->window, WINDOW_SLOTS), slots;
	u32 i;

	slots = div64_u64(now - classes->next_slot, slot) + 1;
	classes->next_slot += slots * slot;
	for (i = 0; i < classes->count; i++)
		window_advance(&classes->class[i].window, slots);
}

static __always_inline void enter_service(struct classes *classes, struct request *request, enum request_state state, u64 now)
{
	struct flow *flow = request->flow;

	request->state = state;
	request->handed_on = now;
	if (classes->in_service.first)
		hlist_add_behind(&request->in_service, &classes->newest->in_service);
	else
		hlist_add_head(&request->in_service, &classes->in_service);
	classes->newest = request;
	if (!classes->on_time)
		classes->on_time = request;
	classes->places++;
	if (request->is_suspected) {
		classes->suspected_places++;
		classes->suspected_turn = now;
	}
	request->next = NULL;
	if (flow->oldest)
		flow->newest->next = request;
	else
		flow->oldest = request;
	flow->newest = request;
	classes->in_flight++;
	flow->class->figures.in_flight++;
}

static void leave_place(struct classes *classes, struct request *request)
{
	/* All before it are overdue, so it is the first. */
	if (classes->on_time == request)
		classes->on_time = hlist_entry_safe(request->in_service.next, struct request, in_service);
	classes->places--;
	classes->suspected_places -= request->is_suspected;
}

/*
 * The service has finished with it. It is its flow's oldest: answers count for the oldest, patience ends in the order in
 * which requests were handed on, and a TCP connection has only one.
 */
static __always_inline void leave_service(struct classes *classes, struct request *request)
{
	struct flow *flow = request->flow;

	/* Behind the first one, what leads to a node is the `next` of the node before. */
	if (classes->newest == request && classes->in_service.first != &request->in_service)
		classes->newest = container_of(request->in_service.pprev, struct request, in_service.next);
	if (!request->is_overdue)
		leave_place(classes, request);
	__hlist_del(&request->in_service);
	flow->oldest = request->next;
	classes->in_flight--;
	flow->class->figures.in_flight--;
	if (request->state == IN_FLIGHT) {
		request_free(classes, request);
		return;
	}
	request->state = GONE;
	if (flow->current_tcp == request)
		flow->current_tcp = NULL;
}

static inline bool is_suspect(const struct classes *classes, const struct packet *packet, u64 now)
{
	return suspects_are_there(&classes->suspects, now) && classes->rule != TARN_CLASSES_PUBLISHED &&
	       suspects_have(classes, &packet->key, now);
}

static bool has_packets_here(const struct request *request)
{
	return request && (request->state == WAITING || request->state == HANDED_ON);
}

/*
 * Whether a packet must not overtake the data of its connection that waits here: acknowledgements may. A reset that is not at
 * the end of that data is none of the client's, or TCP asks the client about it: it passes, and changes nothing here.
 */
static bool waits_behind(const struct flow *flow, const struct packet *packet)
{
	if (packet->is_reset)
		return spans_end_at(&flow->held, packet->seq);
	return packet->payload || packet->is_fin;
}

enum arrival request_arrive(struct classes *classes, const struct packet *packet, u32 class, u64 now)
{
	struct flow *flow = flow_find(classes, packet);
	struct request *current_tcp = flow ? flow->current_tcp : NULL;
	struct request *request;
	bool is_suspected;

	if (packet->key.protocol == IPPROTO_TCP) {
		if (has_packets_here(current_tcp))
			return waits_behind(flow, packet) ? WAITS : PASSES;
		if (current_tcp && packet->resets) {
			count_unanswered(classes, current_tcp);
			leave_service(classes, current_tcp);
			return PASSES;
		}
		if (current_tcp || !packet->payload)
			return PASSES;
	}
	if (classes->places >= classes->limit.now)
		requests_become_overdue(classes, now);
	is_suspected = is_suspect(classes, packet, now);
	if (classes->waiting > classes->suspected_waiting || classes->places >= classes->limit.now || classes->hold || classes->hold_rounds ||
	    (is_suspected && classes->suspected_places >= suspected_most(classes)))
		return WAITS;
	request = request_new(classes, packet, flow, &classes->class[class], is_suspected, now);
	if (!request)		/* without memory it goes on as if we were not there */
		return PASSES;
	count_arrival(request->flow->class, is_suspected);
	request->flow->class->figures.packets++;
	enter_service(classes, request, IN_FLIGHT, now);
	return PASSES;
}

static void enqueue(struct classes *classes, struct request *request)
{
	struct client_class *class = request->flow->class;

	request->state = WAITING;
	request->in = request->is_suspected ? QUEUE_SUSPECTED : QUEUE_WAITING;
	list_add_tail(&request->queue, &class->queue[request->in]);
	if (request->is_suspected) {
		class->figures.aside++;
		class->figures.suspected++;
		if (!classes->suspected_waiting++)
			classes->suspected_turn = request->arrived;
	} else {
		class->figures.waiting++;
		if (classes->waiting == classes->suspected_waiting) {
			classes->gather_since = request->arrived;
			classes->rounds_left = classes->hold_rounds;
		}
	}
	classes->waiting++;
	if (classes->places >= classes->limit.now && !request->is_suspected)
		limit_reached(&classes->limit);
}

static void dequeue(struct classes *classes, struct request *request)
{
	struct client_class *class = request->flow->class;

	list_del(&request->queue);
	if (request->in == QUEUE_WAITING)
		class->figures.waiting--;
	else
		class->figures.aside--;
	if (request->in == QUEUE_SUSPECTED)
		classes->suspected_waiting--;
	classes->waiting--;
}

void request_take(struct classes *classes, struct request *request, const struct net_device *dev,
		  struct list_head *packets)
{
	struct held *held, *next;

	/* What leaves may be lost yet: a client that sends it again has a reason to. */
	request->flow->held.count = 0;
	list_for_each_entry_safe(held, next, &request->packets, list) {
		if (dev && held->skb->dev != dev)
			continue;
		request->flow->class->figures.waiting_packets--;
		memory_release(classes, held);
		list_move_tail(&held->list, packets);
	}
}

void request_discard(struct classes *classes, struct request *request, struct list_head *packets)
{
	request_take(classes, request, NULL, packets);
	dequeue(classes, request);
	request_free(classes, request);
}

static void keep(struct classes *classes, struct request *request, const struct packet *packet, struct held *held)
{
	struct client_class *class = request->flow->class;

	list_add_tail(&held->list, &request->packets);
	class->figures.packets++;
	class->figures.waiting_packets++;
	if (packet->end_seq != packet->seq)
		spans_add(&request->flow->held, packet->seq, packet->end_seq);
	request->is_reset = packet->is_reset;
}

enum arrival request_hold(struct classes *classes, const struct packet *packet, u32 class_index, u64 now,
			  struct held *held, struct list_head *dropped)
{
	struct flow *flow = flow_find(classes, packet);
	struct request *request = flow ? flow->current_tcp : NULL;
	struct client_class *class = flow ? flow->class : &classes->class[class_index];
	bool is_suspected = request ? request->is_suspected : is_suspect(classes, packet, now);
	bool has_more = request;

	if (request && !has_packets_here(request))	/* it was handed on meanwhile */
		return PASSES;
	if (request && !packet->is_reset && spans_cover(&flow->held, packet->seq, packet->end_seq)) {
		class->figures.dropped_repeated++;
		list_add(&held->list, dropped);
		return WAITS;
	}
	if (!request)
		count_arrival(class, is_suspected);
	if (!room_make(classes, class, held, dropped)) {
		list_add(&held->list, dropped);
		return WAITS;
	}
	/* What was dropped may have been this request, and its flow's last. Then what belongs to it goes the same way. */
	flow = flow_find(classes, packet);
	request = flow ? flow->current_tcp : NULL;
	if (has_more && !request) {
		memory_release(classes, held);
		class->figures.dropped_cap++;
		list_add_tail(&held->list, dropped);
		return WAITS;
	}
	if (!request) {
		request = request_new(classes, packet, flow, &classes->class[class_index], is_suspected, now);
		if (!request) {
			memory_release(classes, held);
			class->figures.dropped_memory++;
			list_add(&held->list, dropped);
			return WAITS;
		}
		enqueue(classes, request);
	}
	keep(classes, request, packet, held);
	return WAITS;
}

void request_suspect(struct classes *classes, struct request *request, u64 now)
{
	struct client_class *class = request->flow->class;

	give_up(classes, request);
	request->is_suspected = true;
	request->in = QUEUE_SUSPECTED;
	list_move_tail(&request->queue, &class->queue[QUEUE_SUSPECTED]);
	class->figures.waiting--;
	class->figures.aside++;
	class->figures.suspected++;
	if (!classes->suspected_waiting++)
		classes->suspected_turn = now;
}

void request_hand_on(struct classes *classes, struct request *request, u64 now)
{
	dequeue(classes, request);
	enter_service(classes, request, HANDED_ON, now);
}

void request_delivered(struct classes *classes, struct request *request)
{
	if (request->state == GONE) {
		request_free(classes, request);
		return;
	}
	request->state = IN_FLIGHT;
	/* The client's end of the connection is no more: the service has heard of it, and no answer comes. */
	if (request->is_reset) {
		count_unanswered(classes, request);
		leave_service(classes, request);
	}
}

static void count_answer(struct classes *classes, struct request *request, u64 now)
{
	struct client_class *class = request->flow->class;
	u64 from = classes->rule == TARN_CLASSES_PUBLISHED ? request->handed_on : request->arrived;
	bool is_in_time;

	if (suspects_are_there(&classes->suspects, now))
		suspects_answered(classes, &request->flow->key, now);
	/* Those set aside wait on when no more come: without a limit, all of them would be handed on at once. */
	if (classes->waiting > classes->suspected_waiting && classes->places >= classes->limit.now)
		limit_reached(&classes->limit);
	limit_answer(&classes->limit, request->handed_on, request->is_overdue ? requests_overdue_after(classes) : U64_MAX,
		     classes->places - !request->is_overdue, now);
	if (!is_counted(classes, request))
		return;
	is_in_time = now - from <= class->target.deadline;
	if (!request->is_suspected) {
		window_count_answer(&class->window, request->slot, is_in_time);
		if (request->is_overdue)
			window_uncount_unanswered(&class->window, request->slot);
	}
	class->times[times_bucket(now - request->arrived)]++;
	if (is_in_time)
		class->figures.in_time++;
	else
		class->figures.late++;
}

void request_answer(struct classes *classes, const struct packet *packet, u64 now)
{
	struct flow *flow = flow_find(classes, packet);
	struct request *request;

	if (!flow)
		return;
	request = flow->oldest;
	if (!request)
		return;
	/* Where others were handed on since, the answer is rather for one of them. */
	while (request->is_overdue && !flow->newest->is_overdue) {
		count_unanswered(classes, request);
		leave_service(classes, request);
		request = flow->oldest;
	}
	if (!packet->payload || packet->is_reset)
		count_unanswered(classes, request);
	else
		count_answer(classes, request, now);
	leave_service(classes, request);
}

void requests_expire(struct classes *classes, u64 now)
{
	struct hlist_node *next;
	struct request *request;

	hlist_for_each_entry_safe(request, next, &classes->in_service, in_service) {
		if (now - request->handed_on < classes->patience)
			return;
		count_unanswered(classes, request);
		leave_service(classes, request);
	}
}

u64 requests_overdue_after(const struct classes *classes)
{
	if (classes->rule == TARN_CLASSES_PUBLISHED)
		return classes->patience;
	return min(classes->overdue ?: limit_likely(&classes->limit), classes->patience);
}

void requests_become_overdue(struct classes *classes, u64 now)
{
	struct request *request = classes->on_time;

	while (request && now - request->handed_on >= requests_overdue_after(classes)) {
		const struct window *window = &request->flow->class->window;

		leave_place(classes, request);
		request->is_overdue = true;
		/* Where most are answered it is the service that takes longer, and otherwise the clients. */
		if (!request->is_suspected && window->answered > window->unanswered)
			limit_back_off(&classes->limit, request->handed_on, now);
		give_up(classes, request);
		if (request->is_proven && classes->rule != TARN_CLASSES_PUBLISHED)
			suspects_overdue(classes, &request->flow->key, now);
		request = classes->on_time;
	}
	/* They take memory, too. The oldest is the first of its flow. */
	while (classes->in_flight - classes->places > OVERDUE_MOST) {
		request = hlist_entry(classes->in_service.first, struct request, in_service);
		count_unanswered(classes, request);
		leave_service(classes, request);
	}
}

static void queue_take_device(struct classes *classes, struct list_head *queue, const struct net_device *dev,
			      struct list_head *packets)
{
	struct request *request, *next;

	list_for_each_entry_safe(request, next, queue, queue) {
		request_take(classes, request, dev, packets);
		if (list_empty(&request->packets))
			request_discard(classes, request, packets);
	}
}

void requests_take_device(struct classes *classes, const struct net_device *dev, struct list_head *packets)
{
	enum queue queue;
	u32 i;

	for (i = 0; i < classes->count; i++)
		for (queue = 0; queue < QUEUES; queue++)
			queue_take_device(classes, &classes->class[i].queue[queue], dev, packets);
}

void requests_flush(struct classes *classes, struct list_head *packets)
{
	struct request *request, *next;
	struct hlist_node *node;
	enum queue queue;
	u32 i;

	for (i = 0; i < classes->count; i++)
		for (queue = 0; queue < QUEUES; queue++)
			list_for_each_entry_safe(request, next, &classes->class[i].queue[queue], queue)
				request_discard(classes, request, packets);
	hlist_for_each_entry_safe(request, node, &classes->in_service, in_service)
		leave_service(classes, request);
}
