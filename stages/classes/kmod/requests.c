// SPDX-License-Identifier: GPL-2.0
/* See requests.h, and classes.h for a request's life. */
#include <net/tcp.h>

#include "flows.h"
#include "memory.h"
#include "protocol.h"
#include "requests.h"
#include "room.h"
#include "session.h"
#include "times.h"
#include "upgrades.h"

/* Requests that are overdue at a time: as many as there may be places. */
#define OVERDUE_MOST LIMIT_MOST

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

/* Whether the figures, and the share of its class, are to say what becomes of it: a connection is counted once. */
static bool is_to_be_counted(const struct request *request)
{
	return !request->is_session || (request->is_first && !request->was_answered);
}

void request_count_unanswered(struct classes *classes, struct request *request)
{
	if (!is_to_be_counted(request))
		return;
	if (is_counted(classes, request))
		request->flow->class->figures.unanswered++;
	if (!request->is_overdue)
		give_up(classes, request);
}

static void count_arrival(struct client_class *class, const struct packet *packet, bool is_suspected)
{
	class->figures.requests++;
	class->figures.connections += packet->unit == UNIT_SESSION;
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

/* Until there is a limit, all are served as they come. */
void requests_answer_counts(struct classes *classes, u64 handed_on, u64 heard, u64 at_most, u32 inside, u64 now)
{
	u32 i;

	if (likely(!limit_answer(&classes->limit, handed_on, heard, at_most, inside, now)))
		return;
	for (i = 0; i < classes->count; i++)
		window_judge_anew(&classes->class[i].window);
}

bool request_is_suspect(const struct classes *classes, const struct flow_key *key, u64 now)
{
	return suspects_are_there(&classes->suspects, now) && classes->rule != TARN_CLASSES_PUBLISHED && suspects_have(classes, key, now);
}

/* Whether it is the first packet of a request, where none of its flow is here. */
static bool begins_one(const struct packet *packet)
{
	return packet->unit == UNIT_EXCHANGE || packet->unit == UNIT_SESSION;
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

/*
 * The client has reset its connection: nobody awaits the answer any more, but the service has the request already, and works on it.
 * So it keeps its place for as long as that takes, or else a client that asks and resets, again and again, would have the service work
 * on more and more. It is not held against the client: people who go on to another page do the same. What comes next in its flow is
 * another connection's.
 */
static void request_abandon(struct classes *classes, struct request *request, u64 now)
{
	request_count_unanswered(classes, request);
	if (classes->rule == TARN_CLASSES_PUBLISHED || request->is_overdue || request->state != IN_FLIGHT ||
	    now - request->handed_on >= limit_usual(&classes->limit)) {
		leave_service(classes, request);
		return;
	}
	request->is_abandoned = true;
	request->flow->ongoing = NULL;
	list_add_tail(&request->queue, &classes->abandoned);
}

/* Takes the places of those that the service has finished with by now, as far as can be told. */
static void requests_end_abandoned(struct classes *classes, u64 now)
{
	struct request *request, *next;

	list_for_each_entry_safe(request, next, &classes->abandoned, queue)
		if (now - request->handed_on >= limit_usual(&classes->limit))
			leave_service(classes, request);
}

u64 requests_abandoned_until(struct classes *classes)
{
	const struct request *request = list_first_entry_or_null(&classes->abandoned, struct request, queue);

	return request ? request->handed_on + limit_usual(&classes->limit) : U64_MAX;
}

/* What comes where a request of its flow is here. */
static enum arrival add_to(struct classes *classes, struct request *request, const struct packet *packet, u64 now)
{
	if (has_packets_here(request))
		return waits_behind(request->flow, packet) ? WAITS : PASSES;
	if (request->is_session && packet->resets) {
		/* It has asked for a handshake at least, and gone without a word. */
		if (request->is_proven && request->is_first && !request->was_answered && !request->is_overdue &&
		    classes->rule != TARN_CLASSES_PUBLISHED)
			suspects_overdue(classes, &request->flow->key, now);
		session_end(classes, request, now);
	} else if (request->is_session) {
		session_heard(classes, request, packet, now);
	} else if (packet->resets) {
		request_abandon(classes, request, now);
	} else if (packet->payload) {
		request->heard = now;
	}
	return PASSES;
}

/* Has a request in service at once. */
static void enter_at_once(struct classes *classes, const struct packet *packet, struct flow *flow, u32 class, bool is_suspected, u64 now)
{
	struct request *request = request_new(classes, packet, flow, &classes->class[class], is_suspected, now);

	if (!request)		/* without memory it goes on as if we were not there */
		return;
	count_arrival(request->flow->class, packet, is_suspected);
	request->flow->class->figures.packets++;
	enter_service(classes, request, IN_FLIGHT, now);
	if (is_suspected)
		classes->suspected_turn = now;
	if (request->is_session)
		session_let_in(classes, request);
}

enum arrival request_arrive(struct classes *classes, const struct packet *packet, u32 class, u64 now)
{
	struct flow *flow = flow_find(classes, packet);
	bool is_suspected;

	if (flow && flow->ongoing)
		return add_to(classes, flow->ongoing, packet, now);
	if (flow && flow->is_upgraded) {
		upgrade_heard(classes, flow, packet->is_first || packet->resets);
		if (!packet->is_first)
			return PASSES;
		flow = flow_find(classes, packet);
	}
	if (packet->unit != UNIT_SESSION_GOES_ON && !begins_one(packet))
		return PASSES;
	if (!list_empty(&classes->resting) || classes->places >= classes->limit.now) {
		sessions_rest(classes, now);
		requests_become_overdue(classes, now);
		flow = flow_find(classes, packet);	/* its last request may have been one of those that were ended */
	}
	is_suspected = request_is_suspect(classes, &packet->key, now);
	if (packet->unit == UNIT_SESSION_GOES_ON) {
		session_resume(classes, packet, flow, class, is_suspected, now);
		return PASSES;
	}
	if (classes->waiting > classes->suspected_waiting || !has_room(classes) || classes->hold || classes->hold_rounds ||
	    (is_suspected && classes->suspected_places >= suspected_most(classes)))
		return WAITS;
	enter_at_once(classes, packet, flow, class, is_suspected, now);
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
	/* What TCP will refuse is of somebody else, and must not stand for the client's own. */
	if (packet->end_seq != packet->seq && packet->has_ack)
		spans_add(&request->flow->held, packet->seq, packet->end_seq);
	request->is_reset = packet->is_reset;
	if (request->is_session && request->state == HANDED_ON)
		session_owes(request);
}

enum arrival request_hold(struct classes *classes, const struct packet *packet, u32 class_index, u64 now,
			  struct held *held, struct list_head *dropped)
{
	struct flow *flow = flow_find(classes, packet);
	struct request *request = flow ? flow->ongoing : NULL;
	struct client_class *class = flow ? flow->class : &classes->class[class_index];
	bool is_suspected = request ? request->is_suspected : request_is_suspect(classes, &packet->key, now);
	bool has_more = request;

	if (request && !has_packets_here(request))	/* it was handed on meanwhile */
		return add_to(classes, request, packet, now);
	if (!request && (!begins_one(packet) || (flow && flow->is_upgraded)))
		return PASSES;
	if (request && !packet->is_reset && spans_cover(&flow->held, packet->seq, packet->end_seq)) {
		class->figures.dropped_repeated++;
		list_add(&held->list, dropped);
		return WAITS;
	}
	if (!room_make(classes, class, held, dropped)) {
		if (!request)
			count_arrival(class, packet, is_suspected);
		list_add(&held->list, dropped);
		return WAITS;
	}
	/* What was dropped may have been this request, and its flow's last. Then what belongs to it goes the same way. */
	flow = flow_find(classes, packet);
	request = flow ? flow->ongoing : NULL;
	if (has_more && !request) {
		memory_release(classes, held);
		class->figures.dropped_cap++;
		list_add_tail(&held->list, dropped);
		return WAITS;
	}
	if (!request) {
		/* Of its flow's class, if that has requests still. */
		class = flow ? flow->class : &classes->class[class_index];
		count_arrival(class, packet, is_suspected);
		request = request_new(classes, packet, flow, class, is_suspected, now);
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
	if (request->is_suspected)
		classes->suspected_turn = now;
	if (request->is_session)
		session_let_in(classes, request);
}

void request_delivered(struct classes *classes, struct request *request, u64 now)
{
	if (request->state == GONE) {
		request_free(classes, request);
		return;
	}
	request->state = IN_FLIGHT;
	/* The client's end of the connection is no more: the service has heard of it, and no answer comes. */
	if (!request->is_reset)
		return;
	if (request->is_session)
		session_end(classes, request, now);
	else
		request_abandon(classes, request, now);
}

void request_count_answered(struct classes *classes, struct request *request, bool is_in_time, u64 took)
{
	struct client_class *class = request->flow->class;

	if (!is_counted(classes, request))
		return;
	if (!request->is_suspected) {
		window_count_answer(&class->window, request->slot, is_in_time);
		if (request->is_overdue)
			window_uncount_unanswered(&class->window, request->slot);
	}
	class->times[times_bucket(took)]++;
	if (is_in_time)
		class->figures.in_time++;
	else
		class->figures.late++;
}

static void count_answer(struct classes *classes, struct request *request, u64 now)
{
	u64 from = classes->rule == TARN_CLASSES_PUBLISHED ? request->handed_on : request->arrived;

	if (suspects_are_there(&classes->suspects, now))
		suspects_answered(classes, &request->flow->key, now);
	/* Those set aside wait on when no more come: without a limit, all of them would be handed on at once. */
	if (classes->waiting > classes->suspected_waiting && classes->places >= classes->limit.now)
		limit_reached(&classes->limit);
	requests_answer_counts(classes, request->handed_on, request->heard,
			       request->is_overdue ? requests_overdue_after(classes) : U64_MAX,
			       classes->places - !request->is_overdue, now);
	request_count_answered(classes, request, now - from <= request->flow->class->target.deadline, now - request->arrived);
}

/* Its oldest request whose client waits for the answer. */
static struct request *oldest_awaited(const struct flow *flow)
{
	struct request *request = flow->oldest;

	while (request && unlikely(request->is_abandoned))
		request = request->next;
	return request;
}

void request_answer(struct classes *classes, const struct sk_buff *skb, struct packet *packet, u64 now)
{
	struct flow *flow = flow_find(classes, packet);
	struct request *request;

	if (!flow)
		return;
	request = oldest_awaited(flow);
	if (!request) {
		if (flow->is_upgraded)
			upgrade_heard(classes, flow, packet->is_fin || packet->is_reset);
		return;
	}
	packet->answer = protocol_answer(classes, skb, packet, request->is_session);
	if (request->is_session) {
		session_spoke(classes, request, packet, now);
		return;
	}
	if (packet->payload && packet->answer == ANSWER_INTERIM)
		return;
	/* Where others were handed on since, the answer is rather for one of them. */
	while (request && request->is_overdue && !flow->newest->is_overdue) {
		request_count_unanswered(classes, request);
		leave_service(classes, request);
		request = oldest_awaited(flow);
	}
	if (!request)
		return;
	if (!packet->payload || packet->is_reset)
		request_count_unanswered(classes, request);
	else
		count_answer(classes, request, now);
	if (packet->payload && packet->answer == ANSWER_UPGRADES && request->opens && !flow->is_upgraded)
		upgrade_begin(classes, flow);
	leave_service(classes, request);
}

/* What the service has no room for, it drops: but TCP has it come again. */
static void count_lost(struct classes *classes, const struct request *request)
{
	if (!request->is_suspected && request->flow->key.protocol == IPPROTO_UDP)
		limit_lost(&classes->limit);
}

/* Whether the service may have had no room for it: that is no client's fault. */
static bool may_be_dropped(const struct classes *classes, const struct request *request)
{
	return request->flow->key.protocol == IPPROTO_UDP && limit_was_open(&classes->limit, request->handed_on);
}

void requests_expire(struct classes *classes, u64 now)
{
	struct hlist_node *next;
	struct request *request;

	hlist_for_each_entry_safe(request, next, &classes->in_service, in_service) {
		if (now - request->handed_on < classes->patience)
			return;
		if (request->is_session) {
			session_expire(classes, request, now);
			continue;
		}
		if (!request->is_abandoned)
			request_count_unanswered(classes, request);
		count_lost(classes, request);
		leave_service(classes, request);
	}
}

u64 requests_overdue_after(const struct classes *classes)
{
	if (classes->rule == TARN_CLASSES_PUBLISHED)
		return classes->patience;
	return min(classes->overdue ?: limit_likely(&classes->limit), classes->patience);
}

/* They take memory. A flow's requests lose their places in the order in which they were handed on: the first here is its oldest. */
void requests_end_overdue(struct classes *classes)
{
	struct request *request;
	struct hlist_node *next;

	if (likely(classes->in_flight - classes->places <= OVERDUE_MOST))
		return;
	hlist_for_each_entry_safe(request, next, &classes->in_service, in_service) {
		if (classes->in_flight - classes->places <= OVERDUE_MOST)
			return;
		if (!request->is_overdue)
			continue;
		request_count_unanswered(classes, request);
		count_lost(classes, request);
		leave_service(classes, request);
	}
}

/* Whether it says something that it has no answer yet: one that goes on may be a message that gets none. */
static bool should_be_answered(const struct request *request)
{
	return !request->is_session || request->is_first;
}

void requests_become_overdue(struct classes *classes, u64 now)
{
	struct request *request;

	requests_end_abandoned(classes, now);
	request = classes->on_time;
	while (request && now - request->handed_on >= requests_overdue_after(classes)) {
		const struct window *window = &request->flow->class->window;

		/* Where less than the usual time is given. */
		if (request->is_abandoned) {
			leave_service(classes, request);
			request = classes->on_time;
			continue;
		}
		leave_place(classes, request);
		request->is_overdue = true;
		/* Where most are answered it is the service that takes longer, and otherwise the clients. */
		if (!request->is_suspected && request->is_owed && should_be_answered(request) && window->answered > window->unanswered)
			limit_back_off(&classes->limit, request->handed_on, now);
		if (is_to_be_counted(request))
			give_up(classes, request);
		if (request->is_proven && !request->was_answered && should_be_answered(request) && classes->rule != TARN_CLASSES_PUBLISHED &&
		    !may_be_dropped(classes, request))
			suspects_overdue(classes, &request->flow->key, now);
		request = classes->on_time;
	}
	requests_end_overdue(classes);
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
	upgrades_flush(classes);
}
