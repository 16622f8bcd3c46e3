/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The state of one service, and who may touch what.
 *
 *   struct classes   a service with its classes: made by SET, ended by STOP, by the namespace's end or the module's
 *   struct client_class     one of its classes, with its requests that wait, in three queues
 *   struct flow      a client's address and port at a local port, as long as a request of it waits or is in service
 *   struct request   what the service answers: a UDP datagram, or what a TCP client sends before it gets an answer
 *   struct held      a packet of a request that waits
 *
 * A request's life:
 *
 *              room in the service, nothing waits
 *   arrival ------------------------------------------------> IN_FLIGHT --- answer leaves, patience ends, reset ---> gone
 *       \                                                      ^
 *        `--> WAITING (in a queue of its class) --> HANDED_ON -'
 *
 * HANDED_ON is the time that the dispatcher delivers the held packets, without the lock: packets of the flow that come
 * meanwhile are appended, so that they cannot overtake.
 *
 * In service, a request has one of the places that the limit gives for as long as an answer is likely. After that it is
 * overdue: its answer is still waited for, but keeps nobody else from being served.
 *
 * Everything below is protected by `classes.lock`, taken with bottom halves off; what SET gave at the beginning never
 * changes while packets can see it. No packet is delivered and none is freed with the lock held. The hooks reach
 * `struct classes` by the packet's port, under RCU: see services.h.
 */
#ifndef TARN_CLASSES_CLASSES_H
#define TARN_CLASSES_CLASSES_H

#include <linux/hrtimer.h>
#include <linux/in6.h>
#include <linux/list.h>
#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/skbuff.h>
#include <linux/spinlock.h>

#include "uapi.h"
#include "choice.h"
#include "limit.h"
#include "spans.h"
#include "suspects.h"

#define FLOW_BUCKETS_BITS 14

/* A packet that waits. It has passed all hooks before TCP and UDP; `okfn` is what comes next. */
struct held {
	struct list_head list;
	struct sk_buff *skb;
	netdevice_tracker dev_tracker;	/* of skb->dev; empty but on a debug kernel, which tells who holds a device */
	int (*okfn)(struct net *net, struct sock *sk, struct sk_buff *skb);
	u32 offset;			/* bytes: of the transport header */
	u32 seq;			/* TCP: of the first byte */
	bool ends_connection;		/* TCP: it is dropped, and with it the request for good */
};

struct flow_key {
	struct in6_addr client, local;	/* IPv4 in the first word */
	__be16 client_port, local_port;
	u8 protocol;
	u8 family;
	u16 padding;			/* 0: ports to padding are compared as one word */
};

/* Flows and requests that were freed a moment ago: the next ones, at a tenth of what an allocation costs. */
#define POOL_MOST 64

struct pool {
	u32 count;
	void *items[POOL_MOST];
};

struct flow {
	struct hlist_node node;
	struct flow_key key;
	struct client_class *class;	/* stays as long as the flow has requests */
	struct request *oldest, *newest;	/* in service, in the order handed on, which is that of their ends */
	struct request *current_tcp;	/* TCP: the one request; packets that come belong to it */
	u32 requests;
	struct spans held;		/* TCP: the bytes that wait here */
};

enum request_state {
	WAITING,
	HANDED_ON,
	IN_FLIGHT,
	GONE,				/* ended while its packets were being delivered: the dispatcher frees it */
};

/* In the order in which they are served. */
enum queue {
	QUEUE_WAITING,
	QUEUE_ASIDE,			/* could hardly be answered in time any more */
	QUEUE_SUSPECTED,		/* its client is: see suspects.h */
	QUEUES,
};

struct request {
	struct list_head queue;		/* of its class, while it waits */
	struct hlist_node in_service;	/* classes.in_service afterwards */
	struct request *next;		/* in service, of the same flow */
	struct flow *flow;
	struct list_head packets;	/* struct held */
	u64 arrived, handed_on;		/* ns */
	u32 slot;			/* of its class's window, when it arrived */
	u32 resets;			/* classes.resets, when it arrived */
	enum request_state state;
	enum queue in;			/* while it waits */
	bool is_suspected;		/* its client was, when it arrived: it says nothing about how its class does */
	bool is_overdue;		/* in service, without a place */
	bool is_proven;			/* its client is at its address, as far as that shows */
	bool is_reset;			/* TCP: the last packet that waits ends the connection at once */
};

struct client_class {
	struct tarn_classes_target target;
	struct list_head queue[QUEUES];
	struct window window;
	struct tarn_classes_figures figures;
	u32 times[TARN_CLASSES_TIMES];
};

struct classes {
	struct net *net;
	spinlock_t lock;
	bool is_dead;			/* nothing is held any more */
	u32 number;			/* of the service */
	struct tarn_classes_ports *ranges;	/* as given */
	u32 range_count;
	u32 rule;
	u64 window, hold, patience, overdue, bytes;
	u32 hold_rounds;

	struct limit limit;
	u32 resets;			/* of the counters, so far */
	u32 in_flight, waiting;		/* requests; waiting in any queue */
	u32 suspected_waiting;		/* of them, in queues of suspected clients */
	u64 suspected_turn;		/* ns: when one of those was served last, or began to wait */
	u32 places, suspected_places;	/* taken: by those in flight that are not overdue; of suspected clients */
	u64 bytes_now;
	struct hlist_head in_service;	/* in the order handed on; the last of them is `newest` */
	struct request *newest;
	struct request *on_time;	/* the first of `in_service` that is not overdue; neither are those after it */
	u64 next_slot;			/* ns: when the window goes on */
	u64 gather_since;		/* ns: no choice before `hold` has passed */
	u32 rounds_left;

	struct net_device *dummy;
	struct napi_struct napi;
	struct hrtimer timer;

	bool timer_runs;		/* written without the lock, too, when it ends */
	u64 timer_at;			/* ns: when it ends, if it runs */
	u64 hash_key[5];
	struct suspects suspects;
	struct pool spare_flows, spare_requests;
	struct hlist_head flows[1 << FLOW_BUCKETS_BITS];
	u32 count;
	struct client_class class[];		/* `count`, best first */
};

/* How many requests of suspected clients may have a place at a time: a quarter of them, or the only one. */
static inline u32 suspected_most(const struct classes *classes)
{
	return max(classes->limit.now / 4, 1U);
}

#endif
