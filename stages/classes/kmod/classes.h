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
#include "clients.h"
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
	u16 query;			/* DNS over UDP: its identifier, otherwise 0; ports to query are compared as one word */
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
	struct request *ongoing;	/* TCP, or a session: the one request; packets that come belong to it */
	u32 requests;
	struct list_head upgraded;	/* in class->upgraded, if it `is_upgraded`: see upgrades.h */
	bool is_upgraded;
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
	u64 heard;			/* ns: when its client has sent something of it last, from its being handed on */
	u32 slot;			/* of its class's window, when it arrived */
	u32 resets;			/* classes.resets, when it arrived */
	enum request_state state;
	enum queue in;			/* while it waits */
	bool is_suspected;		/* its client was, when it arrived: it says nothing about how its class does */
	bool is_proven;			/* its client is at its address, as far as that shows */
	bool opens;			/* TCP: the first of its connection */
	bool is_session;		/* of a connection that is a request as a whole: see session.h */
	bool is_h2;			/* it has begun like HTTP/2, and not like TLS */
	bool is_first;			/* it has waited, or could have: not one that goes on */
	bool is_in_time;		/* it was let in early enough */

	/* What becomes of it. A new one begins with the same values, which are together so that a few instructions write them. */
	bool is_overdue;		/* in service, without a place */
	bool is_abandoned;		/* in service, of a connection that its client has reset: see request_abandon() */
	bool is_reset;			/* TCP: the last packet that waits ends the connection at once */

	/* The same of a session. Its `queue` is in classes.resting when the service has spoken last. */
	bool was_answered;		/* the service has sent something */
	u8 notices;			/* of the client's since it has begun, or gone on: see is_notice() */
	bool is_owed;			/* the client has sent something since */
	bool has_rested;		/* it has given its place back for having been silent, or is counted already */
	bool is_active;			/* one of both has sent something since patience with it began */
	bool has_paused;		/* the service has, since the client has spoken */
	bool has_gone_on;		/* has a place for which it did not wait */
	u8 turns;			/* of the client's, after the first: those of a handshake, at most */
	u64 spoke;			/* ns: when the service has spoken last, if it has */
};

struct client_class {
	struct tarn_classes_target target;
	struct list_head queue[QUEUES];
	struct list_head upgraded;	/* flows, the longest silent first: see upgrades.h */
	u32 upgraded_count;
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
	u32 protocol, rule;
	u64 window, hold, patience, overdue, bytes;
	u32 hold_rounds;

	struct limit limit;
	u32 resets;			/* of the counters, so far */
	u32 in_flight, waiting;		/* requests; waiting in any queue */
	u32 suspected_waiting;		/* of them, in queues of suspected clients */
	u64 late_turn;			/* ns: when a late request of a class that had no other was served before others */
	u64 suspected_turn;		/* ns: when one of those was served last, or began to wait */
	u32 places, suspected_places;	/* taken: by those in flight that are not overdue; of suspected clients */
	u64 bytes_now;
	struct hlist_head in_service;	/* in the order handed on; the last of them is `newest` */
	struct request *newest;
	struct list_head abandoned;	/* of them, those with a place whose clients have given up */
	struct request *on_time;	/* the first of `in_service` that is not overdue; neither are those after it */
	u64 next_slot;			/* ns: when the window goes on */
	u64 gather_since;		/* ns: no choice before `hold` has passed */
	u32 rounds_left;

	struct net_device *dummy;
	struct napi_struct napi;
	struct hrtimer timer;

	bool timer_runs;		/* written without the lock, too, when it ends */
	u64 timer_at;			/* ns: when it ends, if it runs */
	/* Connections that are requests as a whole: see session.c. */
	u32 gone_on_places;		/* of `places`, taken without waiting */
	struct list_head resting;	/* with a place, in the order in which the service spoke */
	u64 pause, pause_deviation;	/* ns, smoothed: pauses within what the service sends; 0: none was seen */
	/* By local port, what the service has spoken. Read without the lock, too. */
	DECLARE_BITMAP(speaks_tls, 65536);
	DECLARE_BITMAP(speaks_h2, 65536);

	u32 upgraded_count;		/* of all classes */

	u64 hash_key[5];
	struct suspects suspects;
	struct recent recent;
	struct pool spare_flows, spare_requests;
	struct hlist_head flows[1 << FLOW_BUCKETS_BITS];
	u32 count;
	struct client_class class[];		/* `count`, best first */
};

/*
 * Whether one that waits may go on. What has not waited, for it goes on with a connection, leaves those that wait half of the places, if
 * it takes others above the limit.
 */
static inline bool has_room(const struct classes *classes)
{
	return classes->places < classes->limit.now ||
	       classes->places - classes->gone_on_places < DIV_ROUND_UP(classes->limit.now, 2);
}

/* How many requests of suspected clients may have a place at a time: a quarter of them, or the only one. */
static inline u32 suspected_most(const struct classes *classes)
{
	return max(classes->limit.now / 4, 1U);
}

#endif
