// SPDX-License-Identifier: GPL-2.0
/*
 * See dispatch.h. The dispatcher is a NAPI that belongs to no device, as that of net/core/gro_cells.c: it runs in the
 * network's softirq or in a thread of its own, like those of network cards.
 */
#include <linux/math64.h>

#include "ack.h"
#include "compat.h"
#include "connection.h"
#include "dispatch.h"
#include "flows.h"
#include "session.h"

/* Suspected clients have a turn so often, at least: who is suspected wrongly is served under overload, too. */
#define SUSPECTED_TURN NSEC_PER_SEC
/* A class that waits for late answers only has one, too: so often, but no more than once in so many service times. */
#define LATE_TURN NSEC_PER_SEC
#define LATE_SHARE 20
#define NO_COOKIE (1U << 23)

void packets_deliver(struct net *net, struct list_head *packets)
{
	struct held *held, *next;

	list_for_each_entry_safe(held, next, packets, list) {
		struct net_device *dev = held->skb->dev;

		held->okfn(net, NULL, held->skb);
		netdev_put(dev, &held->dev_tracker);
		held_free(held);
	}
	INIT_LIST_HEAD(packets);
}

/*
 * Nobody will answer this request: its connection ends, for the service by a reset in the client's name, and for the client by the one
 * that TCP sends when an acknowledgement of a connection that it does not know comes. Without that the client would send the request
 * again, and it would be a new one. Its number is one with which the acknowledgement cannot be taken for the end of a handshake by
 * cookies, whose low 24 bits hold it (net/ipv4/syncookies.c). Where a system call has the socket just now, the acknowledgement gets no
 * answer, and the client's next segment does.
 */
static void end_connection(struct net *net, const struct held *held)
{
	struct sk_buff *ack, *reset = NULL;

	if (connection_may_end(held->skb->sk, held->seq))
		reset = reset_of(held->skb, held->offset, held->seq);
	if (!reset)
		return;
	held->okfn(net, NULL, reset);
	ack = ack_of(held->skb, held->offset, held->seq + NO_COOKIE);
	if (ack)
		held->okfn(net, NULL, ack);
}

void packets_drop(struct net *net, struct list_head *packets)
{
	struct held *held, *next;

	list_for_each_entry_safe(held, next, packets, list) {
		struct net_device *dev = held->skb->dev;

		if (held->ends_connection)
			end_connection(net, held);
		kfree_skb(held->skb);
		netdev_put(dev, &held->dev_tracker);
		held_free(held);
	}
	INIT_LIST_HEAD(packets);
}

struct share dispatch_share(const struct classes *classes, const struct client_class *class)
{
	if (classes->rule == TARN_CLASSES_PUBLISHED)
		return (struct share){ class->figures.requests, class->figures.in_time, class->target.target };
	return window_share(&class->window, class->target.target);
}

/*
 * Sets those aside that can hardly be answered in time any more, but no earlier than halfway: oldest first, so they are at
 * the head.
 */
static void set_hopeless_aside(struct classes *classes, struct client_class *class, u64 now)
{
	u64 margin = min(limit_nearly_all(&classes->limit), class->target.deadline / 2);
	struct request *request, *next;

	list_for_each_entry_safe(request, next, &class->queue[QUEUE_WAITING], queue) {
		if (now + margin <= request->arrived + class->target.deadline)
			return;
		list_move_tail(&request->queue, &class->queue[QUEUE_ASIDE]);
		request->in = QUEUE_ASIDE;
		class->figures.waiting--;
		class->figures.aside++;
		class->figures.set_aside++;
	}
}

/*
 * The head of that queue whose class is furthest behind, or NULL when all are empty; with `is_alone`, only of classes where nothing
 * else waits.
 */
static struct request *head_of(struct classes *classes, enum queue queue, bool is_alone)
{
	struct client_class *best = NULL;
	u32 i;

