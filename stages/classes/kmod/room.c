// SPDX-License-Identifier: GPL-2.0
/* See room.h. */
#include "memory.h"
#include "requests.h"
#include "room.h"

/* What a class misses least: the oldest of its suspected clients, then of those that are late already. NULL: there is none. */
static struct request *least_missed(struct client_class *class)
{
	return list_first_entry_or_null(&class->queue[QUEUE_SUSPECTED], struct request, queue) ?:
	       list_first_entry_or_null(&class->queue[QUEUE_ASIDE], struct request, queue);
}

/*
 * What goes first when the memory is full: of the lowest class that has any, down to this one, what it misses least; then,
 * of the lowest class below this one, what came last. NULL: nothing.
 */
static struct request *least_needed(struct classes *classes, struct client_class *class)
{
	struct client_class *other;
	struct request *request;

	for (other = classes->class + classes->count; other-- > class;) {
		request = least_missed(other);
		if (request)
			return request;
	}
	for (other = classes->class + classes->count; --other > class;)
		if (!list_empty(&other->queue[QUEUE_WAITING]))
			return list_last_entry(&other->queue[QUEUE_WAITING], struct request, queue);
	return NULL;
}

/* Drops it. What is late is not to come again. */
static void drop_request(struct classes *classes, struct request *request, struct list_head *dropped)
{
	if (request->in != QUEUE_WAITING && request->flow->key.protocol == IPPROTO_TCP)
		list_first_entry(&request->packets, struct held, list)->ends_connection = true;
	request_discard(classes, request, dropped);
}

/* Reserves memory for a packet of this class. Each turn gives back at least a packet that was held before. */
static bool reserve(struct classes *classes, struct client_class *class, const struct held *held,
		    struct list_head *dropped)
{
	while (!memory_reserve(classes, held)) {
		struct request *request = least_needed(classes, class);
		struct tarn_classes_figures *figures;
		u32 before;

		if (!request)
			return false;
		figures = &request->flow->class->figures;
		before = figures->waiting_packets;
		drop_request(classes, request, dropped);
		figures->dropped_memory += before - figures->waiting_packets;
	}
	return true;
}

bool room_make(struct classes *classes, struct client_class *class, const struct held *held, struct list_head *dropped)
{
	struct tarn_classes_figures *figures = &class->figures;

	while (figures->waiting_packets >= class->target.cap) {
		struct request *request = least_missed(class);
		u32 before = figures->waiting_packets;

		if (!request) {
			figures->dropped_cap++;
			return false;
		}
		drop_request(classes, request, dropped);
		figures->dropped_cap += before - figures->waiting_packets;
	}
	if (!reserve(classes, class, held, dropped)) {
		figures->dropped_memory++;
		return false;
	}
	return true;
}