	for (i = 0; i < classes->count; i++) {
		struct client_class *class = &classes->class[i];

		if (list_empty(&class->queue[queue]) || (is_alone && !list_empty(&class->queue[QUEUE_WAITING])))
			continue;
		if (!best || is_further_behind(dispatch_share(classes, class), dispatch_share(classes, best)))
			best = class;
	}
	return best ? list_first_entry(&best->queue[queue], struct request, queue) : NULL;
}

static struct request *furthest_behind(struct classes *classes, enum queue queue)
{
	return head_of(classes, queue, false);
}

/* The next of those that wait and are not late; who has come under suspicion since goes behind. */
static struct request *best_trusted(struct classes *classes, u64 now)
{
	struct request *request = furthest_behind(classes, QUEUE_WAITING);

	while (request && unlikely(suspects_are_there(&classes->suspects, now)) && classes->rule == TARN_CLASSES_RATIO &&
	       suspects_have(classes, &request->flow->key, now)) {
		request_suspect(classes, request, now);
		request = furthest_behind(classes, QUEUE_WAITING);
	}
	return request;
}

/* Only clients that are at their address, and answer for what they send, have late requests served before others. */
static bool may_be_late(const struct classes *classes, const struct request *request, u64 now)
{
	return request->is_proven && request->flow->key.protocol == IPPROTO_TCP &&
	       !(suspects_are_there(&classes->suspects, now) && suspects_have(classes, &request->flow->key, now));
}

/*
 * Where even the class that is furthest behind of those that wait has enough, late requests of one that is further behind are served, too:
 * their clients may ask for nothing else until they are answered.
 */
static struct request *late_one(struct classes *classes, const struct request *fresh, u64 now)
{
	struct request *request = furthest_behind(classes, QUEUE_ASIDE);

	if (!request || !may_be_late(classes, request, now))
		return NULL;
	return is_further_behind(dispatch_share(classes, request->flow->class), dispatch_share(classes, fresh->flow->class)) ?
		       request :
		       NULL;
}

/*
 * A class of few clients, all of which wait for late answers, asks for nothing more: it has no requests, so it is not behind, and others
 * that keep asking would be served before it for ever.
 */
static struct request *starved_one(struct classes *classes, u64 now)
{
	u64 turn = max_t(u64, LATE_TURN, LATE_SHARE * limit_usual(&classes->limit));
	struct request *request;

	if (now - classes->late_turn < turn)
		return NULL;
	request = head_of(classes, QUEUE_ASIDE, true);
	if (!request || !may_be_late(classes, request, now))
		return NULL;
	classes->late_turn = now;
	return request;
}

/* What is served before a request that is not late, if anything is. */
static struct request *late_before(struct classes *classes, const struct request *fresh, u64 now)
{
	struct request *request = NULL;

	if (has_surplus(dispatch_share(classes, fresh->flow->class)))
		request = late_one(classes, fresh, now);
	return request ?: starved_one(classes, now);
}

/* NULL: only suspected clients wait, and have as many places as they may. */
static struct request *choose(struct classes *classes, u64 now)
{
	bool suspected_may_go = classes->suspected_waiting && classes->suspected_places < suspected_most(classes);
	struct request *request = NULL;
	u32 i;

	if (classes->rule == TARN_CLASSES_RATIO)
		for (i = 0; i < classes->count; i++)
			set_hopeless_aside(classes, &classes->class[i], now);
	if (suspected_may_go && now - classes->suspected_turn >= SUSPECTED_TURN)
		request = furthest_behind(classes, QUEUE_SUSPECTED);
	if (request)
		return request;
	request = best_trusted(classes, now);
	if (request && classes->rule == TARN_CLASSES_RATIO)
		request = late_before(classes, request, now) ?: request;
	request = request ?: furthest_behind(classes, QUEUE_ASIDE);
	if (!request && suspected_may_go)
		request = furthest_behind(classes, QUEUE_SUSPECTED);
	return request;
}

/* Whether requests still gather, so that there is something to choose from. */
static bool is_gathering(const struct classes *classes, u64 now)
{
	return classes->rounds_left || now < classes->gather_since + classes->hold;
}

/* Delivers what a request holds, and what comes meanwhile. Takes and leaves the lock held. */
static void deliver(struct classes *classes, struct request *request)
{
	while (!list_empty(&request->packets)) {
		LIST_HEAD(packets);

		request_take(classes, request, NULL, &packets);
		spin_unlock(&classes->lock);
		packets_deliver(classes->net, &packets);
		spin_lock(&classes->lock);
	}
	request_delivered(classes, request, ktime_get_ns());
}

static int dispatch_poll(struct napi_struct *napi, int budget)
{
	struct classes *classes = container_of(napi, struct classes, napi);
	bool again = false;
	int done = 0;
	u64 now;

	spin_lock(&classes->lock);
	now = ktime_get_ns();
	requests_expire(classes, now);
	sessions_rest(classes, now);
	requests_become_overdue(classes, now);
	if (classes->waiting && classes->rounds_left) {
		classes->rounds_left--;
		again = true;
	}
	while (done < budget && !classes->is_dead && classes->waiting && has_room(classes) &&
	       !is_gathering(classes, now)) {
		struct request *request;

		shares_advance(classes, now);
		request = choose(classes, now);
		if (!request)
			break;
		request_hand_on(classes, request, now);
		deliver(classes, request);
		now = ktime_get_ns();
		done++;
	}
	dispatch_arm(classes, now);
	spin_unlock(&classes->lock);
	if (again)
		return budget;
	if (done < budget)
		napi_complete_done(napi, done);
	return done;
}

void dispatch_kick(struct classes *classes)
{
	napi_schedule(&classes->napi);
}

static enum hrtimer_restart dispatch_time(struct hrtimer *timer)
{
	struct classes *classes = container_of(timer, struct classes, timer);

	WRITE_ONCE(classes->timer_runs, false);
	dispatch_kick(classes);
	return HRTIMER_NORESTART;
}

/*
 * `at` is the earliest moment of all, so that starting the timer anew is right in any case, and leaving it is wrong when it
 * ends later: an earlier moment comes up when requests begin to gather, and when less patience is asked for. One that ends
 * earlier is left; the poll that follows looks again. So it is with one whose dispatch_time() runs just now.
 */
void dispatch_arm(struct classes *classes, u64 now)
{
	u64 at = U64_MAX;

	if (classes->is_dead)
		return;
	if (classes->in_flight)
		at = hlist_entry(classes->in_service.first, struct request, in_service)->handed_on + classes->patience;
	if (classes->waiting && classes->on_time)
		at = min(at, classes->on_time->handed_on + requests_overdue_after(classes));
	if (classes->waiting)
		at = min(at, sessions_rest_at(classes));
	if (classes->waiting && now < classes->gather_since + classes->hold)
		at = min(at, classes->gather_since + classes->hold);
	at = min(at, requests_abandoned_until(classes));
	if (at == U64_MAX || (READ_ONCE(classes->timer_runs) && classes->timer_at <= at))
		return;
	classes->timer_at = at;
	WRITE_ONCE(classes->timer_runs, true);
	hrtimer_start(&classes->timer, ns_to_ktime(at), HRTIMER_MODE_ABS);
}

int dispatch_init(struct classes *classes)
{
	classes->dummy = new_dummy_device();
	if (!classes->dummy)
		return -ENOMEM;
	netif_napi_add(classes->dummy, &classes->napi, dispatch_poll);
	napi_enable(&classes->napi);
	hrtimer_setup(&classes->timer, dispatch_time, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	return 0;
}

void dispatch_exit(struct classes *classes)
{
	hrtimer_cancel(&classes->timer);
	napi_disable(&classes->napi);
	/* The last poll may have armed it once more; it can only schedule what is disabled. */
	hrtimer_cancel(&classes->timer);
	netif_napi_del(&classes->napi);
	free_dummy_device(classes->dummy);
}
